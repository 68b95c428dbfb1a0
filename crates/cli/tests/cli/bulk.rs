//! Bulk transfers: from the command line to the table.

use crate::common::{ANNULUS, OwnLock, annulus, ask, drivers, finish};
use std::process::Command;

#[test]
fn our_contenders_are_measured_side_by_side() {
    let contenders: Vec<&str> = match drivers().contains(&"uring") {
        true => vec!["uring", "epoll", "uring-single", "epoll-single"],
        false => vec!["epoll", "epoll-single"],
    };
    let names = contenders.join(",");
    let args = ["bench", "bulk", "--contenders", &names, "--rounds", "1", "--seconds", "20ms"];
    let finished = finish(Command::new(ANNULUS).args(args).args(["--json", "-"]).own_lock());
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    let report = finished.json();
    assert_eq!(report["settings"]["baseline"], contenders[0]);
    let cells = report["results"].as_array().unwrap();
    assert_eq!(cells.len(), contenders.len());
    for row in cells.iter().chain(report["controls"].as_array().unwrap()) {
        assert_eq!(
            (&row["cell"]["bytes"], &row["cell"]["window"]),
            (&1200.into(), &512.into()),
            "{row}"
        );
        for metric in
            ["rate", "mb_per_second", "sender_cpu_us", "receiver_cpu_us", "per_cpu_second"]
        {
            assert!(row["figures"][metric]["value"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn a_contender_answers_each_job_and_ends_with_its_input() {
    let (code, answers, _) = ask("bulk", "epoll", "1200 512 0.02\n65507 8 0.02\n");
    assert_eq!((code, answers.lines().count()), (Some(0), 2), "{answers}");
    for answer in answers.lines() {
        let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
        let number = |name: &str| answer[name].as_f64().unwrap();
        assert!(number("operations") > 0.0 && number("ns") > 0.0, "{answer}");
        assert!(number("lost") >= 0.0 && number("bytes") >= 1200.0, "{answer}");
    }
}

#[test]
fn invalid_values_are_refused_with_the_limits() {
    for question in ["many\n", "7 1 1\n", "65508 1 1\n", "8 0 1\n", "8 4097 1\n", "8 1 0\n"] {
        let (code, answers, error) = ask("bulk", "epoll", question);
        assert_eq!((code, answers.as_str()), (Some(2), ""), "{question}");
        assert!(error.contains("BYTES WINDOW SECONDS") && error.contains("65507"), "{error}");
    }
    assert_eq!(ask("bulk", "tokio", "").0, Some(2), "it is none of ours");
    annulus(["bench", "bulk", "--window", "0"]).fails_with(2, &["0", "1..=4096"]);
}
