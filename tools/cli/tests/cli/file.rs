//! File I/O: from the command line to the table, and nothing left behind.

use crate::common::{ANNULUS, Finished, OwnLock, annulus, drivers, finish};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory for a test, which must be empty at its end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let name = std::thread::current().name().unwrap_or("main").replace("::", "-");
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("files").join(name);
        fs::create_dir_all(&directory).unwrap();
        Place(directory)
    }

    fn bench(&self, args: &str) -> Command {
        let mut command = Command::new(ANNULUS);
        command.args(["bench", "file", "--dir"]).arg(&self.0).args(args.split_whitespace());
        command.own_lock();
        command
    }

    #[track_caller]
    fn is_clean(&self) {
        let left: Vec<_> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

#[test]
fn threads_and_tasks_are_compared_with_a_control_and_every_call_is_accounted_for() {
    for driver in drivers().into_iter().filter(|driver| *driver != "threads") {
        for policy in ["inline", "adaptive", "offload"] {
            let place = Place::new();
            let args = "-n 3 -c 5 -s 10000 --rounds 2 --json - --driver";
            let finished = finish(place.bench(args).args([driver, "--policy", policy]));
            assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
            let report = finished.json();
            let rows = report["results"].as_array().unwrap();
            let names: Vec<_> = rows.iter().map(|row| row["contender"].as_str().unwrap()).collect();
            assert_eq!(names, ["threads", "tasks"]);
            assert_eq!(report["controls"][0]["contender"], "threads (control)");
            assert!(
                rows.iter()
                    .all(|row| row["figures"]["cpu_seconds"]["value"].as_f64().unwrap() > 0.0)
            );
            let paths = &rows[1]["figures"];
            let count = |way: &str| paths[way]["value"].as_f64().unwrap();
            // Two rounds of three workers with five cycles each.
            let calls = f64::from(2 * 3 * 5 * 3);
            assert_eq!(count("inline") + count("ring") + count("worker"), calls, "{paths}");
            match policy {
                "inline" => assert_eq!(count("inline"), calls),
                "offload" => assert_eq!(count("inline"), 0.0),
                _ => {}
            }
            place.is_clean();
        }
    }
}

#[test]
fn a_single_contender_prints_the_published_form() {
    for mode in ["threads", "tasks"] {
        let place = Place::new();
        let finished = finish(&mut place.bench(&format!("-n 2 -c 3 -s 4K --mode {mode}")));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
        for part in [
            &format!(
                "Benchmarking read write files with {mode} with params:\n[2 {mode}, 3 IO cycles per"
            ),
            "4096 bytes per IO]",
            "seconds CPU time",
            "seconds real time",
        ] {
            assert!(finished.stdout.contains(part), "{part} is not in:\n{}", finished.stdout);
        }
        assert!(!finished.stdout.contains('÷'), "{}", finished.stdout);
        place.is_clean();
    }
}

#[test]
fn invalid_values_are_refused_in_one_line() {
    let wrong = |args: &str| -> Finished {
        annulus(["bench", "file"].into_iter().chain(args.split_whitespace()))
    };
    for (args, parts) in [
        ("-n 0", &["'0'", "1..=10000"][..]),
        ("-s 0", &["0 bytes"]),
        ("-s 4Q", &["'4Q'", "16K"]),
        ("--policy lazy", &["`lazy`", "adaptive"]),
        ("--mode fibers", &["'fibers'", "tasks"]),
        ("--dir /nowhere/at/all", &["--dir /nowhere/at/all", "choose a directory"]),
        ("--dir /proc/self", &["--dir /proc/self: cannot make a directory", "choose another"]),
        ("-n 64 -s 64G", &["64 workers × 64G", "memory", "fewer or smaller"]),
        ("--pattern dance", &["`dance`", "randread"]),
        ("--pattern read -s 1000", &["-s 1000", "512"]),
        ("--pattern read --beside tokio", &["tokio", "not with --pattern"]),
        ("--beside fio", &["fio", "only with --pattern"]),
        ("--pattern send --direct", &["--direct", "not with --pattern send"]),
        ("--contender tasks", &["--dir"]),
        ("--contender tasks --dir /tmp --pattern send", &["--peer-end"]),
    ] {
        wrong(args).fails_with(2, parts);
    }
}

#[test]
fn a_file_is_no_directory() {
    let place = Place::new();
    let file = place.0.join("file");
    fs::write(&file, b"").unwrap();
    let finished = finish(
        Command::new(ANNULUS).args(["bench", "file", "-c", "1", "--dir"]).arg(&file).own_lock(),
    );
    fs::remove_file(&file).unwrap();
    finished.fails_with(2, &["--dir", "Not a directory"]);
}

#[test]
fn a_full_disk_is_reported_and_the_files_are_removed() {
    let place = Place::new();
    // A limit on the size of the process's files stands in for a full disk.
    let script = format!(
        "ulimit -f 8; exec {ANNULUS} bench file --mode tasks -n 1 -c 1 -s 64K --dir {}",
        place.0.display()
    );
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("trap '' XFSZ; {script}")]).own_lock();
    let finished = finish(&mut command);
    finished.fails_with(1, &["tasks", "cannot make the files", "File too large"]);
    place.is_clean();
}

