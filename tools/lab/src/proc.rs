//! CPU time, context switches and memory of a process, from `/proc`.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use annulus_load::clock;
use serde::{Deserialize, Serialize};

use crate::cpu_clock::cpu_ns;
use crate::process_tree::{self, Tree, of_threads, tasks};

/// The usage of a process and the processes that it has started, since their starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time on a core, user and kernel, in ns.
    pub cpu_ns: u64,
    /// Number of times that a thread was scheduled on a core: every context switch to it, voluntary
    /// or not.
    pub switches: u64,
}

impl Usage {
    /// Reads `/proc/PID/task/*/schedstat` and the CPU clocks of the processes. Running threads are
    /// counted up to their last tick.
    ///
    /// Only the switches of living threads are counted. CPU time includes threads that have ended.
    /// It also includes processes that have ended and were waited for, in steps of a clock tick (10
    /// ms).
    pub fn of(pid: u32) -> io::Result<Usage> {
        Usage::of_tree(&process_tree::of(pid))
    }

    /// Like [`of`](Self::of), but waits until no thread of the processes is running or runnable,
    /// for at most `timeout`.
    ///
    /// Linux accounts a thread's CPU time when the thread leaves its core and at ticks (1 to 10 ms
    /// apart), not when another process reads it. While a process runs, its most recent time is
    /// missing from every file and clock (ADR 0017).
    pub fn at_rest(pid: u32, timeout: Duration) -> io::Result<Usage> {
        Usage::after_rest(pid, timeout).map(|(usage, _)| usage)
    }

    /// Like [`at_rest`](Self::at_rest), but also returns whether the threads were at rest in time.
    pub(crate) fn after_rest(pid: u32, timeout: Duration) -> io::Result<(Usage, bool)> {
        let tree = process_tree::of(pid);
        let began = clock::now();
        let mut is_busy = is_any_busy(&tree)?;
        while is_busy && clock::now() - began < timeout {
            thread::sleep(REST_CHECK_PERIOD);
            is_busy = is_any_busy(&tree)?;
        }
        Ok((Usage::of_tree(&tree)?, !is_busy))
    }

    /// Returns the usage of the processes. Those that the root has started may have ended meanwhile
    /// and are then skipped.
    fn of_tree((root, others): &Tree) -> io::Result<Usage> {
        let others = others.iter().filter_map(|&pid| Usage::of_one(pid).ok());
        Ok(others.fold(Usage::of_one(*root)?, Usage::plus))
    }

    fn of_one(pid: u32) -> io::Result<Usage> {
        let cpu_ns = cpu_ns(pid)? + process_tree::waited_for_ns(pid)?;
        Ok(Usage { cpu_ns, switches: switches(&tasks(pid))? })
    }

    /// Returns the sum of both.
    pub fn plus(self, other: Usage) -> Usage {
        let (cpu_ns, switches) = (self.cpu_ns + other.cpu_ns, self.switches + other.switches);
        Usage { cpu_ns, switches }
    }

    /// Returns the usage between an earlier reading and this one.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}

/// How often to check whether the processes are at rest.
const REST_CHECK_PERIOD: Duration = Duration::from_micros(50);

fn switches(tasks: &Path) -> io::Result<u64> {
    of_threads(tasks, "schedstat")?.iter().map(|line| switches_in(line)).sum()
}

/// Returns true if a thread of any of these processes is on a core or waits for one.
fn is_any_busy((root, others): &Tree) -> io::Result<bool> {
    let has_busy = |&pid: &u32| is_busy(&tasks(pid)).unwrap_or(false);
    Ok(is_busy(&tasks(*root))? || others.iter().any(has_busy))
}

/// Returns true if a thread is on a core or waits for one.
fn is_busy(tasks: &Path) -> io::Result<bool> {
    // The state follows the name, which is in parentheses and may itself contain parentheses.
    let runs =
        |line: &String| line.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'));
    Ok(of_threads(tasks, "stat")?.iter().any(runs))
}

/// Returns the third of three numbers: ns on a core, ns waiting for one, times scheduled.
fn switches_in(line: &str) -> io::Result<u64> {
    let mut numbers = line.split_whitespace().map(str::parse::<u64>);
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(_)), Some(Ok(_)), Some(Ok(switches))) => Ok(switches),
        _ => Err(io::Error::other(format!("schedstat has `{}`, not 3 numbers", line.trim()))),
    }
}

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Memory {
    /// Resident: `VmRSS`.
    pub resident_bytes: u64,
    /// Mapped: `VmSize`, what `top` calls VIRT.
    pub virtual_bytes: u64,
}

impl Memory {
    /// Reads `/proc/PID/status`.
    pub fn of(pid: u32) -> io::Result<Memory> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let missing = || io::Error::other("no VmRSS and VmSize in /proc/PID/status");
        Memory::read(&status).ok_or_else(missing)
    }

    /// Returns the sums over a process and those that it has started. Shared pages are counted for
    /// each process.
    pub fn of_tree(pid: u32) -> io::Result<Memory> {
        let (root, others) = process_tree::of(pid);
        let others = others.into_iter().filter_map(|pid| Memory::of(pid).ok());
        Ok(others.fold(Memory::of(root)?, |sum, one| Memory {
            resident_bytes: sum.resident_bytes + one.resident_bytes,
            virtual_bytes: sum.virtual_bytes + one.virtual_bytes,
        }))
    }

    fn read(status: &str) -> Option<Memory> {
        let bytes = |name| status_bytes(status, name);
        Some(Memory { resident_bytes: bytes("VmRSS:")?, virtual_bytes: bytes("VmSize:")? })
    }
}

