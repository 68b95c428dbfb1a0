//! The one place in this crate that reads a clock.

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use std::time::Duration;

/// Monotonic time since an arbitrary, fixed point.
pub fn now() -> Duration {
    duration(clock_gettime(ClockId::Monotonic))
}

/// Monotonic time in nanoseconds: what the clients stamp their messages with.
pub(crate) fn nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time the calling thread has used; zero where that may not be read.
pub fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

/// CPU time the whole process has used, kernel workers included; zero where that may not be read.
pub fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

/// Unlike the monotonic clock, these take a system call, which a filter can deny.
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
    fn time_runs_forward_and_work_costs_cpu() {
        let (began, cpu) = (now(), thread_cpu());
        while thread_cpu() - cpu < Duration::from_millis(2) {}
        assert!(now() - began >= Duration::from_millis(2));
        assert!(process_cpu() >= thread_cpu());
    }
}
