//! `annulus load` and signals: the results so far are printed and marked, and the exit status
//! corresponds to the signal.

use crate::common::{ANNULUS, Finished, PATIENCE, finished, is_in_mask, runtime_drivers, serve};
use annulus_load::clock;
use annulus_load::recording::{Latencies, Recording};
use annulus_skip::skip;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of replies after which a test first interrupts the load. Usually the load is
/// measuring by then.
const MIN_REPLIES: u64 = 200;

/// Starts a load that writes its results as JSON to standard output.
fn start(args: &[&str]) -> Child {
    let mut command = Command::new(ANNULUS);
    command.arg("load").args(args).args(["--json", "-"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end_with(child: Child, signal: Signal) -> Finished {
    kill_process(Pid::from_child(&child), signal).unwrap();
    finished(child.wait_with_output().unwrap())
}

/// Starts a TCP server that counts its reads, and echoes the bytes if `answers`.
fn tcp_server(answers: bool) -> (String, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let address = serve(move |stream| echo(stream, answers, &counted));
    (address.to_string(), count)
}

fn echo(mut stream: TcpStream, answers: bool, count: &AtomicU64) {
    let mut buffer = [0; 4096];
    while let Ok(received @ 1..) = stream.read(&mut buffer) {
        count.fetch_add(1, Ordering::Relaxed);
        if answers && stream.write_all(&buffer[..received]).is_err() {
            return;
        }
    }
}

/// Like [`tcp_server`], but with datagrams.
fn udp_server(answers: bool) -> (String, Arc<AtomicU64>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = format!("udp://{}", socket.local_addr().unwrap());
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((received, from)) = socket.recv_from(&mut buffer) {
            counted.fetch_add(1, Ordering::Relaxed);
            if answers {
                let _ = socket.send_to(&buffer[..received], from);
            }
        }
    });
    (address, count)
}

fn await_count(count: &AtomicU64, enough: u64, load: &mut Child) {
    let deadline = clock::now() + PATIENCE;
    while count.load(Ordering::Relaxed) < enough {
        assert_eq!(load.try_wait().unwrap(), None, "the load has ended");
        assert!(clock::now() < deadline, "only {count:?} of {enough}");
        std::thread::yield_now();
    }
}

/// Returns every workload: its arguments, and whether it uses datagrams.
fn workloads() -> Vec<(Vec<&'static str>, bool)> {
    let long = ["-d", "1h", "--warm-up", "0", "-c", "2", "--interval", "10ms"];
    let tasks = runtime_drivers().into_iter();
    let mut workloads: Vec<_> =
        tasks.map(|driver| ([&long[..], &["--driver", driver]].concat(), false)).collect();
    workloads.push(([&long[..], &["--per-connection", "--threads", "2"]].concat(), false));
    workloads.push((long.into(), true));
    workloads
}

/// Interrupts a run after this many replies and returns its recording.
fn interrupt(
    way: &[&str],
    datagrams: bool,
    enough: u64,
    (signal, name, code): (Signal, &str, i32),
) -> Recording {
    let (address, count) = if datagrams { udp_server(true) } else { tcp_server(true) };
    let mut load = start(&[way, &[&address]].concat());
    await_count(&count, enough, &mut load);
    let finished = end_with(load, signal);
    finished.fails_with(code, &[&format!("interrupted by {name}"), "a part of the run"]);
    let recording = finished.recording();
    assert!(recording.interrupted && recording.errors.is_empty(), "{way:?}: {recording:?}");
    let warning = &recording.warnings[0];
    assert!(warning.contains("the run was interrupted"), "{way:?}: {warning}");
    let mut answered = Latencies::default();
    recording.intervals.iter().for_each(|interval| answered.add(&interval.response));
    assert_eq!(answered.len(), recording.total().answered, "{way:?}");
    recording
}

#[test]
fn interrupted_load_prints_results_so_far_and_exits_with_the_signals_status() {
    let signals = [
        (Signal::INT, "SIGINT", 130),
        (Signal::TERM, "SIGTERM", 143),
        (Signal::HUP, "SIGHUP", 129),
    ];
    let ignored = is_in_mask("SigIgn", std::process::id(), Signal::HUP);
    let signals = if ignored { &signals[..2] } else { &signals };
    if ignored {
        skip!("SIGHUP is ignored here, and the load inherits that");
    }
    for (way, datagrams) in workloads() {
        for &signal in signals {
            // Replies before the measured time do not count, and no event shows when that time
            // starts.
            let has_some = |enough| {
                let recording = interrupt(&way, datagrams, enough, signal);
                recording.total().answered > 0 && recording.seconds > 0.0
            };
            let mut more = (0..12).map(|doublings| MIN_REPLIES << doublings);
            assert!(more.any(has_some), "{way:?}: nothing was measured");
        }
    }
}

#[test]
fn table_of_an_interrupted_load_says_so() {
    let (address, count) = tcp_server(true);
    let mut command = Command::new(ANNULUS);
    command.args(["load", &address, "-d", "1h", "--warm-up", "0", "-c", "2"]);
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut load = command.spawn().unwrap();
    await_count(&count, 20 * MIN_REPLIES, &mut load);
    let finished = end_with(load, Signal::INT);
    for part in ["requests/s", "p99.9", "warning      the run was interrupted after"] {
        assert!(finished.stdout.contains(part), "'{part}' is not in {finished:?}");
    }
    assert_eq!(finished.code, Some(130));
}

/// The schedule of an open loop goes on during the warm-up.
#[test]
fn load_interrupted_during_the_warm_up_has_measured_nothing() {
    for schedule in [&["--rate", "500"][..], &["--rate", "500", "--arrivals", "poisson"], &[]] {
        let (address, count) = tcp_server(true);
        let args = ["-c", "2", "-d", "1h", "--warm-up", "1h", &address];
        let mut load = start(&[&args[..], schedule].concat());
        await_count(&count, 20, &mut load);
        kill_process(Pid::from_child(&load), Signal::INT).unwrap();
        let deadline = clock::now() + PATIENCE;
        while load.try_wait().unwrap().is_none() {
            if clock::now() > deadline {
                load.kill().unwrap();
                panic!("the load with {schedule:?} did not end");
            }
            std::thread::yield_now();
        }
        let finished = finished(load.wait_with_output().unwrap());
        finished.fails_with(130, &["interrupted by SIGINT"]);
        let json = finished.json();
        assert_eq!((&json["unsent"], &json["seconds"]), (&0.into(), &0.0.into()), "{json}");
    }
}

/// Without the signal, the load would wait until the reply timeout.
#[test]
fn silent_server_does_not_delay_the_interrupt() {
    for (way, datagrams) in workloads() {
        let (address, count) = if datagrams { udp_server(false) } else { tcp_server(false) };
        let mut load = start(&[&way[..], &["--reply-timeout", "1h"], &[&address]].concat());
        await_count(&count, 2, &mut load);
        let finished = end_with(load, Signal::INT);
        finished.fails_with(130, &["interrupted by SIGINT"]);
        let json = finished.json();
        assert_eq!((&json["interrupted"], &json["errors"]), (&true.into(), &serde_json::json!({})));
    }
}

/// Connects block because the listener's queue is full.
#[test]
fn load_interrupted_while_connecting_has_measured_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    for driver in runtime_drivers() {
        let args = ["-c", "5", "-d", "1h", "--driver", driver];
        let mut load = start(&[&args[..], &[&address.to_string()]].concat());
        let deadline = clock::now() + PATIENCE;
        while !is_in_mask("SigCgt", load.id(), Signal::INT) {
            assert_eq!(load.try_wait().unwrap(), None, "{driver}: the load has ended");
            assert!(clock::now() < deadline, "{driver}: signals are not handled");
        }
        let finished = end_with(load, Signal::INT);
        finished.fails_with(130, &["interrupted by SIGINT"]);
        let json = finished.json();
        assert_eq!((&json["interrupted"], &json["seconds"]), (&true.into(), &0.0.into()));
        assert_eq!(
            json["warnings"][0],
            "nothing was measured: the run was interrupted before the window opened"
        );
    }
}
