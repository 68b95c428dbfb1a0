//! The kernel timer that ends sleeps until a distant deadline.
//!
//! With a timeout in a wait, the kernel sets up a timer in every turn and removes it again. But the
//! next deadline is often seconds away, and the same for many turns: the time limits of connections,
//! for instance. For such a deadline, one kernel timer is started, and no sleep until then, or until a
//! later deadline, needs a timeout. If the deadline has moved to a later time meanwhile, the timer
//! ends one sleep early. If it has moved to an earlier time, the timer is cancelled and started
//! again.

use crate::slots::Token;
use annulus_kernel::Fd;
use annulus_ring::op::{self, TimeSpec};
use annulus_ring::{Entry, opcode};
use rustix::io::Errno;
use std::time::Duration;

/// A sleep shorter than this has a timeout of its own, which costs less than an operation.
const MIN_SLEEP: Duration = Duration::from_millis(20);

/// The timer, and when it expires.
#[derive(Debug)]
pub(super) struct SleepTimer {
    /// The time of the kernel's clock at which the timer expires; `None` while it is not running.
    expires: Option<Duration>,
    /// Whether the running timer has been cancelled; its completion is still to come.
    is_cancelled: bool,
    /// The time that the entry points to.
    after: Box<TimeSpec>,
    /// Whether the kernel does not support the timeout operation.
    unsupported: bool,
}

impl SleepTimer {
    /// The token of the timer's completion.
    const TOKEN: Token = Token::internal(3);

    pub(super) fn new() -> Self {
        let after = Box::new(TimeSpec { seconds: 0, nanoseconds: 0 });
        Self { expires: None, is_cancelled: false, after, unsupported: false }
    }

    /// Returns true if the running timer ends a sleep by this deadline.
    #[inline]
    pub(super) fn ends_sleep_by(&self, deadline: Duration) -> bool {
        self.expires.is_some_and(|expires| expires <= deadline)
    }

    /// Starts the timer for a deadline that is `left` away, if that pays off, or first cancels a
    /// timer that would expire later. Returns the entry to submit. The entry may point into this
    /// timer, which does not change until the completion.
    #[cold]
    pub(super) fn start(&mut self, deadline: Duration, left: Duration) -> Option<Entry> {
        if self.is_cancelled || self.unsupported || left < MIN_SLEEP {
            return None;
        }
        if self.expires.is_some() {
            self.is_cancelled = true;
            let cancel = op::Cancel { user_data: Self::TOKEN.bits() }.entry().skip_success();
            return Some(cancel.user_data(Token::IGNORED.bits()).into());
        }
        let seconds = i64::try_from(left.as_secs()).ok()?;
        *self.after = TimeSpec { seconds, nanoseconds: left.subsec_nanos().into() };
        self.expires = Some(deadline);
        let entry = Entry { len: 1, ..Entry::new(opcode::TIMEOUT, Fd::NONE) };
        let addr = std::ptr::from_ref(&*self.after) as u64;
        Some(Entry { addr, ..entry }.user_data(Self::TOKEN.bits()))
    }

    /// Returns true if a completion belongs to the timer.
    #[inline]
    pub(super) fn owns(user_data: u64) -> bool {
        user_data == Self::TOKEN.bits()
    }

    /// Handles the timer's completion. Any result but `ETIME` and `ECANCELED` means that the kernel
    /// does not support the timeout operation.
    pub(super) fn expired(&mut self, result: Result<u32, Errno>) {
        self.expires = None;
        self.is_cancelled = false;
        self.unsupported = !matches!(result, Err(Errno::TIME | Errno::CANCELED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(100);
    const LEFT: Duration = Duration::from_millis(2_500);

    #[test]
    fn a_running_timer_ends_sleeps_until_its_deadline_and_later_ones() {
        let mut timer = SleepTimer::new();
        assert!(!timer.ends_sleep_by(DEADLINE));
        let entry = timer.start(DEADLINE, LEFT).expect("the timer was not started");
        assert!(SleepTimer::owns(entry.user_data) && entry.len == 1);
        assert_eq!((timer.after.seconds, timer.after.nanoseconds), (2, 500_000_000));
        assert!(timer.ends_sleep_by(DEADLINE) && timer.ends_sleep_by(DEADLINE + LEFT));
        timer.expired(Err(Errno::TIME));
        assert!(!timer.ends_sleep_by(DEADLINE) && timer.start(DEADLINE, LEFT).is_some());
    }

    #[test]
    fn an_earlier_deadline_replaces_the_timer() {
        let mut timer = SleepTimer::new();
        timer.start(DEADLINE, LEFT).expect("the timer was not started");
        let (earlier, left) = (DEADLINE - LEFT / 2, LEFT / 2);
        // A short sleep has a timeout instead.
        assert!(timer.start(earlier, MIN_SLEEP / 2).is_none());
        let cancel = timer.start(earlier, left).expect("the timer continues");
        assert_eq!((cancel.opcode, cancel.addr), (opcode::ASYNC_CANCEL, SleepTimer::TOKEN.bits()));
        // Until the completion there is nothing to start, because the entry's time must not change.
        assert!(!timer.ends_sleep_by(earlier) && timer.start(earlier, left).is_none());
        timer.expired(Err(Errno::CANCELED));
        let entry = timer.start(earlier, left).expect("the timer was not started again");
        assert!(SleepTimer::owns(entry.user_data) && timer.ends_sleep_by(earlier));
    }

    #[test]
    fn short_sleeps_and_old_kernels_have_no_timer() {
        let mut timer = SleepTimer::new();
        assert!(timer.start(DEADLINE, MIN_SLEEP / 2).is_none());
        assert!(timer.start(DEADLINE, MIN_SLEEP).is_some());
        timer.expired(Err(Errno::INVAL));
        assert!(timer.start(DEADLINE, LEFT).is_none());
    }
}
