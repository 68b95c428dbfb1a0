//! Runs the program with slices too short for meaningful figures.

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn compare(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annulus-compare"));
    command.args(words.split_whitespace()).output().expect("the program did not start")
}

#[test]
fn prints_a_table_for_each_workload_and_a_summary() {
    let output = compare("--connections 3,1 --bytes 100 --slice 5 --rounds 7");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "echo of 100 bytes\n3 connections, 6 rounds",
        "echo of 100 bytes\n1 connection, 7 rounds",
        "a file of 16 KiB in 16 pieces, epoll with blocking threads\n50 connections, 7 rounds",
        "threads",
        "control",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("for an echo at 3 connections, on this machine"), "{text}");
    assert!(text.contains("for files in pieces at 50 connections, on this machine"), "{text}");
    assert!(text.contains("bench echo"), "{text}");
}

#[test]
fn json_has_one_line_per_contender_and_nothing_else() {
    let output = compare("-c 2 --slice 5 --rounds 6 --only echo --json");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(text.lines().count() >= 3, "{text}");
    for line in text.lines() {
        assert!(line.starts_with("{\"contender\": ") && line.ends_with('}'), "{line}");
        assert!(line.contains("\"connections\": 2") && line.contains("\"rounds\": 6"), "{line}");
    }
}

#[test]
fn an_invalid_value_is_a_usage_error() {
    let output = compare("--slice 0");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--slice: '0' is not a number from 1 to 60000"), "{text}");
}

#[test]
fn a_closed_pipe_ends_the_program_without_a_panic() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annulus-compare"));
    let (reader, writer) = std::io::pipe().expect("the pipe cannot be created");
    drop(reader);
    command.arg("--help").stdout(writer).stderr(Stdio::piped());
    let output = command.output().expect("the program did not start");
    assert_eq!(output.status.code(), Some(141), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The interval of the ratio of CPU time per message, io_uring to epoll.
type Interval = (f64, f64);

fn ours() -> Interval {
    let output = compare("-c 50 --rounds 20 --only echo --json");
    let text = String::from_utf8(output.stdout).expect("the output is not UTF-8");
    let line =
        text.lines().find(|line| line.contains("io_uring")).expect("there is no line of io_uring");
    let line: serde_json::Value = serde_json::from_str(line).expect("the output is not JSON");
    let number = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("no {name}: {line}"));
    (number("low"), number("high"))
}

fn of_bench_echo() -> Interval {
    let words = "run --quiet --release -p annulus-cli -- bench echo --connections 50 --servers epoll,uring --rounds 20 --json -";
    let output =
        Command::new(env!("CARGO")).args(words.split(' ')).output().expect("cargo did not start");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("the output is not JSON");
    let results = report["results"].as_array().expect("there are no results");
    let uring = results
        .iter()
        .find(|result| result["contender"] == "uring")
        .expect("uring was not measured");
    let interval = &uring["figures"]["cpu_us"]["ratio"]["interval"];
    let number =
        |name: &str| interval[name].as_f64().unwrap_or_else(|| panic!("no {name}: {uring}"));
    (number("low"), number("high"))
}

/// Run with `--release`, so that both programs are optimised.
#[test]
#[ignore = "takes minutes on an otherwise idle machine"]
fn bench_echo_agrees() {
    let (ours, bench) = (ours(), of_bench_echo());
    println!("io_uring to epoll at 50 connections: {ours:?} here, {bench:?} by bench echo");
    assert!(ours.0 <= bench.1 && bench.0 <= ours.1, "{ours:?} and {bench:?} do not overlap");
}

#[test]
fn many_connections_are_opened_under_a_low_soft_limit() {
    let mut command = Command::new("/bin/sh");
    let script = "ulimit -S -n 64; exec \"$0\" -c 100 --slice 5 --rounds 6 --only echo --json";
    let output = command.args(["-c", script, env!("CARGO_BIN_EXE_annulus-compare")]).output();
    let output = output.expect("the shell did not start");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until a condition holds; returns false if it does not within a minute.
fn is_soon(mut is_true: impl FnMut() -> bool) -> bool {
    let now = || clock_gettime(ClockId::Monotonic).tv_sec;
    let end = now() + 60;
    while !is_true() {
        if now() > end {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn a_signal_leaves_neither_the_file_nor_a_server() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ended");
    _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the directory cannot be created");
    let mut command = Command::new(env!("CARGO_BIN_EXE_annulus-compare"));
    command.args(["-c", "1", "--slice", "60000"]).env("TMPDIR", &directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut program = command.spawn().expect("the program did not start");
    let list = format!("/proc/{0}/task/{0}/children", program.id());
    let children = || fs::read_to_string(&list).unwrap_or_default();
    let mut started = String::new();
    let are_started = is_soon(|| {
        started = children();
        started.split_whitespace().count() >= 6
    });
    assert!(are_started, "the servers did not start: {started}");
    kill_process(Pid::from_child(&program), Signal::INT).expect("the program has ended");
    program.wait().expect("the program cannot be waited for");
    let files = || fs::read_dir(&directory).expect("the directory cannot be read").count();
    assert!(is_soon(|| files() == 0), "the file is left");
    let is_gone = |pid: &str| !Path::new(&format!("/proc/{pid}/cwd")).exists();
    assert!(is_soon(|| started.split_whitespace().all(is_gone)), "a server is left");
}
