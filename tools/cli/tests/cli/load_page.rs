//! The page of a recording, in a browser too.

use crate::browser;
use crate::common::{Server, annulus};
use crate::recordings::{directory, recording, write};
use annulus_load::recording::{Recording, RunInfo};
use std::fs;
use std::path::Path;

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
    let made = load(&["--label", "a run", "--html", &path]);
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
    let without = annulus(["load", "--find-rate", "p99<1ms", "--html", &path]);
    without.fails_with(2, &["--html is for runs that are recorded"]);
}

/// Charts have something in view, nothing is wider than a phone, and the browser has nothing to say.
#[test]
fn a_browser_shows_all_charts_at_any_width() {
    let Some(browser) = browser::find("a_browser_shows_all_charts_at_any_width") else { return };
    let directory = directory("page-browser");
    let html = page(&directory, &recording(1, 1.0));
    browser::check(browser, &directory, &html, 5);
}
