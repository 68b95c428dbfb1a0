//! Timers of the kernel that end a wait.
#![allow(unsafe_code)]

use crate::pool::Trim;
use annulus_kernel::{Fd, named};
use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// The longest time a timer or a wait is set for: one that wakes once a day for nothing still sleeps.
const LONGEST: Duration = Duration::from_secs(86_400);
/// After so long, memory goes back.
const QUIET: Duration = Duration::from_secs(10);

/// One timer. Its end is an edge; it is set anew without being read.
#[derive(Debug)]
pub(super) struct Timer(OwnedFd);

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags);
        Ok(Self(timer.map_err(named("timerfd_create"))?))
    }

    pub(super) fn fd(&self) -> Fd {
        // SAFETY: it is open as long as the timer, which its users hold.
        unsafe { Fd::from_raw(self.0.as_raw_fd()) }
    }

    /// Lets it go off once, after this long; an earlier setting is forgotten.
    pub(super) fn set(&self, after: Duration) -> io::Result<()> {
        let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(after) };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

/// Goes off some time after receives, so that receive memory that is not needed can go back to the system. A limit to every
/// wait would cost every turn; a timer that is set anew only while receives go on costs nothing.
#[derive(Debug)]
pub(super) struct Alarm {
    pub(super) timer: Timer,
    /// Events counted when it was set; `None` while it is not.
    set_at: Option<u64>,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { timer: Timer::new()?, set_at: None })
    }

    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.set_at.is_some()
    }

    pub(super) fn set(&mut self, events: u64) {
        // It fails for no valid time. Without it the memory stays, no more.
        _ = self.timer.set(QUIET);
        self.set_at = Some(events);
    }

    /// It went off: tells what is to go back, by whether an event has come since it was set.
    pub(super) fn goes_off(&mut self, events: u64) -> Option<Trim> {
        let set_at = self.set_at.take()?;
        Some(if set_at == events { Trim::Everything } else { Trim::Surplus })
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
    fn a_quiet_while_gives_everything_back_and_a_busy_one_what_is_not_needed() {
        let mut alarm = Alarm::new().unwrap();
        alarm.set(7);
        assert!(alarm.is_set());
        assert_eq!(alarm.goes_off(8), Some(Trim::Surplus), "something came meanwhile");
        assert!(!alarm.is_set());
        alarm.set(8);
        assert_eq!(alarm.goes_off(8), Some(Trim::Everything));
        assert_eq!(alarm.goes_off(8), None, "once");
    }

    #[test]
    fn no_time_is_too_long() {
        Timer::new().unwrap().set(Duration::MAX).unwrap();
    }
}
