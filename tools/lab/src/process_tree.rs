//! The processes that a process has started, and its threads, from `/proc`.

use std::fs::{self, DirEntry};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// An environment variable that a contender passes on to every process that it starts.
pub(crate) const MARK_VARIABLE: &str = "ANNULUS_STARTED_BY";

/// A process, and all running processes that it has started, directly or indirectly.
pub type Tree = (u32, Vec<u32>);

/// The fields of `/proc/PID/stat` with the user and kernel time of children that were waited for.
/// The field after the name is 0.
const CHILDREN_TIME_FIELDS: [usize; 2] = [13, 14];

/// Returns the process and those that it has started. A kernel without lists of children reports
/// none.
pub fn of(root: u32) -> Tree {
    let mut found = children(root);
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children(pid));
        next += 1;
    }
    (root, found)
}

/// Returns handles of the processes that a process has started.
pub(crate) fn started_by(root: u32) -> Vec<OwnedFd> {
    of(root).1.into_iter().filter_map(handle).collect()
}

/// Returns the value of [`MARK_VARIABLE`] for a contender of this process; without a number, the
/// common prefix of all values.
pub(crate) fn mark(contender: Option<u32>) -> String {
    let number = contender.map_or(String::new(), |number| format!("{number}."));
    format!("{}.{number}", std::process::id())
}

/// Returns handles of the processes with this mark whose environment this process may read.
pub(crate) fn marked(mark: &str) -> Vec<OwnedFd> {
    let entry = format!("{MARK_VARIABLE}={mark}");
    let is_marked = |pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    };
    // The mark is checked again after opening the handle, since the id may have been reused by
    // another process.
    let found = processes().filter(|pid| is_marked(*pid)).map(|pid| (handle(pid), is_marked(pid)));
    found.filter_map(|(handle, is_marked)| handle.filter(|_| is_marked)).collect()
}

/// Returns the ids of all processes.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn handle(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()
}

fn children(pid: u32) -> Vec<u32> {
    // A process that has ended has no children.
    let listed = of_threads(&tasks(pid), "children").unwrap_or_default();
    listed
        .iter()
        .flat_map(|line| line.split_whitespace())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Returns the CPU time, in ns, of the processes that a process has started and waited for,
/// including their own waited-for children.
pub(crate) fn waited_for_ns(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = ticks_of_children(&stat)
        .ok_or_else(|| io::Error::other("no times of children in /proc/PID/stat"))?;
    Ok(ticks * 1_000_000_000 / clock_ticks_per_second())
}

fn ticks_of_children(stat: &str) -> Option<u64> {
    // The name is in parentheses and may itself contain parentheses.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    CHILDREN_TIME_FIELDS.iter().map(|&field| fields.get(field)?.parse::<u64>().ok()).sum()
}

/// Returns the directory of the threads of a process.
pub(crate) fn tasks(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/task"))
}

/// Reads a file of every living thread.
pub(crate) fn of_threads(tasks: &Path, file: &str) -> io::Result<Vec<String>> {
    let read = |task: io::Result<DirEntry>| match fs::read_to_string(task?.path().join(file)) {
        Err(error) if has_ended(&error) => Ok(None),
        text => text.map(Some),
    };
    fs::read_dir(tasks)?.filter_map(|task| read(task).transpose()).collect()
}

/// Returns true if a thread ended between being listed and being read.
fn has_ended(error: &io::Error) -> bool {
    let ended = [rustix::io::Errno::NOENT, rustix::io::Errno::SRCH];
    ended.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::proc::Usage;

    /// Runs a shell with this script until it has printed a line, and calls `look` with its id. The
    /// shell ends with its input.
    fn with_shell(script: &str, look: impl Fn(u32)) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().expect("cannot start a shell");
        let mut line = [0; 1];
        shell
            .stdout
            .take()
            .expect("the output is not a pipe")
            .read_exact(&mut line)
            .expect("the process printed nothing");
        look(shell.id());
        drop(shell.stdin.take());
        shell.wait().expect("the process cannot be waited for");
    }

    #[test]
    fn children_and_grandchildren_are_found() {
        with_shell("(sh -c 'echo; read end'; true); true", |pid| {
            let (root, others) = of(pid);
            assert_eq!((root, others.len()), (pid, 2), "{others:?}");
            assert!(!others.contains(&pid));
        });
        assert_eq!(of(1 << 30), (1 << 30, vec![]), "no such process");
    }

    #[test]
    fn a_childs_cpu_time_counts_before_and_after_its_end() {
        let work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        with_shell(&format!("(sh -c '{work}; echo; read end'; true); true"), |pid| {
            assert_eq!(waited_for_ns(pid).expect("the CPU time cannot be read"), 0);
            // A shell needs more than 1 ms to count to 100,000.
            assert!(Usage::of(pid).expect("the usage cannot be read").cpu_ns > 1_000_000);
        });
        let work = work.replace("100000", "300000");
        with_shell(&format!("(sh -c '{work}'); echo; read end"), |pid| {
            let waited_for = waited_for_ns(pid).expect("the CPU time cannot be read");
            assert!(
                waited_for > 0
                    && Usage::of(pid).expect("the usage cannot be read").cpu_ns >= waited_for
            );
        });
    }

    #[test]
    fn the_times_of_children_are_found_after_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 70 800 20 0 1 0 9 1 1\n";
        assert_eq!(ticks_of_children(stat), Some(870));
        assert_eq!(ticks_of_children("7 (a) S 1"), None);
    }
}
