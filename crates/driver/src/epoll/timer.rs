//! Timers (`timerfd`) that end a wait.
#![allow(unsafe_code)]

use annulus_kernel::{Fd, named};
use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// The longest time of a timer or a wait. What is longer wakes once a day for nothing.
const LONGEST: Duration = Duration::from_secs(86_400);

/// One timer. Its expiry is an edge; it can be set again without being read.
#[derive(Debug)]
pub(super) struct Timer(OwnedFd);

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags);
        Ok(Self(timer.map_err(named("timerfd_create"))?))
    }

    pub(super) fn fd(&self) -> Fd {
        // SAFETY: the descriptor is open as long as the timer, and the driver that uses the `Fd` owns the timer.
        unsafe { Fd::from_raw(self.0.as_raw_fd()) }
    }

    /// Sets the timer to expire once, after this long; an earlier setting is replaced.
    pub(super) fn set(&self, after: Duration) -> io::Result<()> {
        let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(after) };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

pub(super) fn timespec(time: Duration) -> Timespec {
    let time = time.min(LONGEST);
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_too_long() {
        Timer::new().unwrap().set(Duration::MAX).unwrap();
    }
}
