//! `bench programs` from the command line to the table, with scripts in place of servers and clients: those that are compared take minutes
//! to build, and may not be installed.

use crate::common::{ANNULUS, OwnLock, finish};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Notes its arguments, announces an address, and uses its core for a moment a hundred times a second: to start a process counts as its own
/// time.
const SERVER: &str = "#!/bin/sh\necho \"$*\" >>\"$0.starts\"\necho 'listening on 127.0.0.1:9' >&2\n\
    while :; do /bin/sleep 0.01; done\n";

/// Answers as wrk does by the script of the lab, if it is to load that address.
const WRK: &str = "#!/bin/sh\ncase \"$*\" in *' http://127.0.0.1:9/'*) /bin/sleep 0.2; echo measured 1000 50000 30 20 90 0;; esac\n";

/// A directory with peers and clients, removed when dropped.
struct Pretended(PathBuf);

impl Pretended {
    fn new(test: &str) -> Pretended {
        let name = format!("annulus-server-bench-{test}-{}", std::process::id());
        let pretended = Pretended(std::env::temp_dir().join(name));
        let servers = pretended.0.join("servers");
        for server in ["tokio", "annulus"] {
            program(&servers.join(server), SERVER);
        }
        let build = format!("echo {}", servers.display());
        program(&pretended.0.join("peers/hyper/build"), &build);
        program(&pretended.0.join("clients/wrk"), WRK);
        pretended
    }

    /// `annulus bench programs`, with no clients but those in the directory.
    fn bench(&self, arguments: &str) -> Command {
        let mut bench = Command::new(ANNULUS);
        bench.args(["bench", "programs", "http"]).args(arguments.split(' '));
        bench.current_dir(&self.0).env("PATH", self.0.join("clients")).own_lock();
        bench
    }

    /// The arguments of each process of a server, in the order in which they were started.
    fn starts(&self, server: &str) -> Vec<String> {
        let noted = fs::read_to_string(self.0.join(format!("servers/{server}.starts"))).unwrap();
        noted.lines().map(str::to_owned).collect()
    }
}

impl Drop for Pretended {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn servers_are_compared_under_the_clients_that_are_installed() {
    let pretended = Pretended::new("compared");
    let arguments = "--servers tokio,uring --loads plain,h2 --rounds 5 --json -";
    let finished = finish(&mut pretended.bench(arguments));
    assert_eq!(finished.code, Some(0), "{finished:?}");
    for left_out in ["h2 is left out: h2load is not installed: apt-get", "perf is not installed"] {
        assert!(finished.stderr.contains(left_out), "{finished:?}");
    }
    let report = finished.json();
    assert_eq!(report["settings"]["baseline"], "tokio");
    let rows = report["results"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["contender"].as_str().unwrap()).collect();
    assert_eq!(names, ["tokio", "uring"]);
    for row in rows.iter().chain(report["controls"].as_array().unwrap()) {
        let figure = |metric: &str| row["figures"][metric]["value"].as_f64();
        let reported = ["rate", "mean_us", "p50_us", "p99_us"].map(figure);
        assert_eq!(reported, [20_000.0, 30.0, 20.0, 90.0].map(Some), "{row}");
        assert!(figure("cpu_us") > Some(0.0) && figure("syscalls").is_none(), "{row}");
    }
    // Of each server, and of the control, one process for four rounds, and another for the fifth.
    assert_eq!(pretended.starts("tokio"), ["0 http1"; 4]);
    assert_eq!(pretended.starts("annulus"), ["0 http1 uring"; 2]);
}

#[test]
fn without_its_client_nothing_is_measured() {
    let pretended = Pretended::new("missing");
    let finished = finish(&mut pretended.bench("--servers tokio --loads h2 --rounds 1"));
    assert_ne!(finished.code, Some(0));
    let expected = "no load is left: load h2 is left out: h2load is not installed: apt-get install nghttp2-client";
    assert!(finished.stderr.contains(expected), "{finished:?}");
}