#[test]
fn blocks_are_read_written_and_verified_in_every_order() {
    for pattern in ["read", "write", "randread", "randwrite", "mixed"] {
        let place = Place::new();
        let args = "--depth 3 --file-size 1M --seconds 20ms --rounds 1 --json - --pattern";
        let finished = finish(place.bench(args).arg(pattern));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
        for row in finished.json()["results"].as_array().unwrap() {
            for metric in ["rate", "mb_per_second", "cpu_us", "real_us", "p50_us", "p99_us"] {
                assert!(row["figures"][metric]["value"].as_f64().unwrap() > 0.0, "{row}");
            }
        }
        place.is_clean();
    }
}

#[test]
fn whole_files_are_moved_both_ways_and_verified() {
    for pattern in ["send", "receive"] {
        let place = Place::new();
        // Neither the file nor the pieces are multiples of the peer end's pieces.
        let args = "--depth 2 --file-size 1500K -s 7K --seconds 20ms --rounds 1 --json - --pattern";
        let finished = finish(place.bench(args).arg(pattern));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
        for slice in finished.json()["samples"].as_array().unwrap() {
            let number = |name: &str| slice["sample"][name].as_f64().unwrap();
            let (files, bytes) = (number("operations"), number("bytes"));
            assert!(files >= 2.0 && bytes == files * 1500.0 * 1024.0, "{slice}");
        }
        place.is_clean();
    }
}

#[test]
fn direct_io_never_runs_on_the_loop() {
    let place = Place::new();
    let args = "--pattern randread --direct --depth 4 --file-size 1M --seconds 20ms --json -";
    let finished = finish(place.bench(args).args(["--mode", "tasks"]));
    if finished.stderr.contains("cannot open the file for direct I/O") {
        return println!("skipped: no direct I/O in the directory for temporary files");
    }
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    let sample = finished.json()["samples"][0]["sample"].clone();
    let number = |name: &str| sample[name].as_f64().unwrap();
    assert_eq!(number("ring") + number("worker"), number("operations"), "{sample}");
    // On epoll, and if memory cannot be registered, none.
    let registered = number("registered");
    assert!(registered == 0.0 || registered == number("ring"), "{sample}");
    place.is_clean();
}

#[test]
fn blocks_written_by_fio_are_not_read_by_ours() {
    let place = Place::new();
    let args = "--pattern mixed --depth 4 --file-size 1M --seconds 50ms --rounds 2 --json -";
    let finished = finish(place.bench(args).args(["--mode", "tasks", "--beside", "fio"]));
    if finished.stderr.contains("fio is left out") {
        return println!("skipped: there is no fio");
    }
    let results = finished.json()["results"].clone();
    let failed: Vec<_> =
        results.as_array().unwrap().iter().map(|row| row["failed"].clone()).collect();
    assert_eq!(failed, [0, 0], "{finished:?}");
    place.is_clean();
}

/// Interrupts a run of hours by these signals, after its files are made.
fn interrupt(place: &Place, signals: &[Signal]) -> Option<i32> {
    let mut command = place.bench("-n 4 -c 1000000 -s 4K --rounds 1000");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut words = BufReader::new(child.stderr.take().unwrap()).lines();
    let there = || {
        fs::read_dir(&place.0).unwrap().any(|directory| {
            fs::read_dir(directory.unwrap().path()).is_ok_and(|mut files| files.next().is_some())
        })
    };
    while !there() {
        std::thread::yield_now();
    }
    for (index, &signal) in signals.iter().enumerate() {
        kill_process(Pid::from_child(&child), signal).unwrap();
        if index == 0 {
            assert!(words.next().unwrap().unwrap().contains("once more stops at once"));
        }
    }
    child.wait().unwrap().code()
}

#[test]
fn a_run_that_is_stopped_at_once_leaves_no_file() {
    let place = Place::new();
    assert_eq!(interrupt(&place, &[Signal::INT, Signal::INT]), Some(130));
    place.is_clean();
    assert_eq!(interrupt(&place, &[Signal::TERM, Signal::TERM]), Some(143));
    place.is_clean();
}

#[test]
fn a_contender_answers_each_job_and_refuses_invalid_ones() {
    let place = Place::new();
    for contender in ["threads", "tasks"] {
        let mut command = place.bench("--contender");
        let command = command.arg(contender).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"2 3 100\n1 1 1\nmany\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let answers = String::from_utf8(output.stdout).unwrap();
        let answers: Vec<serde_json::Value> =
            answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let operations: Vec<_> =
            answers.iter().map(|a| a["operations"].as_f64().unwrap()).collect();
        assert_eq!((output.status.code(), operations), (Some(2), vec![6.0, 1.0]), "{contender}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("'many' is not WORKERS CYCLES BYTES"), "{error}");
        place.is_clean();
    }
}
