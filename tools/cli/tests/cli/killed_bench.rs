//! A killed bench leaves no process behind.

use crate::common::{ANNULUS, OwnLock, PATIENCE, Scratch, finish, is_in_mask};
use annulus_lab::results::Results;
use annulus_load::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process, pidfd_open, prlimit,
};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Returns the child processes of all threads of a process.
fn children_of(parent: Pid) -> Vec<Pid> {
    let tasks = format!("/proc/{}/task", parent.as_raw_nonzero());
    let Ok(tasks) = std::fs::read_dir(tasks) else { return Vec::new() };
    let lists = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("children")));
    let lists: String = lists.flatten().collect();
    lists.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Waits until a process has this many children; returns their pidfds.
fn await_children(parent: &mut Child, count: usize) -> Vec<OwnedFd> {
    let deadline = clock::now() + PATIENCE;
    loop {
        let children = children_of(Pid::from_child(parent));
        if children.len() == count {
            let open = |pid| pidfd_open(pid, PidfdFlags::empty()).unwrap();
            return children.into_iter().map(open).collect();
        }
        if let Some(status) = parent.try_wait().unwrap() {
            panic!("the bench has ended with {status}: {}", stderr_of(parent));
        }
        assert!(clock::now() < deadline, "{} of {count} children", children.len());
        std::thread::yield_now();
    }
}

/// Returns what a process that has ended wrote to its error output, if that is a pipe.
fn stderr_of(process: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut stderr) = process.stderr.take() {
        stderr.read_to_string(&mut text).unwrap();
    }
    text
}

fn await_end(process: &OwnedFd) {
    let patience = Timespec::try_from(PATIENCE).unwrap();
    let ready = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&patience)).unwrap();
    assert_eq!(ready, 1, "a child outlives its bench");
}

/// Starts a bench whose first slice takes longer than the test waits, kills it once its children
/// run, and waits until they have ended.
fn kill_bench(bench: &[&str], children: usize, signal: Signal) {
    let mut command = Command::new(ANNULUS);
    command.arg("bench").args(bench).args(["--duration", "600"]).own_lock();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut bench = command.spawn().unwrap();
    // The bench has one more child: a shell that ends the processes that contenders have started.
    let children = await_children(&mut bench, children + 1);
    let pid = Pid::from_child(&bench);
    // SIGQUIT would write a core file.
    prlimit(Some(pid), Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    kill_process(pid, signal).unwrap();
    bench.wait().unwrap();
    children.iter().for_each(await_end);
}

#[test]
fn servers_of_a_killed_bench_end_with_it() {
    let servers = ["--servers", "epoll,threads", "--connections", "2"];
    let is_ignored = |signal: &Signal| is_in_mask("SigIgn", std::process::id(), *signal);
    for signal in [Signal::KILL, Signal::QUIT].into_iter().filter(|signal| !is_ignored(signal)) {
        kill_bench(&[&["echo"], &servers[..]].concat(), 3, signal);
    }
    for transport in ["udp", "unix"] {
        kill_bench(
            &["echo", "--transport", transport, "--servers", "epoll", "--connections", "2"],
            2,
            Signal::KILL,
        );
    }
}

/// A suite whose slices take a few milliseconds each.
const FILE_SUITE: &str = r#"
    title = "small"
    document = "none"
    kind = "file"
    machine = []
    commands = []
    [[table]]
    title = "a table"
    unit = "seconds"
    corner = ""
    each = { workers = 2, bytes = 5000, cycles = 30, figure = "cpu_seconds", servers = ["threads", "tasks"] }
    columns = [{ name = "CPU" }]
    rows = [{ name = "all" }]"#;

/// Waits until a file has this many lines.
fn await_lines(path: &Path, count: usize, bench_process: &mut Child) {
    let deadline = clock::now() + PATIENCE;
    while std::fs::read_to_string(path).unwrap_or_default().lines().count() < count {
        assert_eq!(bench_process.try_wait().unwrap(), None, "the bench has ended");
        assert!(clock::now() < deadline, "no {count} lines");
        std::thread::yield_now();
    }
}

/// Creates a directory with the suite.
fn directory(test: &str) -> Scratch {
    let directory = Scratch::new(&format!("bench-{test}"));
    std::fs::write(directory.join("small.toml"), FILE_SUITE).unwrap();
    directory
}

/// A limit on the size of files has the same effect as a full disk.
#[test]
fn full_disk_ends_the_bench_which_resumes_once_there_is_room() {
    let directory = directory("full");
    let run = |limit: &str| {
        let mut command = Command::new("/bin/sh");
        // The limit is in units of 512 bytes. Because SIGXFSZ is ignored, a write beyond the limit
        // fails.
        command.args([
            "-c",
            &format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" \"$@\""),
            ANNULUS,
        ]);
        command.args(["bench", "./small.toml", "--rounds", "40", "--out", "out"]);
        finish(command.current_dir(&directory).env("TMPDIR", &*directory).own_lock())
    };
    let full = run("24");
    full.fails_with(
        1,
        &["cannot write out/small.jsonl", "free space", "--out to resume", "os error"],
    );
    let path = directory.join("out/small.jsonl");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 24 * 512, "not written up to the limit");
    let part = Results::read(&path).unwrap();
    assert!((1..120).contains(&part.record().slices().len()) && !part.is_finished());
    let rest = run("unlimited");
    assert_eq!(rest.code, Some(0), "{rest:?}");
    let all = Results::read(&path).unwrap();
    assert_eq!((all.record().slices().len(), all.is_finished()), (120, true));
    let left = std::fs::read_dir(&directory).unwrap().count();
    assert_eq!(left, 2, "files of the contenders are left");
}

