//! Readings of the system's clocks: monotonic time, wall-clock time and CPU time.

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// The total length of this thread's pauses in nanoseconds.
    static PAUSED: Cell<u64> = const { Cell::new(0) };
}

/// Returns the monotonic time since an arbitrary, fixed point. On the threads of a load it stops
/// while they pause within the measured window.
pub fn now() -> Duration {
    Duration::from_nanos(nanos())
}

/// Returns the time of [`now`] in nanoseconds.
pub(crate) fn nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 - PAUSED.get()
}

/// Sets the clock of this thread back to `paused`, so that the time since then does not count.
pub(crate) fn resume_at(paused: u64) {
    PAUSED.set(PAUSED.get() + (nanos() - paused));
}

/// Returns the time since the Unix epoch by the machine's wall clock, which can be set.
pub fn unix() -> Duration {
    duration(clock_gettime(ClockId::Realtime))
}

/// Returns the CPU time used by the calling thread, or zero if the system denies the call.
pub fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

/// Returns the CPU time used by all threads of the process, including io_uring workers, or zero if
/// the system denies the call.
pub fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

/// Reads a CPU clock. Unlike reading the monotonic clock, this is a real system call, which a
/// seccomp filter can deny.
fn cpu(clock: ClockId) -> Duration {
    clock_gettime_dynamic(DynamicClockId::Known(clock)).map(duration).unwrap_or_default()
}

fn duration(time: Timespec) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_advances_with_cpu_time() {
        let (began, cpu) = (now(), thread_cpu());
        while thread_cpu() - cpu < Duration::from_millis(2) {}
        assert!(now() - began >= Duration::from_millis(2));
        assert!(process_cpu() >= thread_cpu());
    }

    #[test]
    fn time_of_a_pause_does_not_count() {
        let began = nanos();
        std::thread::sleep(Duration::from_millis(20));
        resume_at(began);
        let here = nanos() - began;
        let elsewhere = std::thread::spawn(nanos).join().expect("the thread panicked") - began;
        assert!(here < 20_000_000 && elsewhere >= 20_000_000, "{here}, {elsewhere}");
    }
}
