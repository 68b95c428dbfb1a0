//! The example programs, each run as a process and checked by `tools/peers/check_examples.py`.
#![allow(unsafe_code)]

mod lines;
mod server_shutdown;

use annulus_skip::skip;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Returns the directory of the examples. Cargo builds them with all tests of the crate, but not
/// with this test alone.
fn examples() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        // Some shells run background commands with SIGINT ignored, and a program leaves an ignored
        // signal ignored.
        // SAFETY: the default disposition runs no code of this process.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        let test = std::env::current_exe().expect("the program has no path");
        let profile = test.ancestors().nth(2).expect("no directory of the profile");
        // On another kernel, the test runs without Cargo, and the examples have been built before.
        if let Ok(cargo) = std::env::var("CARGO") {
            // Builds the whole workspace, like `cargo test --workspace`: alone, its crates have
            // other features and would be built again.
            let words = ["build", "--quiet", "--workspace", "--examples", "--target-dir"];
            let mut build = Command::new(cargo);
            build.args(words).arg(profile.parent().expect("no target directory"));
            if !cfg!(debug_assertions) {
                build.arg("--release");
            }
            assert!(
                build.status().expect("cargo does not start").success(),
                "the examples are not built"
            );
        }
        profile.join("examples")
    })
}

/// Runs the checks of an example on a driver. Without Python they are skipped, except in CI.
fn check_on(driver: &str, name: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/peers/check_examples.py");
    let mut python = Command::new("python3");
    let run = python.arg(script).arg(examples()).arg(name).env("ANNULUS_DRIVER", driver).output();
    let Ok(run) = run else {
        skip!("{name}: no python3: apt-get install python3");
        return;
    };
    let output = String::from_utf8_lossy(&run.stdout);
    for line in output.lines().filter(|line| line.starts_with("skipped")) {
        skip!("{}", line.trim_start_matches("skipped: "));
    }
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "on {driver}:\n{output}{errors}");
}

/// Runs the checks of an example on the default driver, and at the same time on epoll, since most
/// of them spend their time waiting.
fn check(name: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    std::thread::scope(|scope| {
        let epoll = std::thread::Builder::new().name(test);
        epoll.spawn_scoped(scope, || check_on("epoll", name)).unwrap();
        check_on("auto", name);
    });
}

/// One test per program. Sanitizer runs exclude them by the name of this module, since Cargo would
/// build them with the sanitizer's flags.
mod programs {
    use super::{check, check_on};

    // Tests start in the order of their names, so the two that take longest are named to be first.
    #[test]
    fn a_site_of_files_is_served() {
        check("static_files");
    }

    #[test]
    fn chat_reaches_all_shards() {
        check("chat");
    }

    #[test]
    fn dns_forwards() {
        check("dns");
    }

    #[test]
    fn log_keeps_records() {
        check("log");
    }

    #[test]
    fn proxy_passes_on() {
        check("proxy");
    }

    #[test]
    fn redis_stores() {
        check("redis");
    }

    #[test]
    fn shutdown_loses_no_work() {
        check("shutdown");
    }

    #[test]
    fn echo_echoes() {
        check("echo");
    }

    #[test]
    fn shards_echo() {
        check("shards");
    }

    #[test]
    fn udp_echo_echoes() {
        check("udp_echo");
    }

    #[test]
    fn unix_echo_echoes() {
        check("unix_echo");
    }

    // The programs below run on a simulated kernel, where `ANNULUS_DRIVER` is ignored.

    #[test]
    fn cluster_elects() {
        check_on("auto", "cluster");
    }

    #[test]
    fn simulated_succeeds() {
        check_on("auto", "simulated");
    }
}
