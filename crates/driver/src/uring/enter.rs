//! The turn of the ring: queued entries go in, and the loop waits for completions.

use super::Uring;
use crate::wait::Wait;
use annulus_kernel::named;
use annulus_ring::Wait as RingWait;
use std::io;
use std::time::Duration;

impl Uring {
    #[inline]
    pub(crate) fn turn(&mut self, wait: Wait) -> io::Result<()> {
        self.push_backlog();
        if self.trim_timer.is_due()
            && self.common.pools().any(|pool| pool.touched())
            && self.backlog.is_empty()
        {
            let entry = self.trim_timer.start(self.common.counters.cqes);
            self.push(entry);
        }
        if self.trim.is_some() && self.ring.ready() == 0 && !self.ring.overflowed() {
            self.trim_pools();
        }
        let urgent = self.ring.overflowed()
            || self.ring.ready() > 0
            || !self.backlog.is_empty()
            || !self.files.is_empty();
        self.common.counters.overflows += u64::from(self.ring.overflowed());
        match wait {
            Wait::UpTo(timeout) if !urgent => self.sleep(timeout),
            Wait::No if self.needs_no_enter() => {
                self.all_taken = true;
                Ok(())
            }
            Wait::UpTo(_) | Wait::No => self.enter(RingWait::Reap),
        }
    }

    /// Submits, and waits for a completion or until the time is up. If it pays, polls first.
    #[inline]
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = match self.busy_poll.before_sleep() {
            None => timeout,
            Some(limit) => match self.poll_briefly(limit, timeout)? {
                None => return Ok(()),
                Some(left) => timeout.and(Some(left)),
            },
        };
        self.enter(RingWait::For { completions: 1, timeout })
    }

    /// One `io_uring_enter`, if the ring needs it.
    #[inline]
    pub(super) fn enter(&mut self, wait: RingWait) -> io::Result<()> {
        let entered = self.ring.enter(wait);
        self.early = 0;
        self.all_taken = self.is_clear();
        self.common.counters.enters += 1;
        entered.map(drop).map_err(named("io_uring_enter"))
    }

    /// Submits the queued entries, and takes no completions.
    pub(super) fn submit_queued(&mut self) {
        self.early = 0;
        // An error returns at the end of the turn, where it is reported.
        _ = self.ring.enter(RingWait::No);
        self.common.counters.enters += 1;
    }

    /// Whether everything that was submitted has been started.
    pub(crate) fn is_clear(&self) -> bool {
        self.backlog.is_empty() && self.ring.pending() == 0
    }

    #[inline]
    pub(crate) fn all_taken(&self) -> bool {
        self.all_taken
    }

    #[inline]
    pub(crate) fn settled(&self) -> bool {
        self.all_taken && self.ring.ready() == 0 && !self.ring.overflowed()
    }
}
