//! Pages of results: files of every form, in a browser, and over HTTP.

use crate::browser;
use crate::common::{ANNULUS, Finished, Scratch, annulus};
use annulus_lab::bench::{
    Bench, Cell, Contenders, Measure, Metric, Observer, Outcome, Plan, Prepared, Role, Rounds,
    Sample, Slice, cpu, p99, requests,
};
use annulus_lab::process::Spec;
use annulus_lab::results;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Servers, each with its CPU time per request relative to the first.
const SERVER_CPU_RATIOS: [(&str, f64); 8] = [
    ("uring", 1.0),
    ("epoll", 1.03),
    ("threads", 1.6),
    ("tokio", 1.31),
    ("monoio", 1.12),
    ("asio", 1.25),
    ("netpoll", 2.4),
    ("go", 3.3),
];

/// Returns a bench with the first `servers` servers and a missing one. Its five cells are two
/// numbers of clients with each of two sizes, and one other combination.
fn bench(servers: usize, rounds: usize) -> Bench {
    let cell = |clients: u64, bytes: u64| {
        Cell::new([("connections", clients.into()), ("bytes", bytes.into())])
    };
    let found =
        SERVER_CPU_RATIOS[..servers].iter().map(|(name, _)| Ok(Ok(Spec::of(name, "/bin/true"))));
    let missing = "no peer 'nginx': nginx is not installed (Debian: apt-get install nginx)";
    let found = found.chain([Ok(Err(missing.to_owned()))]);
    let mut cells: Vec<Cell> =
        [128, 16384].iter().flat_map(|&b| [1, 1000].map(|c| cell(c, b))).collect();
    cells.push(cell(10, 1 << 20));
    Bench {
        plan: Plan { name: "echo".into(), rounds: Rounds::fixed(rounds), seed: 1 },
        terms: " of 0.2 s, servers on core 0, load on core 1".into(),
        legend: String::new(),
        contenders: Contenders::gather(found, None).unwrap(),
        cells,
        metrics: vec![requests(), Metric { role: Role::Primary, ..cpu() }, p99()],
        sweep: None,
        idle: None,
        cores: None,
        parameters: Default::default(),
    }
}

/// Computes samples for this many servers and the control instead of measuring.
struct ComputedMeasure(usize);

impl Measure for ComputedMeasure {
    fn measure(&mut self, Slice { round, cell, contender }: Slice) -> Outcome {
        let (_, times) = SERVER_CPU_RATIOS[contender % self.0];
        let noise = 1.0 + ((round * 7 + contender * 3 + cell) % 13) as f64 / 130.0;
        let cpu = 9e3 * times.powf(1.0 + cell as f64 / 20.0) * noise;
        let mut sample =
            Sample::from([("operations", 1e4), ("cpu_ns", cpu * 1e4), ("ns", cpu * 1.1e4)]);
        sample.set("p99_us", cpu * (cell + 2) as f64 / 1e3);
        Ok(sample)
    }
}

/// Stops after the number of slices in the first field. The second field is the number so far.
struct StopAfter(usize, usize);

impl Observer for StopAfter {
    fn progress(&mut self, done: usize, _: usize) {
        self.1 = done;
    }

    fn is_stopped(&self) -> bool {
        self.1 >= self.0
    }
}

/// Writes a results file of two servers in five rounds with at most this many slices.
fn measure(path: &Path, until: usize) {
    measure_all(path, 2, 5, until);
}

fn measure_all(path: &Path, servers: usize, rounds: usize, until: usize) {
    let measure = Box::new(ComputedMeasure(servers));
    let prepared = Prepared { bench: bench(servers, rounds), measure, scratch: None };
    results::measure(prepared, None, path, &mut StopAfter(until, 0)).unwrap();
}

fn report(words: &[&Path]) -> Finished {
    annulus(["bench", "page"].iter().map(Path::new).chain(words.iter().copied()))
}

#[test]
fn results_become_pages_of_every_form_with_an_index() {
    let directory = Scratch::new("lab-report");
    measure(&directory.join("whole.jsonl"), usize::MAX);
    measure(&directory.join("part.jsonl"), 40);
    fs::write(directory.join("other.jsonl"), "{}\n").unwrap();
    let made = report(&[&directory]);
    made.fails_with(1, &["other.jsonl", "line 1"]);
    let pages: Vec<&str> = made.stdout.lines().collect();
    let expected = ["part.html", "whole.html", "index.html"];
    assert_eq!(pages, expected.map(|name| directory.join(name).display().to_string()));
    let text = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    let page = text("whole.html");
    for part in [
        "<title>whole</title>",
        "÷ its best rival in each cell",
        "nginx is not installed (Debian: apt-get install nginx)",
        "heat-h0 strong\">1.00<",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(text("whole.md").contains("| 1000 connections × 128 bytes"));
    assert_eq!(text("whole.csv").lines().count(), 1 + 5 * 3 * 3);
    let json: serde_json::Value = serde_json::from_str(&text("whole.json")).unwrap();
    assert_eq!(json["results"].as_array().unwrap().len(), 2 * 5);
    assert!(json.get("samples").is_none(), "samples belong in the results file only");
    assert!(text("part.html").contains("Unfinished: 40 of 75 slices."));
    let index = text("index.html");
    for part in ["<a href=\"part.html\">part</a>", "<b>other</b>", "cannot be read"] {
        assert!(index.contains(part), "{part} is not in {index}");
    }
    assert!(text("index.md").contains("- [part](part.md) (unfinished, began "));
    // Only the results and the files generated from them are left.
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 3 + 2 * 4 + 2);
}

