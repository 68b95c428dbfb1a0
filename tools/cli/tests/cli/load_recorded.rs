//! The files that `annulus load` leaves behind: the recording of a run, and the logs that it writes meanwhile.

use crate::common::Scratch;
use crate::common::{ANNULUS, Finished, PATIENCE, Server, annulus, free_address, runtime_drivers};
use annulus_load::clock;
use annulus_load::recording::{Latencies, Recording};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Command, Stdio};

fn load(server: &Server, args: &[&str]) -> Finished {
    let address = server.address.to_string();
    let short = ["load", "-a", &address, "-c", "3", "-l", "64", "--warm-up", "0"];
    annulus(short.iter().chain(args))
}

/// Reads a recording from standard output.
fn read(finished: &Finished) -> Recording {
    Recording::read(finished.stdout.as_bytes())
        .unwrap_or_else(|error| panic!("{error}: {finished:?}"))
}

#[test]
fn every_mode_of_the_load_is_recorded() {
    let server = Server::start(&[]);
    let ways = runtime_drivers().into_iter().map(|driver| vec!["--driver", driver]);
    for way in ways.chain([vec!["--threads", "2"], vec!["--rate", "500", "--pipeline", "4"]]) {
        let args = ["-t", "0.4", "--interval", "0.1", "--label", "a run", "--json", "-"];
        let finished = load(&server, &[&way[..], &args].concat());
        assert_eq!(
            (finished.code, finished.stderr.as_str()),
            (Some(0), ""),
            "{way:?}: {finished:?}"
        );
        let recording = read(&finished);
        let (total, run) = (recording.total(), &recording.run);
        assert!(total.answered > 0 && total.sent >= total.answered, "{way:?}: {total:?}");
        assert_eq!(total.answered, total.response.len(), "{way:?}");
        assert_eq!(total.answered, total.service.len(), "{way:?}");
        assert!(total.service.quantile(0.5) <= total.response.quantile(0.5), "{way:?}");
        assert_eq!(recording.summary().responses, finished.json()["responses"], "{way:?}");
        assert!(!recording.intervals.is_empty() && recording.intervals.len() <= 4, "{way:?}");
        let end = recording.intervals.last().unwrap().end();
        assert!(end <= recording.seconds + 1e-6, "{way:?}: {end} of {}", recording.seconds);
        assert_eq!((run.label.as_deref(), run.clients, run.length), (Some("a run"), 3, Some(64)));
        assert!(run.command.contains(&"--interval".into()) && run.started > 0.0, "{run:?}");
        let text = load(&server, &[&way[..], &["-t", "0.1"]].concat()).stdout;
        assert!(text.contains("requests/s") && text.contains("service"), "{way:?}: {text}");
    }
}

/// Datagrams, and a connection per message: the recording, the logs, the page and a comparison.
#[test]
fn every_workload_leaves_what_the_others_leave() {
    let mut command = Command::new(ANNULUS);
    let listens = ["--listen", "127.0.0.1:0", "--listen", "udp://127.0.0.1:0"];
    let server = Server::spawn(command.arg("echo").args(listens));
    let (_, udp) = server.ready.split_once(", udp://").unwrap();
    let udp = format!("udp://{}", udp.split(' ').next().unwrap());
    let tcp = server.address.to_string();
    let datagrams = ["load", "udp", "-a", &udp, "--window", "4", "-t", "0.4", "--warm-up", "0"];
    // None is given up, however slow the machine.
    let datagrams = [&datagrams[..], &["--timeout", "30s"]].concat();
    let connections = ["load", "-a", &tcp, "--per-connection", "--connections", "300"];
    for (name, way) in [("udp", &datagrams[..]), ("per-connection", &connections)] {
        let scratch = Scratch::new(&format!("workload-{name}"));
        let [json, hdr, html] =
            ["json", "hdr", "html"].map(|kind| scratch.path(&format!("{name}.{kind}")));
        let common = ["-c", "3", "-l", "64", "--interval", "0.1", "--label", name];
        let outputs = ["--json", &json, "--hdr", &hdr, "--html", &html];
        let finished = annulus(way.iter().chain(&common).chain(&outputs));
        assert_eq!((finished.code, &*finished.stderr), (Some(0), ""), "{name}: {finished:?}");
        let recording = Recording::open(&json).unwrap();
        let (total, run) = (recording.total(), &recording.run);
        assert_eq!(total.answered, total.response.len(), "{name}");
        assert_eq!((run.label.as_deref(), run.length), (Some(name), Some(64)));
        assert!(total.answered > 0 && total.bytes_sent == 64 * total.sent, "{name}: {total:?}");
        match total.datagrams {
            Some(counts) => {
                assert_eq!((name, counts.received, counts.lost), ("udp", total.sent, 0))
            }
            None => assert_eq!((name, total.answered), ("per-connection", 300)),
        }
        let phases = total.phases.as_ref().map(|phases| phases.close.len());
        assert_eq!(phases, (name == "per-connection").then_some(300));
        let log = fs::read_to_string(&hdr).unwrap();
        assert_eq!(rows(&log).count(), recording.intervals.len(), "{log}");
        assert!(log.contains("#[StartTime: "), "{log}");
        let page = annulus(["load", "page", &json, "-o", "-"]).stdout;
        assert_eq!(page, fs::read_to_string(&html).unwrap());
        assert!(page.contains(&run.workload.to_string()) && !page.contains("class=\"empty\""));
        let words = if name == "udp" { ["duplicated", "lost"] } else { ["connect", "close"] };
        assert!(words.iter().all(|word| page.contains(word)), "{name}");
        let compared = annulus(["load", "compare", &json, &json]);
        assert_eq!((compared.code, &*compared.stderr), (Some(0), ""), "{compared:?}");
        let rate = if name == "udp" { "echoes/s" } else { "all echo sync:" };
        assert!(finished.stdout.contains(rate), "{finished:?}");
    }
}

