//! Readings of the system's clocks: monotonic time, wall-clock time and CPU time.

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use std::time::Duration;

/// Returns the monotonic time since an arbitrary, fixed point.
pub fn now() -> Duration {
    duration(clock_gettime(ClockId::Monotonic))
}

/// Returns the time of [`now`] in nanoseconds.
pub(crate) fn nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
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
}
