//! The examples, run as processes.

use crate::quinn::programs::{self, Program};
use std::path::PathBuf;
use std::process::{Command, Output};

fn examples() -> &'static PathBuf {
    programs::examples()
}

/// Starts a server, and returns its address.
fn start(name: &str, arguments: &[&str]) -> (Program, String) {
    let mut server = Program::start(Command::new(examples().join(name)).args(arguments));
    let address = server.listens("");
    (server, address)
}

fn certificate(name: &str) -> String {
    format!("{}/{name}.der", env!("CARGO_TARGET_TMPDIR"))
}

fn run(name: &str, arguments: &[&str]) -> Output {
    let output = Command::new(examples().join(name))
        .args(arguments)
        .output()
        .expect("cannot run the program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn echo_returns_streams_of_every_size_and_exits_on_a_signal() {
    let file = certificate("quic_echo");
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (server, address) = start("quic_echo", &["serve", address, &file]);
        let output = run("quic_echo", &["echo", &address, &file, "0", "1", "1000000", "70000"]);
        let expected = ["0", "1", "1000000", "70000"].map(|size| format!("{size} bytes echoed\n"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected.concat());
        server.ends_by("TERM");
    }
}

/// Runs one end of the example `quic_bulk` on annulus, and the other on quinn's own tokio runtime.
#[test]
fn bulk_transfer_works_on_both_runtimes() {
    for (server_runs_on, client_runs_on) in [("annulus", "tokio"), ("tokio", "annulus")] {
        let file = certificate(server_runs_on);
        let arguments =
            ["serve", "--runtime", server_runs_on, "--certificate", &file, "127.0.0.1:0"];
        let (server, address) = start("quic_bulk", &arguments);
        let arguments =
            ["send", "--runtime", client_runs_on, "--certificate", &file, &address, "3000000"];
        let output = run("quic_bulk", &arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with("sent 3000000 bytes in "), "{text}");
        server.ends();
    }
}

#[test]
fn wrong_arguments_print_the_usage() {
    let output = Command::new(examples().join("quic_echo")).arg("serve").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: quic_echo serve"));
}