/// The lines of a log of HdrHistogram that have the response times of an interval.
fn rows(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
}

#[test]
fn a_log_is_written_while_the_run_lasts() {
    let (server, scratch) = (Server::start(&[]), Scratch::new("load-logs"));
    let [json, hdr] = ["a.json", "a.hdr"].map(|name| scratch.path(name));
    let args = ["-t", "0.5", "--interval", "0.1", "--json", &json, "--hdr", &hdr];
    let finished = load(&server, &args);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    let recorded = Recording::open(&json).unwrap().intervals.len();
    let log = fs::read_to_string(&hdr).unwrap();
    assert_eq!(rows(&log).count(), recorded, "{log}");
    let tagged = log.lines().filter(|line| line.starts_with("Tag=service,")).count();
    assert!(tagged > 0 && tagged <= recorded, "{log}");
    assert!(log.contains("#[StartTime: "), "{log}");
}

/// Every write to the device fails.
#[test]
fn a_full_disk_does_not_end_the_run() {
    let server = Server::start(&[]);
    let finished = load(&server, &["-t", "0.3", "--interval", "0.1", "--hdr", "/dev/full"]);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    let lines: Vec<_> = finished.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{finished:?}");
    assert!(
        lines[0].contains("cannot write /dev/full") && lines[0].contains("the run goes on"),
        "{lines:?}"
    );
    assert!(
        lines[1].contains("/dev/full lacks") && lines[1].contains("No space left"),
        "{lines:?}"
    );
    assert!(finished.stdout.contains("requests/s"), "{finished:?}");
    let finished = load(&server, &["-t", "0.1", "--json", "/dev/full"]);
    finished.fails_with(1, &["cannot write /dev/full", "No space left"]);
    assert!(finished.stdout.contains("requests/s"), "{finished:?}");
}

/// The limit on the size of files ends a write as a full disk does.
#[test]
fn a_log_that_was_cut_has_whole_rows_only() {
    let (server, scratch) = (Server::start(&[]), Scratch::new("load-cut"));
    let hdr = scratch.path("a.hdr");
    // A block has 512 bytes: the head and some rows. SIGXFSZ is ignored, so that the write fails instead.
    let script = format!(
        "trap '' XFSZ; ulimit -f 3; exec {ANNULUS} load -a {} -c 2 -t 1 --interval 0.1 --warm-up 0 --hdr {hdr}",
        server.address
    );
    let finished = crate::common::finish(Command::new("bash").args(["-c", &script]));
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert!(
        finished.stderr.contains("lacks") && finished.stderr.contains("File too large"),
        "{finished:?}"
    );
    let log = fs::read_to_string(&hdr).unwrap();
    assert!(log.ends_with('\n') && log.len() <= 3072, "{log}");
    assert!(rows(&log).all(|row| row.matches(',').count() == 3), "{log}");
}

#[test]
fn an_interrupted_run_is_kept_and_marked() {
    let (server, scratch) = (Server::start(&[]), Scratch::new("load-interrupted"));
    let [json, hdr] = ["a.json", "a.hdr"].map(|name| scratch.path(name));
    let address = server.address.to_string();
    let mut command = Command::new(ANNULUS);
    command.args([
        "load",
        "-a",
        &address,
        "-c",
        "2",
        "-t",
        "1h",
        "--warm-up",
        "0",
        "--interval",
        "0.05",
    ]);
    command.args(["--json", &json, "--hdr", &hdr]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    // Rows are written while it runs.
    let deadline = clock::now() + PATIENCE;
    while fs::read_to_string(&hdr).map_or(0, |log| rows(&log).count()) < 2 {
        assert_eq!(child.try_wait().unwrap(), None, "the load has ended");
        assert!(clock::now() < deadline, "no rows in {hdr}");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let recording = Recording::open(&json).unwrap();
    assert!(
        recording.interrupted && recording.doubts[0].contains("interrupted"),
        "{:?}",
        recording.doubts
    );
    assert!(recording.intervals.len() >= 2 && recording.total().answered > 0);
    let mut sum = Latencies::default();
    recording.intervals.iter().for_each(|interval| sum.add(&interval.response));
    assert_eq!(sum.len(), recording.total().answered);
    let log = fs::read_to_string(&hdr).unwrap();
    assert_eq!(rows(&log).count(), recording.intervals.len());
}

#[test]
fn options_of_recordings_need_a_run_that_is_recorded() {
    let address = free_address().to_string();
    let load = |args: &[&str]| annulus(["load", "-a", &address].iter().chain(args));
    load(&["--find-rate", "p99<1ms", "--label", "a"]).fails_with(2, &["--label", "--find-rate"]);
    load(&["--json", "-", "--hdr", "-"]).fails_with(2, &["standard output takes one of"]);
    load(&["--interval", "0"]).fails_with(2, &["a recorded interval of zero"]);
}