#[test]
fn pages_are_written_to_the_out_directory() {
    let directory = Scratch::new("lab-report-out");
    let (file, out) = (directory.join("a/run.jsonl"), directory.join("pages/all"));
    measure(&file, 50);
    let made = report(&[&file, Path::new("--out"), &out]);
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""), "{made:?}");
    assert!(out.join("run.html").exists() && out.join("index.html").exists());
    assert_eq!(
        fs::read_dir(directory.join("a")).unwrap().count(),
        1,
        "something was written beside the results"
    );
    let again = report(&[&file, Path::new("--json"), Path::new("-")]);
    assert_eq!(again.code, Some(0), "{again:?}");
    let written = again.json();
    assert!(written.as_array().is_some_and(|paths| paths.len() == 2), "{written}");
    assert!(directory.join("a/run.md").exists());
    let other =
        report(&[&file, Path::new("--out"), &directory.join("csv"), Path::new("--forms=csv")]);
    let paths: Vec<&Path> = other.stdout.lines().map(Path::new).collect();
    let is_written = paths.len() == 2 && paths.iter().all(|path| path.exists());
    assert!(is_written && paths[0].ends_with("csv/run.csv"), "{other:?}");
}

#[test]
fn unusable_results_are_named_in_the_error() {
    let directory = Scratch::new("lab-report-errors");
    let [a, b] = ["a/run.jsonl", "b/run.jsonl"].map(|name| directory.join(name));
    measure(&a, 20);
    measure(&b, 20);
    let out = directory.join("out");
    report(&[&a, &b, Path::new("--out"), &out]).fails_with(2, &["would have one page, run.html"]);
    report(&[&a, &a]).fails_with(2, &["would have one page, run.html"]);
    report(&[&directory]).fails_with(2, &["no results (*.jsonl, *.jsonl.gz)", "lab-report-errors"]);
    report(&[&directory.join("none")])
        .fails_with(2, &["none does not exist", "results of annulus bench"]);
    fs::write(&out, "a file").unwrap();
    report(&[&a, Path::new("--out"), &out]).fails_with(1, &["cannot create", "out"]);
    fs::rename(&a, directory.join("a/index.jsonl")).unwrap();
    report(&[&directory.join("a")]).fails_with(2, &["index.jsonl", "rename the file"]);
    report(&[]).fails_with(2, &["DIR|FILE"]);
}

#[test]
fn a_browser_shows_the_chart_of_a_comparison() {
    let Some(browser) = browser::find() else { return };
    let directory = Scratch::new("lab-report-browser");
    measure_all(&directory.join("echo.jsonl"), 7, 6, usize::MAX);
    assert_eq!(report(&[&directory]).code, Some(0));
    let html = fs::read_to_string(directory.join("echo.html")).unwrap();
    // The page has one chart: the ratios, with one row per cell.
    browser::check(browser, &directory, &html, 1);
}

/// A running `annulus bench serve`.
struct ServeProcess {
    child: Child,
    address: String,
}

impl ServeProcess {
    fn start(directory: &Path) -> ServeProcess {
        let mut command = Command::new(ANNULUS);
        command.args(["bench", "serve", "--port", "0"]).arg(directory);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("annulus: http://").and_then(|rest| rest.split_once('/'));
        let address = address.unwrap_or_else(|| panic!("not a ready line: {line:?}")).0.to_owned();
        ServeProcess { child, address }
    }

