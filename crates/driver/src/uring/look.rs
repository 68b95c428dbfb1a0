//! Busy polling: looking for work for a moment before sleeping, for as long as that pays.
//!
//! A look that finds something saves a sleep and a wake-up; one in vain costs its whole length. Whether looking pays is
//! learnt from the looks themselves: credit rises with each that found something, and falls faster with each that did
//! not. Without credit the ring sleeps at once, and takes a look once in a while, more and more seldom, to notice when
//! work comes quickly again. So an idle ring costs nothing, and a busy one is not slowed down.

use super::Uring;
use annulus_kernel::{Kernel, named};
use annulus_ring::{Entered, Ring, Wait};
use std::io;
use std::time::Duration;

/// Credit for a look that found something, its price when in vain, and the most there can be: looking goes on where
/// more than four of five find something.
const GAIN: u32 = 1;
const PRICE: u32 = 4;
const MOST: u32 = 32;

/// Sleeps between two looks without credit, at first and at last.
const SOON: u32 = 16;
const SELDOM: u32 = 1024;

/// Tries between two looks at the clock.
const TRIES: usize = 8;

/// Whether to look before sleeping.
#[derive(Debug)]
pub(super) struct Look {
    /// How long; zero is never.
    upto: Duration,
    credit: u32,
    /// Sleeps until the next look without credit, and what that is set to then.
    sleeps: u32,
    pause: u32,
}

impl Look {
    pub(super) fn new(upto: Duration) -> Self {
        Self { upto, credit: PRICE, sleeps: 0, pause: SOON }
    }

    /// How long to look before the sleep that is due now; none where it does not pay.
    #[inline]
    pub(super) fn before_sleep(&mut self) -> Option<Duration> {
        if self.upto.is_zero() {
            return None;
        }
        if self.credit == 0 {
            // A look that was due may have been cut short before it taught anything.
            self.sleeps = self.sleeps.saturating_sub(1);
            if self.sleeps > 0 {
                return None;
            }
        }
        Some(self.upto)
    }

    /// Learns from a look.
    pub(super) fn learn(&mut self, found: bool) {
        if found {
            self.credit = (self.credit + GAIN).min(MOST);
            self.pause = SOON;
            return;
        }
        self.credit = self.credit.saturating_sub(PRICE);
        if self.credit == 0 {
            self.sleeps = self.pause;
            self.pause = (self.pause * 2).min(SELDOM);
        }
    }
}

impl Uring {
    /// Submits, and waits for a completion, or this long; after a look for one, where that pays.
    #[inline]
    pub(super) fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = match self.look.before_sleep() {
            None => timeout,
            Some(upto) => match self.look_around(upto, timeout)? {
                None => return Ok(()),
                Some(left) => timeout.and(Some(left)),
            },
        };
        self.enter(Wait::For { completions: 1, timeout })
    }

    /// Submits, and looks for work. Where there is some, it is taken; else what is left of the timeout, if there is one.
    fn look_around(
        &mut self,
        upto: Duration,
        timeout: Option<Duration>,
    ) -> io::Result<Option<Duration>> {
        self.enter(Wait::Reap)?;
        if self.ring.ready() > 0 {
            return Ok(None);
        }
        let began = self.kernel().now();
        let found = at(&self.ring, upto.min(timeout.unwrap_or(upto)));
        self.counters.looks += 1;
        self.counters.finds += u64::from(found);
        self.look.learn(found);
        if found {
            self.enter(Wait::Reap)?;
            return Ok(None);
        }
        let passed = self.kernel().now() - began;
        Ok(Some(timeout.unwrap_or_default().saturating_sub(passed)))
    }

    #[inline]
    pub(super) fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let entered = self.ring.enter(wait);
        self.soon = 0;
        self.all_taken = self.is_clear();
        if matches!(entered, Ok(Entered::Unneeded)) {
            // The kernel's thread is at work meanwhile.
            self.kernel().relax();
        } else {
            self.counters.enters += 1;
        }
        entered.map(drop).map_err(named("io_uring_enter"))
    }
}

/// Looks at a ring until an enter would find something, for so long at most.
pub(super) fn at(ring: &Ring, upto: Duration) -> bool {
    let kernel: &dyn Kernel = &**ring.kernel();
    let end = kernel.now() + upto;
    loop {
        for _ in 0..TRIES {
            if ring.work_pending() || ring.ready() > 0 || ring.overflowed() {
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

    const BRIEFLY: Duration = Duration::from_micros(20);

    /// Of so many sleeps, those before which it looked.
    fn looks(look: &mut Look, sleeps: usize, found: bool) -> usize {
        let looked = |_: &usize| {
            let looks = look.before_sleep().is_some();
            if looks {
                look.learn(found);
            }
            looks
        };
        (0..sleeps).filter(looked).count()
    }

    #[test]
    fn a_look_that_taught_nothing_is_still_due() {
        let mut look = Look::new(BRIEFLY);
        look.learn(false);
        let due = (0..100).filter(|_| look.before_sleep().is_some()).count();
        assert_eq!(due, 100 - (SOON as usize - 1));
    }

    #[test]
    fn off_is_never() {
        assert_eq!(looks(&mut Look::new(Duration::ZERO), 1000, true), 0);
    }

    #[test]
    fn what_pays_goes_on_and_what_does_not_becomes_rare() {
        let mut look = Look::new(BRIEFLY);
        assert_eq!(looks(&mut look, 1000, true), 1000);
        let in_vain = looks(&mut look, 100_000, false);
        assert!((9..120).contains(&in_vain), "{in_vain} looks in vain");
        // It takes at most a pause to notice, and then all of them.
        assert!(looks(&mut look, SELDOM as usize + 100, true) > 100);
        assert_eq!(looks(&mut look, 1000, true), 1000);
    }

    #[test]
    fn one_in_ten_in_vain_is_worth_it_and_one_in_two_is_not() {
        let share = |each: usize| {
            let mut look = Look::new(BRIEFLY);
            let mut count = 0;
            for sleep in 1..=10_000 {
                if look.before_sleep().is_some() {
                    count += 1;
                    look.learn(sleep % each != 0);
                }
            }
            count
        };
        assert_eq!(share(10), 10_000);
        assert!(share(2) < 2_500);
    }
}
