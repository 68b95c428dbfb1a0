//! Comparisons of programs, from the command line to the table. Scripts replace servers and
//! clients, because the real ones take minutes to build and may not be installed.

use crate::common::{ANNULUS, OwnLock, Scratch, finish};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A server that records its driver and arguments, announces an address, and touches a file a
/// hundred times per second. Starting `sleep` counts as its CPU time.
const SERVER_SCRIPT: &str = "#!/bin/sh\necho \"${ANNULUS_DRIVER:+$ANNULUS_DRIVER }$*\" >>\"$0.starts\"\n: >\"$0.$$.runs\"\n\
    echo 'listening on 127.0.0.1:9' >&2\nwhile /bin/sleep 0.01; do : >\"$0.$$.runs\"; done\n";

/// Like nginx: listens where its configuration says, if the file to serve is in the configured
/// root. Uses CPU time like [`SERVER_SCRIPT`].
const NGINX_SCRIPT: &str = "#!/bin/sh\nroot=$(/bin/sed -n 's/.* root \\(.*\\);/\\1/p' \"$4\")\n: >\"$0.$$.runs\"\n\
    [ -s \"$root/4k\" ] || { echo nothing to serve >&2; exit 1; }\n\
    ANNULUS echo --listen $(/bin/sed -n 's/.* listen \\([0-9.:]*\\).*;/\\1/p' \"$4\") &\n\
    while /bin/sleep 0.01; do : >\"$0.$$.runs\"; done\n";

/// Like redis-server: listens where its configuration says. Uses CPU time like [`SERVER_SCRIPT`].
const REDIS_SERVER_SCRIPT: &str = "#!/bin/sh\n: >\"$0.$$.runs\"\n\
    ANNULUS echo --listen 127.0.0.1:$(/bin/sed -n 's/^port //p' \"$1\") &\n\
    while /bin/sleep 0.01; do : >\"$0.$$.runs\"; done\n";

/// Ends once every server has touched its file 25 times, and so has used measurable CPU time,
/// however busy the core is.
const LOAD_SLICE: &str = "n=0; marks=$(echo \"${0%/*}\"/../*/*.runs)\nwhile [ $n -lt 25 ]; do n=$((n + 1)); /bin/rm -f $marks\n\
    for mark in $marks; do process=${mark%.runs}\n\
    while ! [ -e $mark ] && kill -0 ${process##*.} 2>/dev/null; do /bin/sleep 0.01; done; done; done\n";

/// Records its arguments and prints a table like redis-benchmark.
const REDIS_BENCHMARK_SCRIPT: &str = "#!/bin/sh\necho \"$*\" >>\"$0.starts\"\nSLICE\n\
    echo '\"test\",\"rps\",\"avg_latency_ms\",\"p50_latency_ms\",\"p99_latency_ms\"'\n\
    echo '\"GET key:0\",\"50000.00\",\"0.03\",\"0.02\",\"0.09\"'\n";

/// Like haproxy: listens where its configuration says, if the configuration has a target. Echoes
/// instead of forwarding.
const HAPROXY_SCRIPT: &str = "#!/bin/sh\n[ $(/bin/sed -n 's/.*server target 127.0.0.1:\\(.*\\)/\\1/p' \"$2\") -gt 0 ] || exit 1\n\
    exec ANNULUS echo --listen $(/bin/sed -n 's/.* bind \\([0-9.:]*\\).*/\\1/p' \"$2\")\n";

/// Prints what wrk prints with the lab's script.
const WRK_SCRIPT: &str = "#!/bin/sh\ncase \"$*\" in *' http://127.0.0.1:'*/) ;; *' http://127.0.0.1:'*/4k) ;; *) exit 1;; esac\n\
    SLICE\n echo measured 1000 50000 30 20 90 95 0 0\n";

/// A directory with fake peers and clients.
struct FakeInstallation(Scratch);

impl FakeInstallation {
    fn new(test: &str) -> FakeInstallation {
        let installation = FakeInstallation(Scratch::short(&format!("programs-{test}")));
        let servers = installation.0.join("servers");
        for server in ["tokio", "annulus", "static_files"] {
            program(&servers.join(server), SERVER_SCRIPT);
        }
        let build = format!("echo {}", servers.display());
        for peer in ["hyper", "annulus-examples"] {
            program(&installation.0.join("tools/peers").join(peer).join("build"), &build);
        }
        let missing = "echo no cargo >&2; exit 3";
        program(&installation.0.join("tools/peers/tokio-examples/build"), missing);
        installation.install("wrk", WRK_SCRIPT);
        installation
    }

