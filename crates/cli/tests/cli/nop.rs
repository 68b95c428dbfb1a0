//! NOP throughput: from the command line to the table.

use crate::common::{ANNULUS, OwnLock, drivers, finish};
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn our_contenders_are_measured_side_by_side() {
    if !drivers().contains(&"uring") {
        return;
    }
    let args = "bench nop --contenders ring,lookup,task --entries 64,128 --rounds 1 --seconds 1ms";
    let said = finish(Command::new(ANNULUS).args(args.split(' ')).args(["--json", "-"]).own_lock());
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
    let report = said.json();
    assert_eq!(report["settings"]["against"], "ring");
    let cells = report["cells"].as_array().unwrap();
    let names: Vec<_> = cells.iter().map(|row| row["contender"].as_str().unwrap()).collect();
    assert_eq!(names, ["ring", "ring", "lookup", "lookup", "task", "task"]);
    for row in cells.iter().chain(report["controls"].as_array().unwrap()) {
        assert!(row["operations_per_second"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["cpu_ns_per_operation"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn a_contender_answers_each_question_and_ends_with_its_input() {
    if !drivers().contains(&"uring") {
        return;
    }
    for contender in ["ring", "lookup", "task"] {
        let (code, answers, _) = ask(contender, "64 0.001\n1 0.001\n");
        assert_eq!((code, answers.lines().count()), (Some(0), 2), "{contender}: {answers}");
        for answer in answers.lines() {
            let numbers: Vec<u64> = answer.split(' ').map(|n| n.parse().unwrap()).collect();
            assert!(numbers.len() == 3 && numbers[0] >= 64 && numbers[1] >= 1_000_000, "{answer}");
        }
    }
}

#[test]
fn a_question_that_makes_no_sense_is_refused_with_the_limit() {
    for question in ["many\n", "0 1\n", "32769 1\n", "64 -1\n", "64 x\n"] {
        let (code, answers, error) = ask("ring", question);
        assert_eq!((code, answers.as_str()), (Some(2), ""), "{question}");
        assert!(error.contains("ENTRIES SECONDS") && error.contains("32768"), "{error}");
    }
}

/// One of our contenders, asked; its status, its answers, and what it complained of.
fn ask(contender: &str, questions: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(ANNULUS);
    command.args(["bench", "nop", "--contender", contender]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(questions.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}
