//! Pages in a browser without a screen.

use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Asserts of a page in frames of two widths, and as it is printed, that it is not wider than they are, that it has so many charts, that each has
/// something in view, in colour, and that the browser has nothing to say.
pub(crate) fn check(browser: &str, directory: &Path, html: &str, charts: usize) {
    let wrapper = directory.join("frames.html");
    let escaped = html.replace('&', "&amp;").replace('"', "&quot;");
    // Print is laid out as on a screen of the width of a sheet.
    let printed = escaped.replace("@media screen and", "@media print and");
    let printed = printed.replace("@media print {", "@media screen {");
    fs::write(&wrapper, FRAMES_PAGE.replace("PAGE", &escaped).replace("PRINT", &printed)).unwrap();
    let Output { stdout, stderr, status } = open(browser, directory, &wrapper);
    let [stdout, stderr] =
        [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(status.success(), "{status}: {stderr}");
    // One line on the console, from here, shows that another would be seen.
    let console: Vec<&str> = stderr.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.len() == 1 && console[0].contains("checked"), "{console:?}");
    let found = stdout.split_once("<pre>").and_then(|(_, rest)| rest.split_once("</pre>"));
    let found = found.unwrap_or_else(|| panic!("no findings in {stdout}: {stderr}")).0;
    let found: Value =
        serde_json::from_str(found).unwrap_or_else(|error| panic!("{error}: {found}"));
    assert_eq!(found["703"]["cut"], 0, "on paper nothing can be scrolled: {found}");
    for width in ["360", "703", "1200"] {
        let frame = &found[width];
        assert_eq!(frame["overflow"], 0, "wider than {width} pixels: {found}");
        let marks = frame["marks"].as_array().unwrap();
        assert_eq!(marks.len(), charts, "{found}");
        assert!(marks.iter().all(|marks| marks.as_u64() > Some(0)), "a chart is empty: {found}");
        assert_eq!(frame["colourless"], 0, "{found}");
    }
}

/// The page in frames. A mark counts if it has an extent and a colour.
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

/// Without a screen, as root, and with little shared memory; the page it ends with is printed.
const HEADLESS_OPTIONS: [&str; 6] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--dump-dom",
];

/// The name of a browser that is there. If there is none, `test` is skipped, with a line past the capture of its output.
pub(crate) fn find(test: &str) -> Option<&'static str> {
    // One that is installed may still not start, as in a container that forbids what it needs.
    let starts = |name: &&str| {
        let mut command = Command::new("timeout");
        command.args(["60", name]).args(HEADLESS_OPTIONS).arg("about:blank").stdin(Stdio::null());
        command.output().is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
    };
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(starts);
    if found.is_none() {
        _ = writeln!(
            io::stderr(),
            "skipped: {test}: no chromium that starts (Debian: apt-get install chromium)"
        );
    }
    found
}

/// Opens a file, and prints what it has become.
fn open(browser: &str, directory: &Path, file: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.args(["120", browser]).args(HEADLESS_OPTIONS);
    command.args(["--enable-logging=stderr", "--virtual-time-budget=5000"]);
    command.arg(format!("--user-data-dir={}", directory.join("profile").display()));
    command.arg(format!("file://{}", file.display())).stdin(Stdio::null()).output().unwrap()
}
