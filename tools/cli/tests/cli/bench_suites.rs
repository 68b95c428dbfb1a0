//! `annulus bench` with small suites: kept results, resumed runs, comparisons of runs, errors.

use crate::common::{ANNULUS, Finished, OwnLock, Scratch, annulus, drivers, finish};
use annulus_lab::results::Results;
use serde_json::Value;
use std::fs;
use std::process::Command;

const SUITE_HEAD: &str = r#"
title = "small"
document = "none"
machine = ["paper"]
commands = []
"#;

/// A table of a suite of kind `file`.
const FILE_TABLE: &str = r#"kind = "file"
    [[table]]
    title = "a table"
    unit = "seconds"
    corner = ""
    each = { workers = 2, bytes = 5000, cycles = 3 }
    columns = [{ name = "CPU", figure = "cpu_seconds" }, { name = "real", figure = "real_seconds" }]
    rows = [{ name = "fibers", servers = ["tasks"] }, { name = "other", servers = ["threads"] }]"#;

/// A test's directory with a suite file.
struct Directory(Scratch);

impl Directory {
    fn new(test: &str, text: &str) -> Directory {
        let directory = Scratch::new(&format!("lab-{test}"));
        fs::write(directory.join("small.toml"), format!("{SUITE_HEAD}{text}")).unwrap();
        Directory(directory)
    }

    /// Returns the command `annulus bench` with these arguments, run in the directory.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(ANNULUS);
        command.args(["bench"]).args(args).current_dir(&self.0).own_lock();
        command
    }

    fn run(&self, args: &[&str]) -> Finished {
        finish(&mut self.command(args))
    }

    fn results(&self, path: &str) -> Results {
        Results::read(&self.0.join(path)).unwrap()
    }
}

/// Runs a suite in its own directory; also returns its report if it was measured.
fn suite(test: &str, text: &str, args: &[&str]) -> (Finished, Option<Value>) {
    let directory = Directory::new(test, text);
    let finished = directory.run(&[&["small.toml", "--out", "out"], args].concat());
    let results = Results::read(&directory.0.join("out/small.jsonl")).ok();
    let report = results.map(|results| serde_json::to_value(results.suite().unwrap()).unwrap());
    (finished, report)
}

