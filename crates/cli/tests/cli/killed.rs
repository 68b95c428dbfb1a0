//! A killed bench leaves no process behind.

use crate::common::{ANNULUS, OwnLock, PATIENCE};
use annulus_load::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process, pidfd_open, prlimit,
};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

/// The child processes of all threads of this process.
fn children_of(parent: Pid) -> Vec<Pid> {
    let tasks = format!("/proc/{}/task", parent.as_raw_nonzero());
    let Ok(tasks) = std::fs::read_dir(tasks) else { return Vec::new() };
    let lists = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("children")));
    let lists: String = lists.flatten().collect();
    lists.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Waits until a process has this many children; returns handles of them.
fn await_children(parent: &mut Child, count: usize) -> Vec<OwnedFd> {
    let deadline = clock::now() + PATIENCE;
    loop {
        let children = children_of(Pid::from_child(parent));
        if children.len() == count {
            let open = |pid| pidfd_open(pid, PidfdFlags::empty()).unwrap();
            return children.into_iter().map(open).collect();
        }
        assert_eq!(parent.try_wait().unwrap(), None, "the bench has ended");
        assert!(clock::now() < deadline, "{} of {count} children", children.len());
        std::thread::yield_now();
    }
}

fn await_end(process: &OwnedFd) {
    let patience = Timespec::try_from(PATIENCE).unwrap();
    let ready = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&patience)).unwrap();
    assert_eq!(ready, 1, "a child outlives its bench");
}

/// Starts a bench whose first slice takes longer than the test waits, kills it once its children run, and waits for
/// their end.
fn kill(bench: &[&str], children: usize, signal: Signal) {
    let mut command = Command::new(ANNULUS);
    command.arg("bench").args(bench).args(["--seconds", "600"]).own_lock();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bench = command.spawn().unwrap();
    let children = await_children(&mut bench, children);
    let pid = Pid::from_child(&bench);
    // SIGQUIT would write a core file.
    prlimit(Some(pid), Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    kill_process(pid, signal).unwrap();
    bench.wait().unwrap();
    children.iter().for_each(await_end);
}

/// Whether this process ignores a signal, and so do its children: shells without job control ignore SIGQUIT in
/// background processes.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    mask & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn the_servers_of_a_killed_bench_end_with_it() {
    let servers = ["--servers", "epoll,threads", "--clients", "2"];
    let signals = [Signal::KILL, Signal::QUIT];
    for signal in signals.into_iter().filter(|signal| !is_ignored(*signal)) {
        kill(&[&["echo"], &servers[..]].concat(), 3, signal);
    }
    for transport in ["udp", "unix"] {
        kill(&[transport, "--servers", "epoll", "--clients", "2"], 2, Signal::KILL);
    }
}

#[test]
fn the_contenders_of_a_killed_bench_end_with_it() {
    kill(&["bulk", "--contenders", "epoll", "--bytes", "1200"], 2, Signal::KILL);
    let file = ["file", "--pattern", "randread", "--file-size", "1M", "--depth", "1"];
    kill(&[&file[..], &["--mode", "both"]].concat(), 3, Signal::KILL);
}
