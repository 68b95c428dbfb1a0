//! `annulus contender`: jobs on standard input, figures on standard output.

use crate::common::{ANNULUS, drivers, run_contender};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn nop_contender_answers_each_job_and_ends_with_its_input() {
    if !drivers().contains(&"uring") {
        return;
    }
    for contender in ["ring", "lookup", "task"] {
        let (code, answers, _) = run_contender("nop", contender, "64 0.001\n1 0.001\n");
        assert_eq!((code, answers.lines().count()), (Some(0), 2), "{contender}: {answers}");
        for answer in answers.lines() {
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
        let (code, answers, error) = run_contender("nop", "ring", question);
        assert_eq!((code, answers.as_str()), (Some(2), ""), "{question}");
        assert!(error.contains("ENTRIES SECONDS") && error.contains("32768"), "{error}");
    }
}

#[test]
fn file_contender_answers_each_job_refuses_invalid_ones_and_leaves_no_file() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("contender-file");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    for contender in ["threads", "tasks"] {
        let mut command = Command::new(ANNULUS);
        let command = command.args(["contender", "file", contender]).arg(&place);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
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
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "{contender}");
    }
    let mut unknown = Command::new(ANNULUS);
    let output = unknown.args(["contender", "file", "fibers"]).arg(&place).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
