//! Contenders for files: the figures of jobs.

use crate::common::ANNULUS;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_contender_answers_each_job_refuses_invalid_ones_and_leaves_no_file() {
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
