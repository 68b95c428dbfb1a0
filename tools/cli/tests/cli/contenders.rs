//! `annulus contender`: jobs on standard input, figures on standard output.

use crate::common::{ANNULUS, Finished, Scratch, annulus, drivers, finished};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// Gives jobs to one of annulus's own contenders and waits until it ends.
fn run(contender: &[&str], jobs: &str) -> Finished {
    let mut command = Command::new(ANNULUS);
    command.arg("contender").args(contender);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Fails if the contender has already ended.
    let _ = child.stdin.take().unwrap().write_all(jobs.as_bytes());
    finished(child.wait_with_output().unwrap())
}

#[test]
fn nop_contender_answers_each_job_and_ends_with_its_input() {
    if !drivers().contains(&"uring") {
        return;
    }
    for contender in ["ring", "lookup", "task"] {
        let finished = run(&["nop", contender], "64 0.001\n1 0.001\n");
        assert_eq!((finished.code, finished.stdout.lines().count()), (Some(0), 2), "{finished:?}");
        for answer in finished.stdout.lines() {
            let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
            let number = |name: &str| answer[name].as_f64().unwrap();
            assert!(number("operations") >= 64.0 && number("ns") >= 1e6, "{answer}");
            assert!(number("cpu_ns") > 0.0, "{answer}");
        }
    }
}

#[test]
fn invalid_nop_job_is_refused_with_the_limit() {
    for question in ["many\n", "0 1\n", "32769 1\n", "64 -1\n", "64 x\n"] {
        let finished = run(&["nop", "ring"], question);
        finished.fails_with(2, &["ENTRIES SECONDS", "32768"]);
        assert_eq!(finished.stdout, "", "{question}");
    }
}

#[test]
fn file_contender_answers_each_job_refuses_invalid_ones_and_leaves_no_file() {
    let scratch = Scratch::new("contender-file");
    let place = scratch.to_str().unwrap();
    for contender in ["threads", "tasks"] {
        let finished = run(&["file", contender, place], "2 3 100\n1 1 1\nmany\n");
        finished.fails_with(2, &["'many' is not WORKERS CYCLES BYTES"]);
        let answers = finished.stdout.lines();
        let answers = answers.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let operations: Vec<_> = answers.map(|one| one["operations"].as_f64().unwrap()).collect();
        assert_eq!(operations, [6.0, 1.0], "{contender}");
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "{contender}");
    }
    assert_eq!(annulus(["contender", "file", "fibers", place]).code, Some(2));
}
