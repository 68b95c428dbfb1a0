//! Counts a server's system calls with perf while a load measures it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use annulus_load::Observer;

use crate::child;
use crate::process_tree;

/// The program that counts system calls.
pub(super) const PERF_PROGRAM: &str = "perf";

/// The perf event of a system call.
const SYSCALL_EVENT: &str = "raw_syscalls:sys_enter";

/// A counter for the measured window. Counting slows each call down, so a slice is either counted
/// or measured.
#[derive(Debug)]
pub(super) struct SystemCalls {
    pid: u32,
    output: PathBuf,
    perf: Option<Child>,
    counted: Option<f64>,
}

impl SystemCalls {
    /// Creates a counter for this server and the processes that it has started. perf writes to the
    /// directory.
    pub(super) fn new(pid: u32, directory: &Path) -> SystemCalls {
        SystemCalls { pid, output: directory.join("counts"), perf: None, counted: None }
    }

    /// Returns the count; `None` without perf or the permission to use it.
    pub(super) fn counted(&self) -> Option<f64> {
        self.counted
    }

    /// Starts perf. perf refuses to start if one of the processes has already ended, as can happen
    /// to a server with a process per connection. In that case it counts only the first process and
    /// those that it starts from now on.
    fn start(&self) -> io::Result<Child> {
        let (root, others) = process_tree::of(self.pid);
        let all: Vec<_> = others.iter().chain([&root]).map(u32::to_string).collect();
        self.attach(&all.join(",")).or_else(|_| self.attach(&root.to_string()))
    }

    /// Starts perf, which counts until `cat` ends. perf is counting once `cat` has passed on a
    /// byte.
    fn attach(&self, pids: &str) -> io::Result<Child> {
        let mut perf = Command::new(PERF_PROGRAM);
        perf.args(["stat", "-x,", "-e", SYSCALL_EVENT, "-p", pids, "-o"]).arg(&self.output);
        perf.args(["--", "cat"]);
        perf.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Ctrl-C at the terminal must not end the count before the slice.
        perf.process_group(0);
        let mut perf = child::spawn(perf)?;
        let passed_on = pass_on(&mut perf);
        if passed_on.is_err() {
            // `cat`, and with it perf, ends at the end of its input.
            drop(perf.stdin.take());
            perf.wait()?;
        }
        passed_on.map(|()| perf)
    }

    /// Ends perf and reads its count.
    fn stop(&self, mut perf: Child) -> Option<f64> {
        drop(perf.stdin.take());
        perf.wait().ok()?;
        count(&fs::read_to_string(&self.output).ok()?)
    }
}

impl Observer for SystemCalls {
    fn window_opened(&mut self) {
        self.perf = self.start().ok();
    }

    fn window_closed(&mut self) {
        self.counted = self.perf.take().and_then(|perf| self.stop(perf));
    }
}

fn pass_on(perf: &mut Child) -> io::Result<()> {
    let (input, output) = (perf.stdin.as_mut(), perf.stdout.as_mut());
    let (Some(input), Some(output)) = (input, output) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    input.write_all(b"\n")?;
    output.read_exact(&mut [0])
}

/// Returns the first field of the line of the event.
fn count(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains(SYSCALL_EVENT))?;
    line.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_from_the_output_of_perf() {
        let printed = "# started on Sun Nov 22\n\n7250,,raw_syscalls:sys_enter,1000220,100.00,,\n";
        assert_eq!(count(printed), Some(7250.0));
        assert_eq!(count("<not counted>,,raw_syscalls:sys_enter,0,0.00,,\n"), None);
        assert_eq!(count(""), None);
    }
}
