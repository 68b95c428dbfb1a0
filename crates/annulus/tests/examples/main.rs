//! The example programs, each run as a process and tested with clients that were written elsewhere: redis-cli, curl, dig,
//! Python. `tools/peers/check_examples.py` has the checks, which the same programs on tokio must pass too.
#![allow(unsafe_code)]

mod ends;
mod lines;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The directory of the examples. Cargo builds them with all tests of the crate, but not with this one alone.
fn examples() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        // Background commands of some shells ignore SIGINT, and a program leaves an ignored signal
        // ignored.
        // SAFETY: the default disposition runs no code of this process.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        let test = std::env::current_exe().expect("its path");
        let profile = test.ancestors().nth(2).expect("deps lies in the directory of the profile");
        // Without Cargo, on another kernel, they were built before.
        if let Ok(cargo) = std::env::var("CARGO") {
            // The whole workspace, as `cargo test --workspace` builds it: alone, its crates have other features, and are built again.
            let words = ["build", "--quiet", "--workspace", "--examples", "--target-dir"];
            let mut build = Command::new(cargo);
            build.args(words).arg(profile.parent().expect("the target directory"));
            if !cfg!(debug_assertions) {
                build.arg("--release");
            }
            assert!(build.status().expect("cargo runs").success(), "the examples are not built");
        }
        profile.join("examples")
    })
}

/// Runs the checks of an example on a driver. Without Python they are skipped, but not in CI.
fn check_on(driver: &str, name: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/peers/check_examples.py");
    let mut python = Command::new("python3");
    let run = python.arg(script).arg(examples()).arg(name).env("ANNULUS_DRIVER", driver).output();
    let Ok(run) = run else {
        let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!is_ci, "{name} needs python3, and CI may not skip it: apt-get install python3");
        _ = writeln!(io::stderr(), "skipped: {name}: no python3: apt-get install python3");
        return;
    };
    let output = String::from_utf8_lossy(&run.stdout);
    for line in output.lines().filter(|line| line.starts_with("skipped")) {
        // Past the capture of a test's output.
        _ = writeln!(io::stderr(), "{line}");
    }
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "on {driver}:\n{output}{errors}");
}

/// Runs the checks of an example on the driver that is usual here, and beside it on epoll: most of them wait.
fn check(name: &str) {
    std::thread::scope(|scope| {
        scope.spawn(|| check_on("epoll", name));
        check_on("auto", name);
    });
}

/// A test a program. The sanitizer's run leaves them out by the name of this module, since Cargo would build them with its flags.
mod programs {
    use super::{check, check_on};

    // The two that take longest are the first in the order of names, in which tests start.
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

    // The simulated kernel has io_uring only.

    #[test]
    fn cluster_elects() {
        check_on("auto", "cluster");
    }

    #[test]
    fn simulated_succeeds() {
        check_on("auto", "simulated");
    }
}
