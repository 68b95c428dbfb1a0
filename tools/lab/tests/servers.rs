//! Real servers under the load: this test program starts itself again as a server.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use annulus_lab::bench::{Measure, Outcome, Plan, Rounds, Slice};
use annulus_lab::cores::Cores;
use annulus_lab::describe::{Contender, MissingPolicy};
use annulus_lab::echo::{self, Echo, Transport};
use annulus_load::{Options, affinity};

/// The variable that makes this program a server, with the server's behaviour. [`PORT_VARIABLE`]
/// has its port.
const ROLE_VARIABLE: &str = "ANNULUS_LAB_TEST_SERVER";
const PORT_VARIABLE: &str = "ANNULUS_LAB_TEST_PORT";

/// Returns a load with two messages in flight per connection.
fn pipeline() -> Options {
    Options { pipeline: Some(2), ..Options::default() }
}

fn start(role: &str, load: Options) -> Box<dyn Measure> {
    let this = std::env::current_exe().expect("the path of the test is unknown");
    let command = format!(
        "/usr/bin/env {ROLE_VARIABLE}={role} {PORT_VARIABLE}={{port}} '{}' --ignored --exact serves --nocapture",
        this.display()
    );
    let core = affinity::allowed().expect("the cores cannot be read")[0];
    let echo = Echo {
        plan: Plan { name: "test".into(), rounds: Rounds::fixed(1), seed: 1 },
        transport: Transport::Tcp,
        servers: vec![Contender::of_text(&command).expect("the command is invalid")],
        load: Options { warm_up: Some(Duration::ZERO), ..load },
        time: Duration::from_millis(100),
        cores: Cores::new(core, core),
        peers: None,
    };
    let mut setup = echo.setup(&[echo::cell(3, 1000)]).expect("the comparison is invalid");
    setup.missing = MissingPolicy::LeaveOut;
    setup.prepare().expect("the servers did not start").measure
}

fn measure(servers: &mut Box<dyn Measure>, contender: usize) -> Outcome {
    servers.measure(Slice { round: 0, cell: 0, contender })
}

#[test]
fn a_server_and_its_control_are_both_measured() {
    let two = Options { per_connection: true, threads: Some(2), ..Options::default() };
    for load in [pipeline(), two] {
        let mut servers = start("echo", load);
        assert!(servers.memory().iter().all(|memory| memory.is_some()));
        for contender in [0, 1] {
            let sample = measure(&mut servers, contender).expect("the slice failed");
            let number = |name| sample.get(name).unwrap_or_else(|| panic!("no {name}: {sample:?}"));
            for name in ["operations", "ns", "cpu_ns", "client_cpu_share"] {
                assert!(number(name) > 0.0, "{sample:?}");
            }
            assert!(number("switches") >= 0.0 && number("resident_bytes") > 1e5, "{sample:?}");
            assert!(0.0 < number("p50_us") && number("p50_us") <= number("p99_us"), "{sample:?}");
        }
    }
}

#[test]
fn slices_of_a_cell_are_measured_together_except_with_a_connection_per_message() {
    let single = Options { per_connection: true, ..Options::default() };
    for (load, together) in [(pipeline(), 2), (single, 1)] {
        let slices = [0, 1].map(|contender| Slice { round: 0, cell: 0, contender });
        let outcomes = start("echo", load).measure_next(&slices);
        assert_eq!(outcomes.len(), together);
        for outcome in outcomes {
            let sample = outcome.expect("the slice failed");
            assert!(sample.get("cpu_ns") > Some(0.0), "{sample:?}");
        }
    }
}

#[test]
fn a_slice_with_wrong_bytes_is_not_accepted() {
    let mut servers = start("wrong", pipeline());
    let error = measure(&mut servers, 0).expect_err("wrong bytes were accepted");
    assert!(error.contains("wrong bytes"), "{error}");
}

#[test]
fn a_server_that_ends_is_named_with_its_last_line() {
    let mut servers = start("fall", pipeline());
    let error = measure(&mut servers, 0).expect_err("a server that ended was measured");
    assert!(error.starts_with("ended (exit status: 9)"), "{error}");
    assert!(error.ends_with("its last line: out of luck"), "{error}");
    assert!(servers.memory()[0].is_none(), "its process has ended");
    let again = measure(&mut servers, 0).expect_err("a server that ended was measured");
    assert_eq!(again, error);
}

#[test]
fn a_server_that_ended_is_restarted() {
    let mut servers = start("fall-once", pipeline());
    let error = measure(&mut servers, 0).expect_err("a server that ended was measured");
    assert!(error.starts_with("ended (exit status: 9)"), "{error}");
    measure(&mut servers, 0).expect("the second process failed");
    let _ = std::fs::remove_file(fallen(std::process::id()));
}

/// Returns the file that a server of this test program creates when it ends for the first time.
fn fallen(test: u32) -> PathBuf {
    std::env::temp_dir().join(format!("annulus-lab-fallen-{test}"))
}

/// Returns true for the first server that calls this function.
fn is_first() -> bool {
    // `env` executes this program without forking, so the parent is the test.
    File::create_new(fallen(parent_id())).is_ok()
}

/// The server of the other tests. Without the variable it does nothing.
#[test]
#[ignore = "the server of the other tests"]
fn serves() {
    let Ok(role) = std::env::var(ROLE_VARIABLE) else { return };
    let port = std::env::var(PORT_VARIABLE).expect("the port is not set");
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).expect("the port is not free");
    eprintln!(
        "{role}: listening on {}",
        listener.local_addr().expect("the listener has no address")
    );
    for stream in listener.incoming() {
        let role = role.clone();
        thread::spawn(move || answer(stream.expect("a connection was not accepted"), &role));
    }
}

fn answer(mut stream: TcpStream, role: &str) {
    stream.set_nodelay(true).expect("TCP_NODELAY cannot be set");
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        match role {
            "wrong" => buffer[length - 1] ^= 1,
            "fall-once" if !is_first() => {}
            "fall" | "fall-once" => {
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
