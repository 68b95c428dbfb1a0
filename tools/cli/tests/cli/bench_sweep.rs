//! `annulus bench --sweep` with echo servers: which slices it measures, what it keeps, and wrong
//! usage. Figures depend on the machine and are not compared.

use crate::common::{ANNULUS, Finished, OwnLock, Scratch, finish};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// The cells that the tests measure: the peak and two shares of it.
const CELLS: &str = "/tcp × 2 connections × depth 1,/*× 50 % of peak,/*× 120 % of peak";

const LOAD: [&str; 4] = ["--load", "tcp://{address} -l 64", "--connections", "2"];

fn run(scratch: &Scratch, arguments: &[&str]) -> Finished {
    let mut run = Command::new(ANNULUS);
    run.arg("bench").args(arguments).current_dir(scratch).own_lock();
    run.args(["--out", "results", "--start-timeout", "20", "--duration", "0.5", "--share-cores"]);
    finish(&mut run)
}

fn servers() -> [String; 2] {
    ["epoll", "threads"]
        .map(|driver| format!("'{ANNULUS}' echo --listen 127.0.0.1:{{port}} --driver {driver}"))
}

/// Returns the slices of a results file as (cell, contender, round), in the order of measuring.
fn slices(text: &str) -> Vec<(u64, u64, u64)> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let slice = |line: Value| {
        let slice = line.get("slice")?;
        Some(["cell", "contender", "round"].map(|key| slice[key].as_u64().unwrap()).into())
    };
    lines.filter_map(slice).collect()
}

