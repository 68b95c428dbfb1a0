//! The one place in this crate that reads a clock.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Monotonic time since an arbitrary, fixed point.
pub fn now() -> Duration {
    read(ClockId::Monotonic)
}

/// Monotonic time in nanoseconds: what the clients stamp their messages with.
pub(crate) fn nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time the calling thread has used.
pub fn thread_cpu() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// CPU time the whole process has used, kernel workers included.
pub fn process_cpu() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
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
