//! Checks pages in a headless browser.

use annulus_skip::skip;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Opens a page at two widths and in its print layout. Asserts that it fits each width, that it has
/// `charts` charts, that each chart shows something in colour, and that the browser logs nothing.
pub(crate) fn check(browser: &str, directory: &Path, html: &str, charts: usize) {
    let wrapper = directory.join("frames.html");
    let escaped = html.replace('&', "&amp;").replace('"', "&quot;");
    // Swaps the media queries, so that a screen as wide as a sheet of paper shows the print layout.
    let printed = escaped.replace("@media screen and", "@media print and");
    let printed = printed.replace("@media print {", "@media screen {");
    fs::write(&wrapper, FRAMES_PAGE.replace("PAGE", &escaped).replace("PRINT", &printed)).unwrap();
    let Output { stdout, stderr, status } = open(browser, directory, &wrapper);
    let [stdout, stderr] =
        [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(status.success(), "{status}: {stderr}");
    // The one console line from the frames page proves that other lines would be seen.
    let console: Vec<&str> = stderr.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.len() == 1 && console[0].contains("checked"), "{console:?}");
    let found = stdout.split_once("<pre>").and_then(|(_, rest)| rest.split_once("</pre>"));
    let found = found.unwrap_or_else(|| panic!("no findings in {stdout}: {stderr}")).0;
    let found: Value =
        serde_json::from_str(found).unwrap_or_else(|error| panic!("{error}: {found}"));
    assert_eq!(found["703"]["cut"], 0, "something is cut off on paper: {found}");
    for width in ["360", "703", "1200"] {
        let frame = &found[width];
        assert_eq!(frame["overflow"], 0, "wider than {width} pixels: {found}");
        let marks = frame["marks"].as_array().unwrap();
        assert_eq!(marks.len(), charts, "{found}");
        assert!(marks.iter().all(|marks| marks.as_u64() > Some(0)), "a chart is empty: {found}");
        assert_eq!(frame["colourless"], 0, "{found}");
    }
}

/// A page that shows the tested page in frames and reports what it measures. A mark counts if it
/// has an extent; `colourless` counts marks without a colour.
const FRAMES_PAGE: &str = r#"<!DOCTYPE html><body><pre></pre>
<iframe width="360" height="800" style="border:0" srcdoc="PAGE"></iframe>
<iframe width="703" height="800" style="border:0" srcdoc="PRINT"></iframe>
<iframe width="1200" height="800" style="border:0" srcdoc="PAGE"></iframe>
<script>
const drawn = mark => { const box = mark.getBoundingClientRect(); return box.width + box.height > 0; };
const colour = mark => { const style = getComputedStyle(mark); return [style.fill, style.stroke]; };
const colourless = mark => colour(mark).every(value => value == "none" || value == "rgb(0, 0, 0)");
addEventListener("load", () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, root = page.documentElement;
    const marks = figure => [...figure.querySelectorAll("svg [class*='-s'], svg [class*='-h']")];
    const scrolled = [...page.querySelectorAll(".cells, .table")];
    const figures = [...page.querySelectorAll("figure:not(.matrix)")];
    found[frame.width] = {
      cut: scrolled.filter(box => box.scrollWidth > box.clientWidth).length,
      overflow: root.scrollWidth - root.clientWidth,
      marks: figures.map(figure => marks(figure).filter(drawn).length),
      colourless: figures.flatMap(marks).filter(colourless).length,
    };
  }
  document.querySelector("pre").textContent = JSON.stringify(found);
  console.log("checked");
});
</script>"#;

/// Options for running without a screen, as root, and with little shared memory. The browser prints
/// the page after its scripts have run.
const HEADLESS_OPTIONS: [&str; 6] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--dump-dom",
];

/// Returns the name of an installed browser that starts. Without one, prints that the test is
/// skipped.
pub(crate) fn find() -> Option<&'static str> {
    // An installed browser may still fail to start, for example in a container that denies it
    // system calls.
    let starts = |name: &&str| {
        let mut command = Command::new("timeout");
        command.args(["60", name]).args(HEADLESS_OPTIONS).arg("about:blank").stdin(Stdio::null());
        command.output().is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
    };
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(starts);
    if found.is_none() {
        skip!("no chromium that starts (Debian: apt-get install chromium)");
    }
    found
}

/// Opens a file in the browser, which prints the resulting page.
fn open(browser: &str, directory: &Path, file: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.args(["120", browser]).args(HEADLESS_OPTIONS);
    command.args(["--enable-logging=stderr", "--virtual-time-budget=5000"]);
    command.arg(format!("--user-data-dir={}", directory.join("profile").display()));
    command.arg(format!("file://{}", file.display())).stdin(Stdio::null()).output().unwrap()
}