#[test]
fn sweep_measures_peaks_first_and_resumes_at_the_same_rates() {
    let scratch = Scratch::new("sweep");
    let [first, second] = servers();
    let names = ["--name", "one,two", "--rounds", "2", "--only", CELLS];
    let sweep = ["--sweep", "--limit", "p99<5s"];
    let arguments = [&[&*first, &*second][..], &LOAD, &names, &sweep].concat();
    let finished = run(&scratch, &arguments);
    // On a busy machine, a slice may fail because nothing was answered.
    assert!(matches!(finished.code, Some(0 | 1)), "{finished:?}");
    for part in ["p99 below 5 s", "one: peak ", "two: peak ", "120 %", "due/s", "answered/s"] {
        assert!(finished.stdout.contains(part), "'{part}' is not in {finished:?}");
    }
    let path = scratch.path("results/one+two.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let all = slices(&text);
    // Two servers and the control, in three cells and two rounds.
    assert_eq!(all.len(), 3 * 3 * 2);
    assert!(
        all[..6].iter().all(|slice| slice.0 == 0),
        "the peaks were not measured first: {all:?}"
    );
    assert!(all[6..].iter().all(|slice| slice.0 != 0), "{all:?}");
    let json = fs::read_to_string(scratch.path("results/one+two.json")).unwrap();
    let report: Value = serde_json::from_str(&json).unwrap();
    let curves = report["sweep"]["curves"].as_array().unwrap();
    assert_eq!((curves.len(), &report["sweep"]["limit"]), (3, &"p99<5s".into()));
    for curve in curves {
        let points = curve["points"].as_array().unwrap();
        let percents: Vec<_> = points.iter().map(|point| point["percent"].as_u64()).collect();
        assert_eq!(percents, [Some(50), Some(120)], "{curve}");
        let host = if curve["is_control"] == true { &curves[0] } else { curve };
        let offered = |point: usize| points[point]["offered"].as_f64().unwrap();
        let expected = host["peak"].as_f64().unwrap() * 0.5;
        assert!((offered(0) / expected - 1.0).abs() < 1e-6, "{curve}");
    }
    let page = fs::read_to_string(scratch.path("results/one+two.html")).unwrap();
    for part in ["Latency against rate", "one p99", "two p50", "limit: p99"] {
        assert!(page.contains(part), "'{part}' is not on the page");
    }
    let csv = fs::read_to_string(scratch.path("results/one+two.csv")).unwrap();
    assert!(csv.starts_with("contender,load,connections,depth,% of peak,metric,"), "{csv}");
    assert!(csv.lines().any(|line| line.starts_with("two,tcp,2,1,120,offered,")), "{csv}");

    // Keeps only the header and the first 12 slices. The resumed run must not change these slices,
    // and must measure the others.
    let kept: Vec<&str> = text.lines().take(1 + 12).collect();
    fs::write(&path, kept.join("\n") + "\n").unwrap();
    let other = [&[&*first, &*second][..], &LOAD, &names, &["--sweep"]].concat();
    run(&scratch, &other).fails_with(2, &["has the results of another run: sweep.limit"]);
    let resumed = run(&scratch, &arguments);
    assert!(matches!(resumed.code, Some(0 | 1)), "{resumed:?}");
    let again = fs::read_to_string(&path).unwrap();
    assert!(again.starts_with(&kept.join("\n")), "kept slices have changed");
    let [mut before, mut after] = [all, slices(&again)];
    before.sort_unstable();
    after.sort_unstable();
    assert_eq!(before, after);
}

/// Ends once it has accepted nine connections, which is before the last slice.
const DYING_SERVER: &str = "import os, socket, sys, threading
def serve(s):
    while True:
        data = s.recv(64)
        if not data: return
        s.sendall(data)
l = socket.socket(); l.bind(('127.0.0.1', int(sys.argv[1]))); l.listen()
for n in range(9): threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
os._exit(7)
";

#[test]
fn server_that_dies_in_the_sweep_breaks_the_limit_and_the_rest_is_measured() {
    if !crate::common::has_python() {
        return;
    }
    let scratch = Scratch::new("sweep-dies");
    fs::write(scratch.path("dies.py"), DYING_SERVER).unwrap();
    let [first, _] = servers();
    let names = ["--name", "lives,dies", "--rounds", "1", "--only", CELLS];
    let server = "python3 dies.py {port}";
    let sweep = ["--sweep", "--limit", "p99<5s"];
    let finished = run(&scratch, &[&[&*first, server][..], &LOAD, &names, &sweep].concat());
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert!(finished.stderr.contains("lives+dies: dies failed in "), "{finished:?}");
    assert!(finished.stderr.contains("failed: lives+dies"), "{finished:?}");
    let text = fs::read_to_string(scratch.path("results/lives+dies.jsonl")).unwrap();
    assert_eq!(slices(&text).len(), 3 * 3, "{text}");
    assert!(text.contains("ended (exit status: 7)"), "{text}");
}

#[test]
fn wrong_usage_of_a_sweep_says_what_to_write() {
    let scratch = Scratch::new("sweep-usage");
    let server = "sleep 1 {port}";
    let command = ["--load-command", "wrk -c {connections} http://{address}/", "--sweep"];
    for (arguments, parts) in [
        (
            &["--load", "tcp://{address}", "--limit", "p99<5ms"][..],
            &["--limit does nothing without --sweep"][..],
        ),
        (&["--load", "tcp://{address}", "--sweep", "--rate", "5"], &["leave out --rate"]),
        (
            &["--load", "tcp://{address} --rate 5", "--sweep"],
            &["a sweep chooses the rates: remove --rate"],
        ),
        (&command, &["write --load instead of --load-command"]),
        (&["--load", "tcp://{address}", "--sweep", "--precision", "0.1"], &["choose --rounds"]),
        (
            &["--load", "tcp://{address}", "--sweep", "--limit", "p99<5"],
            &["--limit: 'p99<5': a time needs a unit"],
        ),
        (
            &["--load", "tcp://{address}", "--sweep", "--limit", "errors<1%"],
            &["does not measure errors: use mean, p50, p99, p99.9"],
        ),
        (
            &["--load", "tcp://{address}", "--sweep", "--limit", "p95<5ms"],
            &["does not measure p95"],
        ),
        (
            &["--load", "tcp://{address}", "--sweep", "--limit", "p99<1s,p50<1s"],
            &["write only one"],
        ),
        (
            &["--load", "tcp://{address}", "--sweep", "--only", "/*50 % of peak"],
            &["a sweep needs the peak", "add '/tcp × 50 connections × depth 1' to --only"],
        ),
    ] {
        run(&scratch, &[&[server], arguments].concat()).fails_with(2, parts);
    }
    run(&scratch, &["nop", "--sweep"]).fails_with(2, &["--sweep does nothing without --load"]);
}
