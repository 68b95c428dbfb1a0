//! The program as it is started, with slices too short for figures that mean anything.

use std::process::{Command, Output};

fn compare(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annulus-compare"));
    command.args(words.split_whitespace()).output().expect("it starts")
}

#[test]
fn there_is_a_table_for_each_number_of_clients_and_a_sentence() {
    let output = compare("--clients 3,1 --bytes 100 --slice 5 --rounds 7");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in
        ["3 clients, 100 bytes, 6 rounds", "1 clients, 100 bytes, 7 rounds", "threads", "control"]
    {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("at 3 connections, on this machine"), "{text}");
    assert!(text.contains("bench echo"), "{text}");
}

#[test]
fn json_has_a_line_a_contender_and_nothing_else() {
    let output = compare("--clients 2 --slice 5 --rounds 6 --json");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(text.lines().count() >= 3, "{text}");
    for line in text.lines() {
        assert!(line.starts_with("{\"contender\": ") && line.ends_with('}'), "{line}");
        assert!(line.contains("\"clients\": 2") && line.contains("\"rounds\": 6"), "{line}");
    }
}

#[test]
fn a_wrong_word_is_a_usage_error() {
    let output = compare("--slice 0");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--slice 0: '0' is no number from 1 to 60000"), "{text}");
}