#[test]
fn killed_bench_leaves_no_process_and_resumes_where_it_stopped() {
    let directory = directory("killed");
    let run = || {
        let mut command = Command::new(ANNULUS);
        command.args(["bench", "./small.toml", "--rounds", "40", "--out", "out"]);
        command.current_dir(&directory).env("TMPDIR", &*directory).own_lock();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut bench_process = run().spawn().unwrap();
    let path = directory.join("out/small.jsonl");
    let children = await_children(&mut bench_process, 4);
    // The header and at least 19 slices.
    await_lines(&path, 20, &mut bench_process);
    kill_process(Pid::from_child(&bench_process), Signal::KILL).unwrap();
    bench_process.wait().unwrap();
    children.iter().for_each(await_end);
    let killed = Results::read(&path).unwrap();
    assert!(killed.record().slices().len() >= 19 && !killed.is_finished());
    assert!(run().status().unwrap().success());
    let finished = Results::read(&path).unwrap();
    let all = finished.record().slices();
    assert_eq!((all.len(), finished.resumed(), finished.is_finished()), (120, 1, true));
    let kept = killed.record().slices().iter();
    assert!(kept.clone().all(|(slice, outcome)| all.get(slice) == Some(outcome)));
}

/// A server with a child that serves, and another child in its own session.
const FORKING_SERVER: &str = "setsid sleep 1000 & other=$!
ANNULUS echo --listen 127.0.0.1:$1 &
echo $$ $! $other >>pids
wait
";

/// Counts the scratch directories of benches.
fn scratch_directories(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("annulus-bench-"))
        .count()
}

#[test]
fn killed_and_interrupted_bench_ends_descendants_of_servers_and_resumes() {
    let directory = directory("ended");
    std::fs::write(directory.join("server"), FORKING_SERVER.replace("ANNULUS", ANNULUS)).unwrap();
    let run = || {
        let mut command = Command::new(ANNULUS);
        command.args(["bench", "sh server {port}", "--load", "tcp://{address} -l 64"]);
        command.args(["--connections", "2", "--duration", "0.1", "--rounds", "6", "--out", "out"]);
        command.current_dir(&directory).env("TMPDIR", &*directory);
        command
    };
    let path = directory.join("out/sh.jsonl");
    let mut kept = Vec::new();
    for (signal, status, left) in [(Signal::KILL, None, 1), (Signal::INT, Some(130), 0)] {
        let mut bench_process = run().stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let known = std::fs::read_to_string(&path).unwrap_or_default().lines().count();
        await_lines(&path, known + 4, &mut bench_process);
        let pids = std::fs::read_to_string(directory.join("pids")).unwrap();
        let pids = pids.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap());
        let alive: Vec<OwnedFd> =
            pids.filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).collect();
        assert!(alive.len() >= 3, "a server or a child is missing");
        kill_process(Pid::from_child(&bench_process), signal).unwrap();
        assert_eq!(bench_process.wait().unwrap().code(), status);
        alive.iter().for_each(await_end);
        let part = Results::read(&path).unwrap();
        assert!(!part.is_finished() && part.record().slices().len() >= 3);
        kept.extend(part.record().slices().clone());
        assert_eq!(scratch_directories(&directory), left, "scratch directories after {signal:?}");
    }
    let rest = finish(&mut run());
    // On a busy machine, a slice may fail because nothing was answered.
    assert!(matches!(rest.code, Some(0 | 1 | 3)), "{rest:?}");
    assert!(rest.stdout.contains("interrupted 2 times and resumed"), "{rest:?}");
    let all = Results::read(&path).unwrap();
    assert_eq!((all.record().slices().len(), all.is_finished(), all.resumed()), (12, true, 2));
    assert!(kept.iter().all(|(slice, outcome)| all.record().slices().get(slice) == Some(outcome)));
    assert!(std::fs::read_to_string(directory.join("out/sh.md")).unwrap().contains("2 times"));
}

