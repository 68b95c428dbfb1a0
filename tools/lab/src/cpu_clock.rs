//! The CPU clocks of other processes.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Returns the CPU time of all threads of a process in ns, including threads that have ended.
///
/// Uses `clock_getcpuclockid(3)`. The files in `/proc/PID/task` are as precise but omit threads
/// that have ended. Neither is current while the process runs: see
/// [`Usage::at_rest`](crate::proc::Usage::at_rest).
pub(crate) fn cpu_ns(pid: u32) -> io::Result<u64> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut clock = 0;
    // SAFETY: the call writes one clock id, into `clock`.
    match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
        0 => read(clock),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Returns the CPU time of all children of this process that have ended and were waited for,
/// including their own waited-for children.
pub(crate) fn children_cpu() -> io::Result<Duration> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call writes one `rusage`, into `usage`.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it initialised the value.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

fn read(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = MaybeUninit::uninit();
    // SAFETY: the call writes one `timespec`, into `time`.
    if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it initialised the value.
    let time = unsafe { time.assume_init() };
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_load::clock::{process_cpu, thread_cpu};
    use std::process::Command;

    #[test]
    fn a_thread_that_has_ended_still_counts() {
        let before = cpu_ns(std::process::id()).expect("the CPU clock cannot be read");
        let work = || {
            let began = thread_cpu();
            while thread_cpu() - began < Duration::from_millis(5) {}
        };
        std::thread::spawn(work).join().expect("the thread panicked");
        let used = cpu_ns(std::process::id()).expect("the CPU clock cannot be read") - before;
        assert!(used >= 5_000_000, "{used} ns");
        assert!(u128::from(before) <= process_cpu().as_nanos());
    }

    /// Runs in a process of its own, because children of concurrent tests would count too.
    #[test]
    fn a_child_counts_once_it_has_ended() {
        const CHILD_PROCESS_VARIABLE: &str = "ANNULUS_TEST_ALONE";
        if std::env::var_os(CHILD_PROCESS_VARIABLE).is_some() {
            return count_a_child();
        }
        let mut alone =
            Command::new(std::env::current_exe().expect("the path of the test is unknown"));
        alone.args(["--exact", "cpu_clock::tests::a_child_counts_once_it_has_ended"]);
        alone.env(CHILD_PROCESS_VARIABLE, "1");
        let ran = crate::child::output(alone).expect("the test cannot be started");
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && text.contains("1 passed"), "{text}");
    }

    fn count_a_child() {
        assert_eq!(
            children_cpu().expect("the CPU time of children cannot be read"),
            Duration::ZERO
        );
        let work = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", work]);
        crate::child::output(command).expect("the shell failed");
        assert!(children_cpu().expect("the CPU time of children cannot be read") > Duration::ZERO);
    }

    #[test]
    fn a_missing_process_is_an_error() {
        // The first id is above the largest pid of Linux (2^22) and within the range of clock ids
        // (2^29).
        assert!(cpu_ns(1 << 23).is_err() && cpu_ns(u32::MAX).is_err());
    }
}