    fn install(&self, name: &str, script: &str) {
        program(
            &self.0.join("installed").join(name),
            &script.replace("SLICE", LOAD_SLICE).replace("ANNULUS", ANNULUS),
        );
    }

    /// Copies a configuration from the repository.
    fn configure(&self, configuration: &str) {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
        let text = fs::read_to_string(repository.join(configuration)).unwrap();
        program(&self.0.join("tools/peers").join(configuration), &text);
    }

    /// Returns the command `annulus bench`, which finds only the programs installed in this
    /// directory.
    fn bench(&self, arguments: &str) -> Command {
        let mut bench = Command::new(ANNULUS);
        bench.arg("bench").args(arguments.split(' ')).args(["--out", "out"]);
        bench.current_dir(&self.0).env("PATH", self.0.join("installed")).own_lock();
        bench
    }

    /// Reads the report of a run.
    fn report(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.0.join("out").join(name).with_extension("json"));
        serde_json::from_str(&text.unwrap()).unwrap()
    }

    /// Returns the arguments of each process of a program, in the order of their start.
    fn starts(&self, program: &str) -> Vec<String> {
        let noted = fs::read_to_string(self.0.join(format!("{program}.starts"))).unwrap();
        noted.lines().map(str::to_owned).collect()
    }
}

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn servers_are_compared_under_the_installed_clients() {
    let installation = FakeInstallation::new("compared");
    let arguments = "http --only tokio,uring,/plainx*,/h2x* --rounds 5";
    let finished = finish(&mut installation.bench(arguments));
    // This run has too few rounds to decide anything.
    assert_eq!(finished.code, Some(3), "{finished:?}");
    for left_out in ["h2 is left out: h2load is not installed: apt-get", "perf is not installed"] {
        assert!(finished.stderr.contains(left_out), "{finished:?}");
    }
    let report = installation.report("http");
    assert_eq!(report["settings"]["baseline"], "tokio");
    let rows = report["results"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["contender"].as_str().unwrap()).collect();
    assert_eq!(names, ["tokio", "uring"]);
    for row in rows.iter().chain(report["controls"].as_array().unwrap()) {
        let figure = |metric: &str| row["figures"][metric]["value"].as_f64();
        let reported = ["rate", "mean_us", "p50_us", "p99_us", "p99_9_us"].map(figure);
        assert_eq!(reported, [20_000.0, 30.0, 20.0, 90.0, 95.0].map(Some), "{row}");
        assert!(figure("cpu_us") > Some(0.0) && figure("syscalls").is_none(), "{row}");
    }
    // Each server and the control have one process for four rounds, and another for the fifth.
    assert_eq!(installation.starts("servers/tokio"), ["0 http1"; 4]);
    assert_eq!(installation.starts("servers/annulus"), ["0 http1 uring"; 2]);
}

#[test]
fn installed_servers_are_configured_and_missing_ones_are_shown_as_dashes() {
    let installation = FakeInstallation::new("configured");
    installation.install("nginx", NGINX_SCRIPT);
    installation.configure("nginx/tuned.conf");
    let arguments = "files --only nginx,epoll,tokio,/4kx* --rounds 1 --verbose";
    let finished = finish(&mut installation.bench(arguments));
    // This run has too few rounds to decide anything.
    assert_eq!(finished.code, Some(3), "{finished:?}");
    assert!(finished.stderr.contains("tokio-examples is left out: no cargo"), "{finished:?}");
    let row = |name: &str| {
        let row = finished.stdout.lines().find(|line| line.starts_with(name));
        row.unwrap_or_else(|| panic!("{name}: {finished:?}")).split_whitespace().nth(1).unwrap()
    };
    assert_eq!(["nginx", "epoll", "tokio"].map(row), ["20,000", "20,000", "–"]);
    let [started] = &installation.starts("servers/static_files")[..] else { panic!("one process") };
    assert!(started.starts_with("epoll 127.0.0.1:0 ") && started.ends_with("/site"), "{started}");
}

