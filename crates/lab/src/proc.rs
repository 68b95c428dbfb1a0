//! What `/proc` says about a server: CPU time, context switches, memory.

use std::fs;
use std::io;
use std::path::Path;

/// What all threads of a process have used since they started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time on a core, user and kernel, in ns.
    pub cpu_ns: u64,
    /// How often a thread was put on a core: every context switch to it, wanted or not.
    pub switches: u64,
}

impl Usage {
    /// Sums `/proc/PID/task/*/schedstat`: nanoseconds, where `utime` counts ticks of 10 ms (3 % of
    /// a slice).
    ///
    /// A thread that ends takes its figures with it. So a server's connections, where each has a
    /// thread, must live through the window; the load's do.
    pub fn of(pid: u32) -> io::Result<Usage> {
        Usage::sum(Path::new(&format!("/proc/{pid}/task")))
    }

    /// What was used between an earlier reading and this one.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }

    fn sum(tasks: &Path) -> io::Result<Usage> {
        let mut sum = Usage::default();
        for task in fs::read_dir(tasks)? {
            match fs::read_to_string(task?.path().join("schedstat")) {
                Ok(line) => sum.add(&line)?,
                Err(error) if has_ended(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sum)
    }

    /// Adds a line of three numbers: ns on a core, ns waiting for one, times put on one.
    fn add(&mut self, line: &str) -> io::Result<()> {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(cpu_ns)), Some(Ok(_)), Some(Ok(switches))) => {
                self.cpu_ns += cpu_ns;
                self.switches += switches;
                Ok(())
            }
            _ => Err(io::Error::other(format!("schedstat has `{}`, not 3 numbers", line.trim()))),
        }
    }
}

/// The resident memory of a process in bytes.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    resident(&status).ok_or_else(|| io::Error::other("no VmRSS in /proc/PID/status"))
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// A thread that ended between being listed and being read.
fn has_ended(error: &io::Error) -> bool {
    let ended = [rustix::io::Errno::NOENT, rustix::io::Errno::SRCH];
    ended.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, WaitOptions, waitpid};

    use super::*;

    /// A process that counts to 100,000 and then stops itself, so that its figures stand still.
    /// (Not this one: other tests' threads end meanwhile, and take theirs with them.)
    #[test]
    fn counts_the_time_and_the_switches_of_a_process() {
        let count = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; kill -STOP $$";
        let mut child = Command::new("/bin/sh").args(["-c", count]).spawn().expect("a shell");
        let stopped = waitpid(Some(Pid::from_child(&child)), WaitOptions::UNTRACED);
        let used = Usage::of(child.id());
        child.kill().and_then(|()| child.wait()).expect("clean up");
        assert!(stopped.expect("waitpid").is_some_and(|(_, status)| status.stopped()));
        let used = used.expect("schedstat");
        // Nobody counts that far within 1 ms, nor does a shell take 10 s of CPU for it.
        assert!((1_000_000..10_000_000_000).contains(&used.cpu_ns), "{used:?}");
        assert!(used.switches > 0, "{used:?}");
    }

    #[test]
    fn what_was_used_before_the_window_does_not_count() {
        let (opened, closed) = (Usage { cpu_ns: 5, switches: 2 }, Usage { cpu_ns: 9, switches: 3 });
        assert_eq!(closed.since(opened), Usage { cpu_ns: 4, switches: 1 });
    }

    #[test]
    fn sums_tasks_and_passes_over_those_that_have_ended() {
        let folder = std::env::temp_dir().join(format!("annulus-lab-tasks-{}", std::process::id()));
        for (task, line) in [("1", "100 7 3\n"), ("2", "20 9 4\n")] {
            fs::create_dir_all(folder.join(task)).expect("folder");
            fs::write(folder.join(task).join("schedstat"), line).expect("file");
        }
        fs::create_dir_all(folder.join("3")).expect("a task whose file is gone");
        let sum = Usage::sum(&folder);
        fs::remove_dir_all(&folder).expect("clean up");
        assert_eq!(sum.expect("sum"), Usage { cpu_ns: 120, switches: 7 });
    }

    #[test]
    fn what_is_no_schedstat_is_an_error_that_shows_it() {
        let error = Usage::default().add("12 x").expect_err("not three numbers");
        assert!(error.to_string().contains("`12 x`"), "{error}");
    }

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    1024 kB\nThreads:\t1\n"), Some(1_048_576));
        assert_eq!(resident("Name:\tx\n"), None);
        assert!(resident_bytes(std::process::id()).expect("own status") > 100_000);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        // Beyond the largest pid that Linux gives (2^22).
        assert!(Usage::of(1 << 30).is_err() && resident_bytes(1 << 30).is_err());
    }
}
