//! What a runtime knows of its files: where their calls are made, and how that went.

use super::directories::Folders;
use super::latency::Habits;
use super::policy::Policy;
use annulus_driver::Counters;
use annulus_kernel::Kernel;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// What a turn spends on calls on the loop before the others get theirs: about as many nanoseconds.
const BREATH: u64 = 100_000;
/// What a call takes, at least, and how many bytes it moves in a nanosecond.
const CALL: u64 = 400;
const SPEED: u64 = 8;
/// Of so many calls, one is followed by a look at the clock.
const GLANCE: u32 = 4;
/// A stall that even the coarse clock shows: its own step is a few milliseconds.
const STALL: Duration = Duration::from_millis(8);

/// Beside the driver and its slots: no call that is made on the loop needs those.
pub(crate) struct Files {
    /// Where calls are made, unless their file says otherwise.
    pub(crate) policy: Policy,
    pub(crate) habits: RefCell<Habits>,
    pub(crate) folders: RefCell<Folders>,
    inline: Cell<u64>,
    misses: Cell<u64>,
    /// What this turn has spent on calls.
    spent: Cell<u64>,
    turn: Cell<u32>,
    /// When the clock was looked at last, and how many calls have not been seen since.
    looked: Cell<Duration>,
    unseen: Cell<u32>,
    /// A descriptor was closed in this turn.
    closed: Cell<bool>,
}

impl Files {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            habits: RefCell::new(Habits::new()),
            folders: RefCell::default(),
            inline: Cell::new(0),
            misses: Cell::new(0),
            spent: Cell::new(0),
            turn: Cell::new(0),
            looked: Cell::default(),
            unseen: Cell::default(),
            closed: Cell::default(),
        }
    }

    /// A new turn; true where a descriptor was closed since the last one began.
    #[inline]
    pub(crate) fn renew(&self) -> bool {
        self.spent.set(0);
        self.turn.set(self.turn.get().wrapping_add(1));
        self.closed.replace(false)
    }

    /// Notes that a descriptor was closed.
    #[inline]
    pub(crate) fn note_close(&self) {
        self.closed.set(true);
    }

    /// The number of this turn; they come round again.
    #[inline]
    pub(crate) fn turn(&self) -> u32 {
        self.turn.get()
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
    fn spend(&self, bytes: usize) {
        self.spent.set(self.spent.get() + CALL + bytes as u64 / SPEED);
    }

    pub(crate) fn count_miss(&self) {
        self.misses.set(self.misses.get() + 1);
        self.spend(0);
    }

    /// The driver's counts, with the calls that it never saw.
    pub(crate) fn add_to(&self, mut counters: Counters) -> Counters {
        counters.file_inline += self.inline.get();
        counters.file_misses = self.misses.get();
        counters
    }

    /// Makes a call, and tells how long it took.
    #[inline]
    pub(crate) fn timed<T>(&self, kernel: &dyn Kernel, call: impl FnOnce() -> T) -> (T, Duration) {
        let began = kernel.now();
        let answer = call();
        let ended = kernel.now();
        self.looked.set(ended);
        (answer, ended - began)
    }

    /// Makes a call; true where something may have stalled. That is looked for after every few calls, by the time since
    /// the last look: it may have been this call, one before it, or nobody's but the caller's own doing.
    #[inline]
    pub(crate) fn glanced<T>(&self, kernel: &dyn Kernel, call: impl FnOnce() -> T) -> (T, bool) {
        let answer = call();
        let unseen = self.unseen.get() + 1;
        self.unseen.set(unseen);
        (answer, unseen >= GLANCE && self.look(kernel))
    }

    /// Whether it is longer since the last look than calls take that do not stall.
    #[inline]
    fn look(&self, kernel: &dyn Kernel) -> bool {
        self.unseen.set(0);
        let now = kernel.tick();
        now.saturating_sub(self.looked.replace(now)) >= STALL
    }
}
