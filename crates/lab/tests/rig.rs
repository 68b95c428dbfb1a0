//! The rig against real processes: this test program itself, started again as a server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use annulus::DriverChoice;
use annulus_lab::record::Outcome;
use annulus_lab::rig::{Load, Rig, Visits, Work};
use annulus_lab::schedule::{Cell, Measure, Visit};
use annulus_lab::server::Spec;
use annulus_load::Mode;

/// Says how the server should behave, and that this is the server.
const ROLE: &str = "ANNULUS_LAB_TEST_SERVER";

/// This program as a server that behaves so.
fn server(role: &str) -> Spec {
    let this = std::env::current_exe().expect("this program");
    let mut arguments = vec![format!("{ROLE}={role}").into(), this.into_os_string()];
    arguments.extend(["--ignored", "--exact", "serves", "--nocapture"].map(Into::into));
    Spec { name: role.into(), program: "/usr/bin/env".into(), arguments, pin: None }
}

fn rig(role: &str) -> Rig {
    rig_with(role, Mode::default())
}

fn rig_with(role: &str, client: Mode) -> Rig {
    start(role, Work::Loop(load(client)))
}

fn start(role: &str, work: Work) -> Rig {
    Rig::start(&[server(role)], &[Cell { clients: 3, bytes: 1000 }], work).expect("servers")
}

fn load(client: Mode) -> Load {
    Load {
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(100),
        pin: None,
        seed: 1,
        client,
        pipeline: 2,
    }
}

fn measure(rig: &mut Rig, server: usize) -> Outcome {
    rig.measure(Visit { round: 0, server, cell: 0 })
}

#[test]
fn a_server_and_its_control_are_both_measured() {
    let driver = DriverChoice::Auto;
    let visits = Visits { connections: Some(100), threads: 2, pin: None, seed: 1, driver };
    let loops = [Mode::default(), Mode::Threads].map(|client| Work::Loop(load(client)));
    for work in loops.into_iter().chain([Work::Visits(visits)]) {
        both_are_measured(&mut start("echo", work));
    }
}

fn both_are_measured(rig: &mut Rig) {
    for server in [0, 1] {
        let sample = measure(rig, server).expect("a believed slice");
        assert!(sample.requests > 0 && sample.seconds > 0.0, "{sample:?}");
        assert!(sample.server_cpu_us_per_request > 0.0, "{sample:?}");
        assert!(sample.server_switches_per_request >= 0.0, "{sample:?}");
        assert!(sample.server_resident_bytes > 100_000, "{sample:?}");
        assert!(0.0 < sample.p50_us && sample.p50_us <= sample.p99_us, "{sample:?}");
        assert!(sample.client_cpu_share > 0.0, "{sample:?}");
        let rate = sample.requests as f64 / sample.seconds;
        assert!((sample.requests_per_second / rate - 1.0).abs() < 1e-6, "{sample:?}");
    }
}

#[test]
fn a_server_that_answers_wrongly_is_not_believed() {
    let error = measure(&mut rig("wrong"), 0).expect_err("wrong bytes");
    assert!(error.contains("wrong bytes"), "{error}");
}

#[test]
fn a_server_that_falls_over_is_named_with_its_last_words() {
    let mut rig = rig("fall");
    let error = measure(&mut rig, 0).expect_err("it ends at the first byte");
    assert!(error.contains("server fall ended (exit status: 9)"), "{error}");
    assert!(error.ends_with("its last words: out of luck"), "{error}");
    let again = measure(&mut rig, 0).expect_err("it does not come back");
    assert_eq!(again, error);
}

/// The server that the other tests start; nothing where it was not they who started it.
#[test]
#[ignore = "the server of the other tests"]
fn serves() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    eprintln!("{role}: listening on {}", listener.local_addr().expect("address"));
    for stream in listener.incoming() {
        let role = role.clone();
        thread::spawn(move || answer(stream.expect("a client"), &role));
    }
}

fn answer(mut stream: TcpStream, role: &str) {
    stream.set_nodelay(true).expect("nodelay");
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        match role {
            "wrong" => buffer[length - 1] ^= 1,
            "fall" => {
                eprintln!("out of luck");
                std::process::exit(9);
            }
            _ => {}
        }
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}
