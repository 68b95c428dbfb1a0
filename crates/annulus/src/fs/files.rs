//! What a runtime knows of its files: where their calls are made, and how that went.

use super::habits::{Habits, Timing};
use super::policy::Policy;
use annulus_driver::Counters;
use annulus_ring::Kernel;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// What a turn spends on calls on the loop before the others get theirs: about as many nanoseconds.
const BREATH: u64 = 100_000;
/// What a call takes, at least, and how many bytes it moves in a nanosecond.
const CALL: u64 = 400;
const SPEED: u64 = 8;
/// A stall that even the coarse clock shows: its own step is a few milliseconds.
const STALL: Duration = Duration::from_millis(8);

/// Beside the driver and its slots: no call that is made on the loop needs those.
pub(crate) struct Files {
    /// Where calls are made, unless their file says otherwise.
    pub(crate) policy: Policy,
    pub(crate) habits: RefCell<Habits>,
    inline: Cell<u64>,
    misses: Cell<u64>,
    /// What this turn has spent on calls.
    spent: Cell<u64>,
}

impl Files {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            habits: RefCell::new(Habits::new()),
            inline: Cell::new(0),
            misses: Cell::new(0),
            spent: Cell::new(0),
        }
    }

    /// A new turn.
    #[inline]
    pub(crate) fn renew(&self) {
        self.spent.set(0);
    }

    /// True where this turn has made enough calls.
    #[inline]
    pub(crate) fn is_out_of_breath(&self) -> bool {
        self.spent.get() >= BREATH
    }

    /// Counts a call that moves so many bytes at most.
    #[inline]
    pub(crate) fn count_inline(&self, bytes: usize) {
        self.inline.set(self.inline.get() + 1);
        self.spend(bytes);
    }

    /// Counts what a call takes of this turn's time.
    #[inline]
    pub(crate) fn spend(&self, bytes: usize) {
        self.spent.set(self.spent.get() + CALL + bytes as u64 / SPEED);
    }

    pub(crate) fn count_miss(&self) {
        self.misses.set(self.misses.get() + 1);
        self.spend(0);
    }

    /// The driver's counts, with the calls that it never saw.
    pub(crate) fn add_to(&self, counters: Counters) -> Counters {
        Counters {
            file_inline: counters.file_inline + self.inline.get(),
            file_misses: self.misses.get(),
            ..counters
        }
    }
}

/// Runs `call`, and tells how long it took where that is known.
#[inline]
pub(crate) fn timed<T>(
    kernel: &dyn Kernel,
    timing: Timing,
    call: impl FnOnce() -> T,
) -> (T, Option<Duration>) {
    match timing {
        Timing::Fine => {
            let began = kernel.now();
            let answer = call();
            (answer, Some(kernel.now() - began))
        }
        Timing::Coarse => {
            let began = kernel.tick();
            let answer = call();
            (answer, Some(kernel.tick() - began).filter(|took| *took >= STALL))
        }
    }
}