    /// Requests a path with this Host header; returns the head and the body of the answer.
    fn ask(&self, path: &str, host: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// Returns the body of an existing page, and whether it reloads itself.
    fn page(&self, path: &str) -> (String, bool) {
        let (head, body) = self.ask(path, &self.address);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        (body, head.contains("Refresh: "))
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn unfinished_run_is_shown_and_reloaded_until_it_is_finished() {
    let directory = Scratch::new("lab-serve");
    let mut served = ServeProcess::start(&directory);
    assert!(served.page("/").1, "the page of an empty directory does not reload itself");
    let path = directory.join("a run.jsonl");
    measure(&path, 40);
    let (index, again) = served.page("/");
    assert!(again && index.contains("<a href=\"a%20run.html\">a run</a>"), "{index}");
    let (page, again) = served.page("/a%20run.html?x=1");
    assert!(again && page.contains("Unfinished: 40 of 75 slices."), "{page}");
    measure(&path, usize::MAX);
    let (page, again) = served.page("/a%20run.html");
    assert!(!again && !page.contains("Unfinished"), "{page}");
    assert!(served.page("/a%20run.md").0.starts_with("# a run\n"));
    assert!(served.page("/a%20run.csv").0.starts_with("contender,"));
    assert!(served.page("/a%20run.json").0.starts_with("{\n"));
    assert!(!served.page("/index.html").1);
    kill_process(Pid::from_child(&served.child), Signal::INT).unwrap();
    assert!(served.child.wait().unwrap().success());
}

#[test]
fn serve_shows_only_results_of_the_directory_and_only_to_this_machine() {
    let directory = Scratch::new("lab-serve-paths");
    measure(&directory.join("secret.jsonl"), 20);
    fs::create_dir(directory.join("shown")).unwrap();
    fs::write(directory.join("shown/notes.html"), "notes").unwrap();
    let served = ServeProcess::start(&directory.join("shown"));
    for path in [
        "/../secret.html",
        "/..%2fsecret.html",
        "/../../../../etc/passwd",
        "//etc/passwd",
        "/notes.html",
        "/shown/../notes.html",
        "/index.md",
        "/.html",
    ] {
        let (head, body) = served.ask(path, "localhost");
        assert!(head.starts_with("HTTP/1.1 404 Not Found"), "{path}: {head}");
        assert!(body.starts_with("no such run"), "{path}: {body}");
    }
    let (head, _) = served.ask("/", "example.org");
    assert!(head.starts_with("HTTP/1.1 403 Forbidden"), "{head}");
    fs::write(directory.join("shown/bad.jsonl"), "{}\n").unwrap();
    let (head, body) = served.ask("/bad.html", "127.0.0.1");
    assert!(head.starts_with("HTTP/1.1 500 ") && body.contains("line 1"), "{head}: {body}");
}

#[test]
fn serve_accepts_encoded_names_and_does_not_open_a_fifo() {
    let directory = Scratch::new("lab-serve-names");
    measure(&directory.join("tasks+threads.jsonl"), 20);
    let made = Command::new("mkfifo").arg(directory.join("pipe.jsonl")).status();
    assert!(made.unwrap().success());
    let served = ServeProcess::start(&directory);
    for path in ["/tasks+threads.html", "/tasks%2Bthreads.html"] {
        assert!(served.page(path).0.contains("tasks+threads"), "{path}");
    }
    assert!(!served.page("/").0.contains("pipe"));
}

#[test]
fn taken_port_and_missing_directory_are_named() {
    let directory = Scratch::new("lab-serve-errors");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let path = directory.to_str().unwrap();
    annulus(["bench", "serve", path, "--port", &port])
        .fails_with(1, &[&port, "another port", "--port"]);
    annulus(["bench", "serve", "/nowhere"]).fails_with(1, &["cannot read /nowhere"]);
}

/// The map of the kept results, and of a directory without any.
#[test]
fn map_draws_kept_results_without_measuring() {
    let directory = Scratch::new("lab-map");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let arguments = ["bench", "map", "--from"].map(Path::new);
    let run = |from: &Path, more: &[&Path]| {
        annulus(arguments.iter().copied().chain([from]).chain(more.iter().copied()))
    };
    let drawn = run(&kept, &[Path::new("--out"), &directory]);
    assert_eq!(drawn.code, Some(0), "{drawn:?}");
    assert!(drawn.stdout.starts_with("annulus needs "), "{drawn:?}");
    assert!(drawn.stdout.lines().all(|line| line.chars().count() <= 80), "{}", drawn.stdout);
    for part in ["static files", "\necho ", "÷ tokio", "monoio", "Linux "] {
        assert!(drawn.stdout.contains(part), "{part} is not in {}", drawn.stdout);
    }
    let picture = fs::read_to_string(directory.join("map.svg")).unwrap();
    assert!(picture.starts_with("<svg xmlns") && picture.contains("static files"), "{picture}");
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(directory.join("map.json")).unwrap()).unwrap();
    assert_eq!((&json["format"], &json["version"]), (&"annulus-lab-map".into(), &1.into()));
    let row = json["rows"].as_array().unwrap().iter().find(|row| row["run"] == "files").unwrap();
    assert!(row["marks"][0]["cost"]["median"].as_f64().unwrap() < 1.0, "{row}");
    let rows = ["--rows", "nothing"].map(Path::new);
    run(&kept, &rows).fails_with(2, &["unknown workload 'nothing': the map has static files"]);
    let empty = directory.join("empty");
    fs::create_dir(&empty).unwrap();
    run(&empty, &[]).fails_with(1, &["has no results of a row of the map", "no results"]);
}