#[test]
fn list_shows_every_bench_with_its_size_and_time() {
    let finished = annulus(["bench", "list"]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    for part in
        ["\nnop         suite, nop ", "\nhttp        programs ", "TCP echo (003: nimuring, TCP)"]
    {
        assert!(finished.stdout.contains(part), "{part}: {}", finished.stdout);
    }
    assert!(finished.stdout.lines().all(|line| line.chars().count() <= 80), "{}", finished.stdout);
    let directory = Directory::new("listed", FILE_TABLE);
    let mut command = Command::new(ANNULUS);
    let listed = finish(command.args(["bench", "list", "small.toml"]).current_dir(&directory.0));
    assert!(
        listed.stdout.contains("suite, file") && listed.stdout.contains("small (none)"),
        "{listed:?}"
    );
}

#[test]
fn run_writes_json_without_text() {
    let directory = Directory::new("as-json", FILE_TABLE);
    fs::copy(directory.0.join("small.toml"), directory.0.join("other.toml")).unwrap();
    let reports = directory
        .run(&["small.toml", "other.toml", "--quick", "--out", "out", "--json", "-"])
        .json();
    let names = reports.as_array().unwrap().iter().map(|report| &report["settings"]["bench"]);
    assert_eq!(names.collect::<Vec<_>>(), ["suite small", "suite other"], "{reports}");
}

#[test]
fn build_builds_peers_or_leaves_them_out_and_shows_failures() {
    let directory = Directory::new("built", "");
    for (peer, script) in [
        ("good", "touch $1/good; echo $1/good"),
        ("lacks", "echo 'no cc: apt-get install gcc' >&2; exit 3"),
        ("broken", "echo 'x.c:1: first' >&2; echo 'x.c:2: second' >&2; exit 1"),
    ] {
        let peer = directory.0.join("tools/peers").join(peer);
        fs::create_dir_all(&peer).unwrap();
        fs::write(peer.join("build"), script).unwrap();
    }
    let build = |names: &[&str]| {
        let mut command = Command::new(ANNULUS);
        finish(command.args(["bench", "build"]).args(names).current_dir(&directory.0))
    };
    let finished = build(&["good", "lacks"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert!(
        finished.stdout.contains("built, ") && finished.stderr.contains("lacks (2 of 2)"),
        "{finished:?}"
    );
    assert!(finished.stdout.contains("left out: no cc: apt-get install gcc"), "{finished:?}");
    let finished = build(&[]);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert!(finished.stdout.contains("    x.c:1: first\n    x.c:2: second\n"), "{finished:?}");
    assert!(finished.stderr.contains("did not build: broken"), "{finished:?}");
    build(&["rust"]).fails_with(2, &["unknown peer 'rust': known peers are broken, good, lacks"]);
}

#[test]
fn error_for_an_unknown_name_lists_all_names() {
    annulus(["bench", "nope"]).fails_with(2, &["'nope'", "bench-echo, fibers", "http"]);
    annulus(["bench"]).fails_with(2, &["NAME", "--help"]);
    annulus(["bench", "nop", "nop"]).fails_with(2, &["'nop' is given twice"]);
    annulus(["bench", "all", "nop"])
        .fails_with(2, &["all nop: give all or quick without other names"]);
}

#[test]
fn invalid_suite_is_a_one_line_error() {
    let (finished, _) = suite("broken", "kind = \"dance\"", &[]);
    finished.fails_with(2, &["small.toml: line 6, `kind = \"dance\"`: unknown variant `dance`"]);
    for (cell, code, part) in [
        ("connections = 1, bites = 16", 2, "unknown field `bites`"),
        ("connections = 1", 2, "a × a needs connections and bytes"),
        ("connections = 0, bytes = 16", 2, "connections must be from 1 to "),
        ("connections = 1, bytes = 0", 2, "bytes per message must be from 1 to "),
        ("connections = 9000000, bytes = 16", 1, "no cell is left to measure: 9000000 connections"),
    ] {
        let text = format!(
            "kind = \"echo\"\n[[table]]\ntitle = \"t\"\nunit = \"\"\ncorner = \"\"\ncolumns = [{{ name = \"a\" }}]\n\
             rows = [{{ name = \"a\" }}]\neach = {{ figure = \"rate\", servers = [\"threads\"], {cell} }}\n"
        );
        suite("broken", &text, &["--rounds", "1"]).0.fails_with(code, &[part]);
    }
}

#[test]
fn echo_suite_prints_measured_and_published_figures() {
    let text = r#"kind = "echo"
        [[table]]
        title = "a table"
        unit = "requests/s"
        corner = "connections"
        each = { figure = "rate", bytes = 16 }
        columns = [{ name = "1", connections = 1 }, { name = "2", connections = 2 }]
        rows = [
            { name = "a thread each", servers = ["threads"], published = [1234] },
            { name = "missing", servers = ["tokyo"] },
        ]"#;
    let (finished, report) = suite("echo", text, &["--rounds", "3", "--quick"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    // Column widths depend on the figures.
    let words = finished.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "a table, requests/s connections 1 2 a thread each published 1,234 – threads ",
        "missing tokyo – –",
        "! no server 'tokyo' in this version",
        "quick",
    ] {
        assert!(words.contains(part), "{part} is not in:\n{}", finished.stdout);
    }
    let row = &report.unwrap()["tables"][0]["rows"][0];
    assert_eq!(row["published"][0], 1234.0);
    assert!(row["measured"][0]["figures"][1].as_f64().unwrap() > 0.0, "{row}");
}

#[test]
fn a_nop_suite_measures_its_contenders() {
    if !drivers().contains(&"uring") {
        return;
    }
    let text = r#"kind = "nop"
        [[table]]
        title = "a table"
        unit = "operations/s"
        corner = "Entries"
        each = { figure = "rate" }
        columns = [{ name = "ring", servers = ["ring"] }, { name = "rio", servers = ["rio"] }]
        rows = [{ name = "64", entries = 64, published = [5] }]"#;
    let (finished, report) = suite("nop", text, &["--rounds", "1", "--quick"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let report = report.unwrap();
    let figures = &report["tables"][0]["rows"][0]["measured"][0]["figures"];
    assert!(figures[0].as_f64().unwrap() > 0.0 && figures[1].is_null(), "{figures}");
    assert_eq!(report["notes"][0], "no contender 'rio' in this version");
}

#[test]
fn connect_suite_reports_times() {
    let text = r#"kind = "connect"
        [[table]]
        title = "a table"
        unit = "us"
        corner = "connections"
        each = { servers = ["threads"], bytes = 1000, connections = 3 }
        columns = [{ name = "avg", figure = "average" }, { name = "p99", figure = "p99" }]
        rows = [{ name = "3" }]"#;
    let (finished, report) = suite("connect", text, &["--rounds", "1", "--quick"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let figures = report.unwrap()["tables"][0]["rows"][0]["measured"][0]["figures"].clone();
    let (average, p99) = (figures[0].as_f64().unwrap(), figures[1].as_f64().unwrap());
    assert!(0.0 < average && average <= p99, "{figures}");
}

#[test]
fn file_suite_reports_seconds() {
    let (finished, report) = suite("file", FILE_TABLE, &["--rounds", "1"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    for row in report.unwrap()["tables"][0]["rows"].as_array().unwrap() {
        let figures = row["measured"][0]["figures"].as_array().unwrap();
        assert!(figures.iter().all(|seconds| seconds.as_f64().unwrap() > 0.0), "{row}");
    }
}

#[test]
fn udp_suite_reports_rates_and_megabytes() {
    let text = r#"kind = "udp"
        [[table]]
        title = "a table"
        unit = ""
        corner = "bytes"
        each = { connections = 2 }
        columns = [
            { name = "datagrams/s", figure = "rate" },
            { name = "MB/s", figure = "megabytes_per_second" },
            { name = "MB", figure = "megabytes" },
        ]
        rows = [
            { name = "1000", bytes = 1000, servers = ["auto"] },
            { name = "1024", bytes = 1024, servers = ["epoll", "epoll+outstanding=16"] },
            { name = "a thread each", bytes = 1024, servers = ["threads"] },
        ]"#;
    let (finished, report) = suite("udp", text, &["--rounds", "3"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let report = report.unwrap();
    let notes = report["notes"].to_string();
    for part in ["no server 'auto' in this version", "server 'threads' serves TCP only"] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    let measured = report["tables"][0]["rows"][1]["measured"].as_array().unwrap();
    assert_eq!(measured.len(), 2, "{measured:?}");
    for line in measured {
        let figure = |place: usize| line["figures"][place].as_f64().unwrap();
        assert!(figure(0) > 0.0, "{line}");
        assert!((figure(1) - figure(0) / 1024.0).abs() < 1e-6 * figure(1), "{line}");
        assert!((figure(2) - figure(1) * 30.0).abs() < 1e-6 * figure(2), "{line}");
    }
}

const NOP_TABLE: &str = r#"kind = "nop"
    [[table]]
    title = "a table"
    unit = "operations/s"
    corner = "Entries"
    each = { figure = "rate" }
    columns = [{ name = "ring", servers = ["ring"] }, { name = "task", servers = ["task"] }]
    rows = [{ name = "64", entries = 64 }, { name = "128", entries = 128 }]"#;

const NOP_ARGS: [&str; 5] = ["small.toml", "--only", "ring,task/64", "--rounds", "6"];

#[test]
fn truncated_run_resumes_and_a_finished_one_is_left_alone() {
    if !drivers().contains(&"uring") {
        return;
    }
    let directory = Directory::new("resumed", NOP_TABLE);
    let nop = |args: &[&str]| directory.run(&[&NOP_ARGS, args].concat());
    let first = nop(&["--out", "out"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    let path = directory.0.join("out/small.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    // Removes the last line, and cuts the line before it.
    let lines: Vec<&str> = whole.lines().collect();
    let kept = lines[..lines.len() - 2].join("\n") + "\n" + &lines[lines.len() - 2][..30];
    fs::write(&path, kept).unwrap();
    nop(&["--out", "out", "--seed", "2"]).fails_with(2, &["bench.seed is 1 in the file and 2 now"]);
    let second = nop(&["--out", "out"]);
    assert_eq!(second.code, Some(0), "{second:?}");
    let results = directory.results("out/small.jsonl");
    assert_eq!((results.record().slices().len(), results.resumed()), (18, 1));
    let third = nop(&["--out", "out"]);
    assert_eq!((third.code, &third.stdout), (Some(0), &second.stdout), "{third:?}");
    assert!(third.stdout.contains("Entries"), "{third:?}");
    let reports = nop(&["--out", "out", "--json", "-"]).json();
    assert_eq!(reports.as_array().map(Vec::len), Some(1), "{reports}");
    assert!(third.stderr.contains("is finished: remove it to measure again"), "{third:?}");
    // A run with another seed must not reuse the results.
    let other = nop(&["--out", "out", "--seed", "2"]);
    other.fails_with(
        2,
        &["small.jsonl has the results of another run: bench.seed is 1 in the file and 2 now"],
    );
}

#[test]
fn run_without_out_creates_a_new_directory() {
    if !drivers().contains(&"uring") {
        return;
    }
    let directory = Directory::new("dated", NOP_TABLE);
    for count in [1, 2] {
        let finished = directory.run(&NOP_ARGS);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        let made = fs::read_dir(directory.0.join("lab-results")).unwrap().count();
        assert_eq!(made, count, "{finished:?}");
    }
}

#[test]
fn file_that_is_not_a_results_file_is_not_overwritten() {
    let directory = Directory::new("other", FILE_TABLE);
    fs::create_dir(directory.0.join("out")).unwrap();
    fs::write(directory.0.join("out/small.jsonl"), "{}\n").unwrap();
    let args = ["small.toml", "--rounds", "1", "--out", "out"];
    directory
        .run(&args)
        .fails_with(1, &["small.jsonl: line 1 is not the header of a results file"]);
    assert_eq!(fs::read_to_string(directory.0.join("out/small.jsonl")).unwrap(), "{}\n");
}

/// Returns a results file in which all times of one contender are multiplied by `times`.
fn scale_times(text: &str, contender: u64, times: f64) -> String {
    let line = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        if value["slice"]["contender"] != contender {
            return format!("{line}\n");
        }
        for number in ["cpu_ns", "ns"] {
            let number = &mut value["slice"]["sample"][number];
            *number = (number.as_f64().unwrap() * times).into();
        }
        format!("{value}\n")
    };
    text.lines().map(line).collect()
}

#[test]
fn slower_run_is_worse_and_fails_the_exit_status() {
    let directory = Directory::new("compared", FILE_TABLE);
    let finished = directory.run(&["small.toml", "--rounds", "12", "--out", "old"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let old = fs::read_to_string(directory.0.join("old/small.jsonl")).unwrap();
    // The factors are far outside the noise, which `compare` estimates from the two halves of a
    // run.
    for (name, times) in [("worse", 20.0), ("better", 0.05)] {
        fs::create_dir(directory.0.join(name)).unwrap();
        // Contender 1 is threads; 0 is tasks, and 2 the control.
        fs::write(directory.0.join(name).join("small.jsonl"), scale_times(&old, 1, times)).unwrap();
    }
    let compare = |args: &[&str]| {
        let mut command = Command::new(ANNULUS);
        finish(command.args(["bench", "compare"]).args(args).current_dir(&directory.0))
    };
    compare(&["old", "worse", "--json", "none/out"]).fails_with(2, &["cannot write none/out"]);
    let same = compare(&["old", "old"]);
    assert_eq!(same.code, Some(0), "{same:?}");
    assert!(same.stdout.contains("figures 0 are worse and 0 better"), "{same:?}");
    let worse = compare(&["old", "worse"]);
    assert_eq!(worse.code, Some(1), "{worse:?}");
    assert!(worse.stderr.contains("worse than in the old run"), "{worse:?}");
    assert!(worse.stdout.contains("threads ") && worse.stdout.contains("20.0 ["), "{worse:?}");
    assert!(worse.stdout.lines().all(|line| line.chars().count() <= 80), "{worse:?}");
    let better = compare(&["old/small.jsonl", "better/small.jsonl", "--json", "-"]);
    assert_eq!(better.code, Some(0), "{better:?}");
    let json: Value = serde_json::from_str(&better.stdout).unwrap();
    assert_eq!(json["format"], "annulus-lab-comparison");
    let changes = json["comparisons"][0]["changes"].as_array().unwrap();
    let verdict = |name: &str| {
        let mut of = changes.iter().filter(|change| change["contender"] == name);
        of.next().unwrap()["verdict"].clone()
    };
    assert_eq!(verdict("threads"), "better");
    // The figures of `tasks` are equal. Whether the verdict is decided depends on the noise of the
    // machine.
    assert!(verdict("tasks") == "same" || verdict("tasks") == "undecided", "{better:?}");
}

#[test]
fn incomparable_runs_are_usage_errors() {
    let directory = Directory::new("incomparable", "");
    let empty = directory.0.join("empty");
    fs::create_dir(&empty).unwrap();
    fs::write(directory.0.join("other.jsonl"), "{}\n").unwrap();
    let compare = |args: &[&str]| {
        let mut command = Command::new(ANNULUS);
        finish(command.args(["bench", "compare"]).args(args).current_dir(&directory.0))
    };
    compare(&["empty", "empty"]).fails_with(2, &["no .jsonl or .jsonl.gz file of the same name"]);
    compare(&["empty", "other.jsonl"]).fails_with(2, &["give two files, or two directories"]);
    compare(&["other.jsonl", "other.jsonl"]).fails_with(2, &["other.jsonl", "line 1"]);
    compare(&["none.jsonl", "none.jsonl"]).fails_with(2, &["cannot read none.jsonl"]);
    compare(&["empty"]).fails_with(2, &["NEW"]);
}
