//! Published tables, measured again: the list, the errors, and small suites.

use crate::common::{ANNULUS, Finished, OwnLock, annulus, drivers, finish};
use std::fs;
use std::path::Path;
use std::process::Command;

const HEAD: &str = r#"
title = "small"
document = "none"
machine = ["paper"]
commands = []
"#;

/// Runs a suite with this text from a directory of its own.
fn suite(test: &str, text: &str, args: &[&str]) -> Finished {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("suite-{test}"));
    fs::create_dir_all(directory.join("suites")).unwrap();
    fs::write(directory.join("suites/small.toml"), format!("{HEAD}{text}")).unwrap();
    let mut command = Command::new(ANNULUS);
    command.args(["bench", "suite", "small"]).args(args).current_dir(&directory).own_lock();
    let finished = finish(&mut command);
    fs::remove_dir_all(directory).unwrap();
    finished
}

#[test]
fn all_suites_are_listed_with_their_documents() {
    let finished = annulus(["bench", "suite", "--list"]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    let names: Vec<&str> =
        finished.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let all = ["bench-echo", "fibers", "file", "go-uring", "nop", "op-modes", "tcp", "udp"];
    assert_eq!(names, all);
    assert!(finished.stdout.contains("TCP echo (003: nimuring, TCP)"), "{}", finished.stdout);
    assert!(finished.stdout.lines().all(|line| line.chars().count() <= 80), "{}", finished.stdout);
}

#[test]
fn the_error_for_an_unknown_suite_lists_all_names() {
    annulus(["bench", "suite", "nope"]).fails_with(2, &["'nope'", "bench-echo, fibers", "udp"]);
    annulus(["bench", "suite"]).fails_with(2, &["NAME", "--help"]);
    let nowhere = finish(Command::new(ANNULUS).args(["bench", "suite", "nop"]).current_dir("/"));
    nowhere.fails_with(1, &["no directory 'suites'", "within the repository"]);
}

#[test]
fn an_invalid_suite_is_an_error_of_one_line() {
    suite("broken", "kind = \"dance\"", &[])
        .fails_with(1, &["suite small", "unknown variant `dance`"]);
}

#[test]
fn an_echo_suite_prints_measured_and_published_figures() {
    let text = r#"kind = "echo"
        [[table]]
        title = "a table"
        unit = "requests/s"
        corner = "clients"
        each = { figure = "rate", bytes = 16 }
        columns = [{ name = "1", clients = 1 }, { name = "2", clients = 2 }]
        rows = [
            { name = "a thread each", servers = ["threads"], published = [1234] },
            { name = "missing", servers = ["tokyo"] },
        ]"#;
    let finished = suite("echo", text, &["--rounds", "3", "--quick"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    // The widths of the columns depend on the figures.
    let words = finished.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "a table, requests/s clients 1 2 a thread each published 1,234 – threads ",
        "missing tokyo – –",
        "! no server 'tokyo' in this version",
        "quick",
    ] {
        assert!(words.contains(part), "{part} is not in:\n{}", finished.stdout);
    }
    let finished = suite("echo-json", text, &["--rounds", "3", "--quick", "--json", "-"]);
    let row = &finished.json()["tables"][0]["rows"][0];
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
    let finished = suite("nop", text, &["--rounds", "1", "--quick", "--json", "-"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let report = finished.json();
    let figures = &report["tables"][0]["rows"][0]["measured"][0]["figures"];
    assert!(figures[0].as_f64().unwrap() > 0.0 && figures[1].is_null(), "{figures}");
    assert_eq!(report["notes"][0], "no contender 'rio' in this version");
}

#[test]
fn a_connect_suite_has_times() {
    let text = r#"kind = "connect"
        [[table]]
        title = "a table"
        unit = "us"
        corner = "connections"
        each = { servers = ["threads"], bytes = 1000, clients = 3 }
        columns = [{ name = "avg", figure = "average" }, { name = "p99", figure = "p99" }]
        rows = [{ name = "3" }]"#;
    let finished = suite("connect", text, &["--rounds", "1", "--quick", "--json", "-"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let figures = finished.json()["tables"][0]["rows"][0]["measured"][0]["figures"].clone();
    let (average, p99) = (figures[0].as_f64().unwrap(), figures[1].as_f64().unwrap());
    assert!(0.0 < average && average <= p99, "{figures}");
}

#[test]
fn a_file_suite_has_seconds() {
    let text = r#"kind = "file"
        [[table]]
        title = "a table"
        unit = "seconds"
        corner = ""
        each = { clients = 2, bytes = 5000, cycles = 3 }
        columns = [{ name = "CPU", figure = "cpu_seconds" }, { name = "real", figure = "real_seconds" }]
        rows = [{ name = "fibers", servers = ["tasks"] }, { name = "other", servers = ["threads"] }]"#;
    let finished = suite("file", text, &["--rounds", "1", "--json", "-"]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    for row in finished.json()["tables"][0]["rows"].as_array().unwrap() {
        let figures = row["measured"][0]["figures"].as_array().unwrap();
        assert!(figures.iter().all(|seconds| seconds.as_f64().unwrap() > 0.0), "{row}");
    }
}

#[test]
fn a_udp_suite_has_rates_and_megabytes() {
    let text = r#"kind = "udp"
        [[table]]
        title = "a table"
        unit = ""
        corner = "bytes"
        each = { clients = 2 }
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
    let finished = suite("udp", text, &["--rounds", "3", "--json", "-"]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    let report = finished.json();
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