/// Returns a size in bytes from the text of `/proc/PID/status`. `name` begins its line, such as
/// `VmRSS:`.
pub fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, WaitOptions, waitpid};

    use super::*;

    /// The process counts to 100,000 and then stops itself, so that its figures no longer change.
    /// The figures of the test process would change, because threads of other tests end meanwhile.
    #[test]
    fn usage_has_the_cpu_time_and_switches_of_a_process() {
        let count = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; kill -STOP $$";
        let mut child =
            Command::new("/bin/sh").args(["-c", count]).spawn().expect("cannot start a shell");
        let stopped = waitpid(Some(Pid::from_child(&child)), WaitOptions::UNTRACED);
        let used = Usage::of(child.id());
        child.kill().and_then(|()| child.wait()).expect("cannot clean up");
        assert!(
            stopped.expect("the process did not stop").is_some_and(|(_, status)| status.stopped())
        );
        let used = used.expect("the usage cannot be read");
        // A shell needs more than 1 ms and less than 10 s of CPU time to count to 100,000.
        assert!((1_000_000..10_000_000_000).contains(&used.cpu_ns), "{used:?}");
        assert!(used.switches > 0, "{used:?}");
    }

    /// Each line costs the same few ms. A reading that is too early would attribute a part to the
    /// next line.
    #[test]
    fn usage_at_rest_misses_no_cpu_time() {
        let work = "while read line; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; done";
        let mut child = Command::new("/bin/sh").args(["-c", work]).stdin(Stdio::piped()).spawn();
        let child = child.as_mut().expect("cannot start a shell");
        let mut lines = child.stdin.take().expect("the input is not a pipe");
        let read = || Usage::at_rest(child.id(), Duration::from_secs(60)).expect("no usage");
        let mut last = read();
        let mut costs: Vec<u64> = std::iter::repeat_with(|| {
            lines.write_all(b"go\n").expect("the shell does not read");
            let before = std::mem::replace(&mut last, read());
            last.since(before).cpu_ns
        })
        .take(20)
        .collect();
        drop(lines);
        child.wait().expect("the process cannot be waited for");
        costs.sort_unstable();
        // Compares with the median rather than the mean, because on a busy machine some lines cost
        // several times as much.
        assert!(costs[0] > costs[10] / 3, "{costs:?}");
    }

    #[test]
    fn a_process_that_never_rests_is_read_after_the_timeout() {
        let mut child = Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn();
        let child = child.as_mut().expect("cannot start a shell");
        let used = Usage::at_rest(child.id(), Duration::from_millis(50));
        child.kill().and_then(|()| child.wait()).expect("cannot clean up");
        assert!(used.expect("the usage cannot be read").cpu_ns > 0);
    }

    #[test]
    fn usage_before_the_window_does_not_count() {
        let (opened, closed) = (Usage { cpu_ns: 5, switches: 2 }, Usage { cpu_ns: 9, switches: 3 });
        assert_eq!(closed.since(opened), Usage { cpu_ns: 4, switches: 1 });
    }

    #[test]
    fn threads_are_summed_and_ended_ones_ignored() {
        let scratch = crate::scratch::tests::directory();
        let directory = scratch.path();
        for (task, line) in [("1", "100 7 3\n"), ("2", "20 9 4\n")] {
            fs::create_dir_all(directory.join(task)).expect("cannot create a directory");
            fs::write(directory.join(task).join("schedstat"), line).expect("cannot write a file");
        }
        fs::create_dir_all(directory.join("3")).expect("cannot create a directory");
        assert_eq!(switches(directory).expect("the switches cannot be summed"), 7);
    }

    #[test]
    fn an_invalid_schedstat_is_an_error_that_quotes_it() {
        let error = switches_in("12 x").expect_err("an invalid line was parsed");
        assert!(error.to_string().contains("`12 x`"), "{error}");
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmSize:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t1\n";
        let memory = Memory { resident_bytes: 1 << 20, virtual_bytes: 2 << 20 };
        assert_eq!(Memory::read(status), Some(memory));
        assert_eq!(super::status_bytes(status, "VmHWM:"), None);
        assert_eq!(Memory::read("VmSize:\t    2048 kB\n"), None);
        let own = Memory::of(std::process::id()).expect("the memory cannot be read");
        assert!(100_000 < own.resident_bytes && own.resident_bytes < own.virtual_bytes, "{own:?}");
    }

    #[test]
    fn a_missing_process_is_an_error() {
        // Above the largest pid of Linux (2^22).
        assert!(Usage::of(1 << 30).is_err() && Memory::of(1 << 30).is_err());
    }
}
