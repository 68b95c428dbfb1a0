//! Busy polling: before it sleeps, the loop polls the ring for a moment, as long as that pays off.
//!
//! A poll that finds something saves a sleep and a wake-up; a poll that finds nothing costs its
//! whole length. The policy learns which is likely: credit rises with each hit, and falls faster
//! with each miss. Without credit the loop sleeps at once, and polls only occasionally, at growing
//! intervals, to notice when polling pays off again. So an idle ring costs next to nothing.

use super::Uring;
use annulus_kernel::Kernel;
use annulus_ring::{Ring, Wait};
use std::io;
use std::time::Duration;

/// Credit that a hit adds, credit that a miss costs, and the maximum credit: polling continues
/// while more than four of five polls are hits.
const CREDIT_PER_HIT: u32 = 1;
const CREDIT_PER_MISS: u32 = 4;
const MAX_CREDIT: u32 = 32;

/// Number of sleeps between two polls without credit: the first value and the maximum.
const MIN_SLEEPS_PER_POLL: u32 = 16;
const MAX_SLEEPS_PER_POLL: u32 = 1024;

/// Number of tries between two readings of the clock.
const TRIES_PER_CLOCK_READING: usize = 8;

/// The policy that decides whether to poll before a sleep.
#[derive(Debug)]
pub(super) struct BusyPoll {
    /// How long to poll; zero disables polling.
    limit: Duration,
    credit: u32,
    /// Number of sleeps until the next poll without credit. After the next miss, it is set to
    /// `sleeps_after_miss`.
    sleeps_until_poll: u32,
    sleeps_after_miss: u32,
}

impl BusyPoll {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            credit: CREDIT_PER_MISS,
            sleeps_until_poll: 0,
            sleeps_after_miss: MIN_SLEEPS_PER_POLL,
        }
    }

    /// Returns how long to poll before the sleep that is due now, or `None` if polling does not pay
    /// off.
    #[inline]
    pub(super) fn before_sleep(&mut self) -> Option<Duration> {
        if self.limit.is_zero() {
            return None;
        }
        if self.credit == 0 {
            // A poll may have been due but skipped, since a completion was ready; it is still due.
            self.sleeps_until_poll = self.sleeps_until_poll.saturating_sub(1);
            if self.sleeps_until_poll > 0 {
                return None;
            }
        }
        Some(self.limit)
    }

    /// Adjusts the credit after a poll. A miss that leaves no credit postpones the next poll.
    pub(super) fn record(&mut self, hit: bool) {
        if hit {
            self.credit = (self.credit + CREDIT_PER_HIT).min(MAX_CREDIT);
            self.sleeps_after_miss = MIN_SLEEPS_PER_POLL;
            return;
        }
        self.credit = self.credit.saturating_sub(CREDIT_PER_MISS);
        if self.credit == 0 {
            self.sleeps_until_poll = self.sleeps_after_miss;
            self.sleeps_after_miss = (self.sleeps_after_miss * 2).min(MAX_SLEEPS_PER_POLL);
        }
    }
}

impl Uring {
    /// Submits, and polls. Returns `None` if a completion was found, otherwise the rest of the
    /// timeout, or zero without a timeout.
    pub(super) fn poll_briefly(
        &mut self,
        limit: Duration,
        timeout: Option<Duration>,
    ) -> io::Result<Option<Duration>> {
        self.enter(Wait::Reap)?;
        if self.ring.ready() > 0 {
            return Ok(None);
        }
        let began = self.common.kernel.now();
        let hit = poll(&self.ring, limit.min(timeout.unwrap_or(limit)));
        self.common.counters.busy_polls += 1;
        self.common.counters.busy_poll_hits += u64::from(hit);
        self.busy_poll.record(hit);
        if hit {
            self.enter(Wait::Reap)?;
            return Ok(None);
        }
        let passed = self.common.kernel.now() - began;
        Ok(Some(timeout.unwrap_or_default().saturating_sub(passed)))
    }
}

/// Polls a ring until `io_uring_enter` would find something, or the time is up. Returns true if it
/// would find something.
fn poll(ring: &Ring, limit: Duration) -> bool {
    let kernel: &dyn Kernel = &**ring.kernel();
    let end = kernel.now() + limit;
    loop {
        for _ in 0..TRIES_PER_CLOCK_READING {
            if ring.has_deferred_work() || ring.ready() > 0 || ring.overflowed() {
                return true;
            }
            kernel.relax();
        }
        if kernel.now() >= end {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL_LIMIT: Duration = Duration::from_micros(20);

    /// Returns how many of `sleeps` sleeps had a poll before them.
    fn polls(policy: &mut BusyPoll, sleeps: usize, hit: bool) -> usize {
        let polled = |_: &usize| {
            let polls = policy.before_sleep().is_some();
            if polls {
                policy.record(hit);
            }
            polls
        };
        (0..sleeps).filter(polled).count()
    }

    #[test]
    fn a_poll_without_an_outcome_is_still_due() {
        let mut policy = BusyPoll::new(POLL_LIMIT);
        policy.record(false);
        let due = (0..100).filter(|_| policy.before_sleep().is_some()).count();
        assert_eq!(due, 100 - (MIN_SLEEPS_PER_POLL as usize - 1));
    }

    #[test]
    fn a_limit_of_zero_never_polls() {
        assert_eq!(polls(&mut BusyPoll::new(Duration::ZERO), 1000, true), 0);
    }

    #[test]
    fn polling_continues_while_it_hits_and_becomes_rare_when_it_misses() {
        let mut policy = BusyPoll::new(POLL_LIMIT);
        assert_eq!(polls(&mut policy, 1000, true), 1000);
        let misses = polls(&mut policy, 100_000, false);
        assert!((9..120).contains(&misses), "{misses} misses");
        // Polling resumes within one interval after the change.
        assert!(polls(&mut policy, MAX_SLEEPS_PER_POLL as usize + 100, true) > 100);
        assert_eq!(polls(&mut policy, 1000, true), 1000);
    }

    #[test]
    fn one_miss_in_ten_pays_and_one_in_two_does_not() {
        let share = |each: usize| {
            let mut policy = BusyPoll::new(POLL_LIMIT);
            let mut count = 0;
            for sleep in 1..=10_000 {
                if policy.before_sleep().is_some() {
                    count += 1;
                    policy.record(sleep % each != 0);
                }
            }
            count
        };
        assert_eq!(share(10), 10_000);
        assert!(share(2) < 2_500);
    }
}
