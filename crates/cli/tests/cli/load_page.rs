//! The page of a recording, in a browser too.

use crate::common::{Server, annulus};
use crate::recordings::{directory, recording, write};
use annulus_load::recording::{Recording, RunInfo};
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Makes the page of a recording by the command.
fn page(directory: &Path, recording: &Recording) -> String {
    let path = write(directory, "run.json", recording);
    let output = directory.join("page.html");
    let [path, output] = [path, output].map(|path| path.to_str().unwrap().to_owned());
    let made = annulus(["load", "page", &path, "-o", &output]);
    assert_eq!(
        (made.code, made.stdout.as_str(), made.stderr.as_str()),
        (Some(0), "", ""),
        "{made:?}"
    );
    let to_stdout = annulus(["load", "page", &path, "-o", "-"]).stdout;
    assert_eq!(to_stdout, fs::read_to_string(output).unwrap());
    to_stdout
}

#[test]
fn the_page_has_everything() {
    let html = page(&directory("page"), &recording(1, 1.0));
    for part in [
        "<title>a &lt;label&gt;</title>",
        "2026-09-21 14:13:20 UTC",
        "<dt>p99.9</dt>",
        "Latency by percentile",
        "Response time over time",
        "Heat map of response times",
        "Rate over time",
        "Failures over time",
        "99.999",
        "service time",
        "the load used 97% of its core",
        "measuring-host",
        "annulus load &#x27;http:&#x2f;&#x2f;h&#x2f;?a=1&amp;b=&lt;2&gt;&#x27; -t 30",
    ] {
        assert!(html.contains(part), "{part} is not on the page: {html}");
    }
    assert!(!html.contains("class=\"empty\"") && !html.contains("<script"));
}

#[test]
fn a_run_that_has_measured_nothing_has_a_page_that_says_so() {
    let html = page(&directory("page-empty"), &Recording::new(RunInfo::default()));
    assert_eq!(html.matches("Nothing was measured").count(), 5);
}

#[test]
fn a_run_leaves_its_page() {
    let (server, directory) = (Server::start(&[]), directory("page-of-run"));
    let address = server.address.to_string();
    let load = |options: &[&str]| {
        let short =
            ["load", "-a", &address, "-c", "2", "-t", "0.5", "--warm-up", "0", "--interval", "0.1"];
        annulus(short.iter().chain(options))
    };
    let path = directory.join("run.html").to_str().unwrap().to_owned();
    let made = load(&["--label", "a run", "--html", &path, "--live"]);
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""), "{made:?}");
    let html = fs::read_to_string(&path).unwrap();
    assert!(html.contains("<title>a run</title>") && html.contains("fill-h"), "{html}");
    assert!(!html.contains("class=\"empty\""), "a chart lacks data: {html}");
    let to_stdout = load(&["--html", "-"]);
    assert!(to_stdout.stdout.starts_with("<!DOCTYPE html>"), "{to_stdout:?}");
    assert!(to_stdout.stdout.ends_with("</html>\n"), "{to_stdout:?}");
    load(&["--html", "-", "--json", "-"]).fails_with(2, &["standard output takes one of"]);
    load(&["--html", "/nowhere/run.html"])
        .fails_with(1, &["/nowhere/run.html", "choose another file"]);
    let without = annulus(["load", "--per-connection", "--html", &path]);
    without.fails_with(2, &["--html is for runs that are recorded"]);
}

/// Charts have something in view, nothing is wider than a phone, and the browser has nothing to say.
#[test]
fn a_browser_shows_all_charts_at_any_width() {
    let Some(browser) = browser("a_browser_shows_all_charts_at_any_width") else { return };
    let directory = directory("page-browser");
    let html = page(&directory, &recording(1, 1.0));
    let wrapper = directory.join("frames.html");
    fs::write(&wrapper, FRAMES.replace("PAGE", &html.replace('&', "&amp;").replace('"', "&quot;")))
        .unwrap();
    let Output { stdout, stderr, status } = open(browser, &directory, &wrapper);
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
    for width in ["360", "1200"] {
        let frame = &found[width];
        assert_eq!(frame["overflow"], 0, "wider than {width} pixels: {found}");
        let marks = frame["marks"].as_array().unwrap();
        assert_eq!(marks.len(), 5, "{found}");
        assert!(marks.iter().all(|marks| marks.as_u64() > Some(0)), "a chart is empty: {found}");
        assert_eq!(frame["colourless"], 0, "{found}");
    }
}

/// The page in frames of two widths. A mark counts if it has an extent and a colour.
const FRAMES: &str = r#"<!DOCTYPE html><body><pre></pre>
<iframe width="360" height="800" style="border:0" srcdoc="PAGE"></iframe>
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
    const figures = [...page.querySelectorAll("figure")];
    found[frame.width] = {
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
const HEADLESS: [&str; 6] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--dump-dom",
];

/// The name of a browser that is there. If there is none, `test` is skipped, with a line past the capture of its output.
fn browser(test: &str) -> Option<&'static str> {
    // One that is installed may still not start, as in a container that forbids what it needs.
    let is_there = |name: &&str| {
        let mut command = Command::new("timeout");
        command.args(["60", name]).args(HEADLESS).arg("about:blank").stdin(Stdio::null());
        command.output().is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
    };
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(is_there);
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
    command.args(["120", browser]).args(HEADLESS);
    command.args(["--enable-logging=stderr", "--virtual-time-budget=5000"]);
    command.arg(format!("--user-data-dir={}", directory.join("profile").display()));
    command.arg(format!("file://{}", file.display())).stdin(Stdio::null()).output().unwrap()
}