#[test]
fn store_benchmark_sends_as_many_requests_as_fit_the_slice() {
    let installation = FakeInstallation::new("store");
    installation.install("redis-server", REDIS_SERVER_SCRIPT);
    installation.install("redis-benchmark", REDIS_BENCHMARK_SCRIPT);
    installation.configure("redis/tuned.conf");
    let arguments = "store --only redis-server,/getx* --rounds 1";
    let finished = finish(&mut installation.bench(arguments));
    // This run has too few rounds to decide anything.
    assert_eq!(finished.code, Some(3), "{finished:?}");
    let report = installation.report("store");
    let row = &report["results"][0];
    let figure = |metric: &str| row["figures"][metric]["value"].as_f64();
    let reported = ["rate", "mean_us", "p50_us", "p99_us"].map(figure);
    assert_eq!(reported, [50_000.0, 30.0, 20.0, 90.0].map(Some), "{row}");
    // For the server and for the control: setting the values, a short run, the slice.
    let starts = installation.starts("installed/redis-benchmark");
    let ends = ["-P 1 -n 1 -e --csv MSET key:0 VXK", "-P 1 -n 1000 -e", "-P 1 -n 12500 -e"];
    for (start, end) in starts.iter().zip(ends.iter().chain(&ends)) {
        assert!(start.contains(end), "{starts:?}");
    }
    assert_eq!(starts.len(), 6, "{starts:?}");
}

#[test]
fn proxies_are_measured_under_our_load_and_at_a_rate() {
    let installation = FakeInstallation::new("proxy");
    installation.install("haproxy", HAPROXY_SCRIPT);
    installation.configure("haproxy/tuned.cfg");
    for load in ["proxy --only haproxy,/128b-1x*", "overload --only haproxy,epoll,/rate-50x*"] {
        let arguments = format!("{load} --rounds 1");
        program(
            &installation.0.join("tools/peers/annulus-examples/build"),
            "echo no cargo >&2; exit 3",
        );
        let finished = finish(&mut installation.bench(&arguments));
        // This run has too few rounds to decide anything.
        assert_eq!(finished.code, Some(3), "{finished:?}");
        let report = installation.report(load.split(' ').next().unwrap());
        let absent = load.contains("epoll").then_some("epoll");
        assert_eq!(report["settings"]["absent"][0].as_str(), absent, "{report}");
        for row in [&report["results"][0], &report["controls"][0]] {
            let figure = |metric: &str| row["figures"][metric]["value"].as_f64();
            let all = ["rate", "cpu_us", "p50_us", "p99_us", "p99_9_us"].map(figure);
            assert!(all.iter().all(|figure| *figure > Some(0.0)), "{row}");
        }
    }
}

#[test]
fn comparison_without_its_client_is_an_error() {
    let installation = FakeInstallation::new("missing");
    let finished = finish(&mut installation.bench("http --only tokio,/h2x* --rounds 1"));
    assert_ne!(finished.code, Some(0));
    let expected = "no load is left: load h2 is left out: h2load is not installed: apt-get install nghttp2-client";
    assert!(finished.stderr.contains(expected), "{finished:?}");
}

#[test]
fn map_measures_its_rows_and_resumes() {
    let installation = FakeInstallation::new("map");
    let run = || {
        let mut bench = Command::new(ANNULUS);
        bench.args(["bench", "map", "--quick", "--rounds", "2", "--out", "out"]);
        bench.args(["--rows", "HTTP with hyper,static files"]);
        bench.current_dir(&installation.0).env("PATH", installation.0.join("installed")).own_lock();
        finish(&mut bench)
    };
    let first = run();
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.stdout.starts_with("No row has enough rounds for a verdict.\n"), "{first:?}");
    // Without tokio's file server, that row cannot be compared.
    let missing = "! static files, 4 KiB, 50 (files): the run has no contender tokio";
    assert!(first.stdout.contains(missing), "{first:?}");
    assert!(first.stdout.contains("HTTP with hyper"), "{first:?}");
    let json = |name: &str| installation.report(name);
    let row = &json("map")["rows"][0];
    assert_eq!((&row["run"], &row["against"]), (&"http".into(), &"tokio".into()), "{row}");
    let http = json("http");
    let names = http["settings"]["contenders"].as_array().unwrap();
    let names: Vec<&str> = names.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tokio", "uring", "epoll"], "only our drivers and tokio");
    assert_eq!(http["settings"]["cells"].as_array().unwrap().len(), 1);
    let picture = fs::read_to_string(installation.0.join("out/map.svg")).unwrap();
    assert!(picture.contains("HTTP with hyper"), "{picture}");
    let second = run();
    assert_eq!((second.code, &second.stdout), (Some(0), &first.stdout), "{second:?}");
    assert!(second.stderr.contains("http.jsonl is finished"), "{second:?}");
}
