//! The examples, run as processes.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;

/// The directory of the examples. Cargo builds them with all tests, but not with this one alone.
fn examples() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let test = std::env::current_exe().expect("its path");
        let profile = test.ancestors().nth(2).expect("deps lies in the directory of the profile");
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let mut build = Command::new(std::env::var("CARGO").expect("of Cargo"));
        build.args(["build", "--quiet", "--locked", "--all-features", "--manifest-path", manifest]);
        build.args(["--example", "quic_echo", "--example", "quic_bulk"]);
        build.arg("--target-dir").arg(profile.parent().expect("target"));
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success(), "the examples are not built");
        profile.join("examples")
    })
}

/// A server, killed if it is dropped.
struct Server {
    child: Child,
    /// Open, so that what the server prints has a reader.
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts it; its address.
    fn start(name: &str, arguments: &[&str]) -> (Self, String) {
        let mut program = Command::new(examples().join(name));
        let mut child = program.args(arguments).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("it says where it listens");
        let address = line.trim().strip_prefix("listening on ").map(str::to_owned);
        (Self { child, _output: output }, address.unwrap_or_else(|| panic!("{line}")))
    }

    /// Waits for its end, which must be orderly.
    fn ends(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn certificate(name: &str) -> String {
    format!("{}/{name}.der", env!("CARGO_TARGET_TMPDIR"))
}

fn run(name: &str, arguments: &[&str]) -> Output {
    let output = Command::new(examples().join(name)).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn the_echo_returns_streams_of_every_size_and_ends_at_a_signal() {
    let file = certificate("quic_echo");
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (server, address) = Server::start("quic_echo", &["serve", address, &file]);
        let output = run("quic_echo", &["echo", &address, &file, "0", "1", "1000000", "70000"]);
        let expected =
            ["0", "1", "1000000", "70000"].map(|size| format!("{size} bytes came back\n"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected.concat());
        let signal = format!("kill -TERM {}", server.child.id());
        assert!(Command::new("sh").args(["-c", &signal]).status().unwrap().success());
        server.ends();
    }
}

/// The same program on annulus and on quinn's runtime for tokio, against each other.
#[test]
fn the_bulk_transfer_works_on_both_runtimes() {
    for (server_runs_on, client_runs_on) in [("annulus", "tokio"), ("tokio", "annulus")] {
        let file = certificate(server_runs_on);
        let arguments =
            ["serve", "--runtime", server_runs_on, "--certificate", &file, "127.0.0.1:0"];
        let (server, address) = Server::start("quic_bulk", &arguments);
        let arguments =
            ["send", "--runtime", client_runs_on, "--certificate", &file, &address, "3000000"];
        let output = run("quic_bulk", &arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with("sent 3000000 bytes in "), "{text}");
        server.ends();
    }
}

#[test]
fn wrong_arguments_are_told_with_the_usage() {
    let output = Command::new(examples().join("quic_echo")).arg("serve").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: quic_echo serve"));
}