/// A client that waits while a file with the name `pause` exists.
const PAUSING_CLIENT: &str = "if [ -e pause ]; then
  echo >paused
  while [ -e pause ]; do sleep 0.02; done
fi
exec ANNULUS load $1 -c 1 -n 200 --json -
";

fn await_file(path: &Path) {
    let deadline = clock::now() + PATIENCE;
    while !path.exists() {
        assert!(clock::now() < deadline, "no {}", path.display());
        std::thread::yield_now();
    }
}

#[test]
fn slice_of_an_interrupted_bench_waits_for_its_client() {
    let directory = directory("interrupted");
    std::fs::write(directory.join("client"), PAUSING_CLIENT.replace("ANNULUS", ANNULUS)).unwrap();
    let server = format!("{ANNULUS} echo --listen 127.0.0.1:{{port}}");
    let mut command = Command::new(ANNULUS);
    command.args(["bench", &server, "--load-command", "sh client {address}", "--out", "out"]);
    command.args(["--parse", "requests=\"responses\":([0-9]+)", "--rounds", "10000"]);
    command.arg("--share-cores");
    command.current_dir(&directory).env("TMPDIR", &*directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut bench_process = command.spawn().unwrap();
    let path = directory.join("out/annulus.jsonl");
    await_lines(&path, 2, &mut bench_process);
    std::fs::write(directory.join("pause"), "").unwrap();
    await_file(&directory.join("paused"));
    kill_process(Pid::from_child(&bench_process), Signal::INT).unwrap();
    let mut stderr = BufReader::new(bench_process.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("stopping; press ctrl-C again"), "{line}");
    std::fs::remove_file(directory.join("pause")).unwrap();
    assert_eq!(bench_process.wait().unwrap().code(), Some(130));
    let results = Results::read(&path).unwrap();
    let slices = results.record().slices();
    let errors: Vec<_> = slices.values().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(slices.len() >= 2 && errors.is_empty(), "{errors:?}");
}

/// Comparisons whose preparation takes long: a peer is built, or a file is written.
const SLOW_PREPARATIONS: [&str; 2] = [
    "[[server]]\ncommand = \"slow\"\npeer = \"slow\"\n",
    "[[server]]\ncommand = \"true {port}\"\n[site]\nlong = 1_000_000_000\n",
];

#[test]
fn interrupted_bench_ends_a_build_and_the_writing_of_files() {
    for (number, servers) in SLOW_PREPARATIONS.into_iter().enumerate() {
        let directory = directory(&format!("preparing-{number}"));
        let peer = directory.join("tools/peers/slow");
        std::fs::create_dir_all(&peer).unwrap();
        std::fs::write(peer.join("build"), "sleep 1000 & echo $$ $! >$1/pids; wait").unwrap();
        let load = "[[load]]\nurl = \"tcp://{address}\"\n";
        std::fs::write(directory.join("slow.toml"), format!("title = \"slow\"\n{servers}{load}"))
            .unwrap();
        let mut command = Command::new(ANNULUS);
        command.args(["bench", "./slow.toml", "--out", "out"]).env("TMPDIR", &*directory);
        command.current_dir(&directory).stdin(Stdio::null()).stdout(Stdio::null());
        let mut bench_process = command.stderr(Stdio::null()).spawn().unwrap();
        let pids = directory.join("target/peers/slow/pids");
        let is_begun = || {
            let entries = std::fs::read_dir(&directory).unwrap().flatten();
            let mut files = entries.map(|entry| entry.path().join("site/long"));
            let built = std::fs::read_to_string(&pids).is_ok_and(|text| text.ends_with('\n'));
            built || files.any(|file| file.exists())
        };
        let deadline = clock::now() + PATIENCE;
        while !is_begun() {
            assert_eq!(bench_process.try_wait().unwrap(), None, "the bench has ended");
            assert!(clock::now() < deadline, "the preparation does not begin");
            std::thread::yield_now();
        }
        let pids = std::fs::read_to_string(&pids).unwrap_or_default();
        let pids = pids.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap());
        let open = |pid| pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let started: Vec<OwnedFd> = pids.map(open).collect();
        kill_process(Pid::from_child(&bench_process), Signal::INT).unwrap();
        assert_eq!(bench_process.wait().unwrap().code(), Some(130));
        started.iter().for_each(await_end);
        assert!(!directory.join("out").exists(), "something was measured");
        assert_eq!(scratch_directories(&directory), 0);
    }
}
