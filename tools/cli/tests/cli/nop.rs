//! Contenders for NOPs: the figures of jobs.

use crate::common::{ask, drivers};

#[test]
fn a_contender_answers_each_job_and_ends_with_its_input() {
    if !drivers().contains(&"uring") {
        return;
    }
    for contender in ["ring", "lookup", "task"] {
        let (code, answers, _) = ask("nop", contender, "64 0.001\n1 0.001\n");
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
fn an_invalid_job_is_refused_with_the_limit() {
    for question in ["many\n", "0 1\n", "32769 1\n", "64 -1\n", "64 x\n"] {
        let (code, answers, error) = ask("nop", "ring", question);
        assert_eq!((code, answers.as_str()), (Some(2), ""), "{question}");
        assert!(error.contains("ENTRIES SECONDS") && error.contains("32768"), "{error}");
    }
}
