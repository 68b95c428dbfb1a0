//! The policy that decides whether a file call is made inline or off the loop.
//!
//! - [`latency`]: how long each kind of call has recently taken on each device.
//! - [`page_cache`]: whether the data of a file's next read is probably in memory.
//! - [`places`], [`devices`]: on which mount and device a path is, before the file is open.
//! - This module: the inline budget of a turn, and the sampled timing of inline calls.
//!
//! This module only holds data and computes; `fs/call.rs` makes the calls.

mod devices;
mod latency;
mod page_cache;
mod places;

pub(crate) use devices::PathEntry;
pub(crate) use latency::{CallKind, Class, DeviceId, Timing};
pub(crate) use page_cache::PageCache;
pub(crate) use places::{Place, Start};

use crate::name::named;
use annulus_driver::Counters;
use annulus_kernel::{Fd, Kernel};
use latency::LatencyPolicy;
use places::Places;
use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The inline budget: inline calls may take about this many nanoseconds of a turn before other
/// tasks run.
const INLINE_BUDGET_NS: u64 = 100_000;
/// The minimum share of the budget that a task gets before it must wait for the others: two reads
/// of 4 KiB.
const MIN_SHARE_NS: u64 = 2_000;
/// The estimated cost of a call: a minimum in nanoseconds, and the number of bytes moved per
/// further nanosecond.
const MIN_CALL_NS: u64 = 400;
const BYTES_PER_NS: u64 = 8;
/// The clock is read after this many calls that are not timed individually.
const CALLS_PER_CLOCK_READ: u32 = 4;
/// Minimum time between two readings that suggests that a call has stalled. The coarse clock
/// advances in steps of a few milliseconds.
const MIN_STALL_GAP: Duration = Duration::from_millis(8);

/// Where file calls are made: inline, which is on the loop's thread, or off the loop.
///
/// io_uring hands most file operations to kernel workers, and that round trip costs more than a
/// call on cached data. But an inline call that waits for a device holds up everything else on the
/// loop.
///
/// Under every policy, calls that may wait for a server leave the loop: those on network file
/// systems, FUSE, automounts, and any file system type that is not known to be local. They run on
/// separate threads, a few per mount, so that a server that no longer answers blocks neither the
/// loop nor calls on other mounts. Closing such a file also runs there.
///
/// ```
/// use annulus::fs::{OpenOptions, Policy};
///
/// // For a runtime whose files are all on a network file system, except for one that is in memory.
/// let mut runtime = annulus::Runtime::builder().file_policy(Policy::Offload).build()?;
/// runtime.block_on(async {
///     let cpus = OpenOptions::new().read(true).policy(Policy::Inline).open("/proc/cpuinfo").await?;
///     let (read, _text) = cpus.read_at(Vec::with_capacity(4096), 0).await;
///     assert!(read? > 0);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Inline, as in an ordinary program. While a device makes a call wait, everything else on the
    /// loop waits too. Calls that may wait for another process, on pipes and terminals, still leave
    /// the loop.
    Inline,
    /// Inline if that is expected to be quick: reads whose data is in memory, and kinds of calls
    /// that have recently taken at most 25 µs on the device. Otherwise off the loop. The first calls
    /// of each kind are made inline, so a device that is slow from the start holds up the loop a few
    /// times per kind of call. A file whose data is evicted from memory after a thousand cached
    /// reads may also hold up the loop. The default.
    #[default]
    Adaptive,
    /// Always off the loop: on the ring, or on a worker thread if there is no ring or it cannot
    /// make the call correctly.
    Offload,
}

named!(Policy, "policy", {
    "inline" => Inline,
    "adaptive" => Adaptive,
    "offload" => Offload,
});

/// A runtime's data about its file calls. It is kept apart from the driver and the slots, because
/// an inline call needs neither.
pub(crate) struct InlinePolicy {
    /// Where calls are made, unless the file has its own policy.
    pub(crate) default: Policy,
    latency: RefCell<LatencyPolicy>,
    places: RefCell<Places>,
    /// The last serial number given to an open file or directory.
    serials: Cell<u64>,
    /// Whether files are real and not simulated.
    is_real: bool,
    /// Number of calls made inline so far, and of calls that failed because their data was not in
    /// memory.
    inline: Cell<u64>,
    misses: Cell<u64>,
    /// Nanoseconds of the budget used in this turn.
    spent: Cell<u64>,
    /// The running task must wait once this much is used: the whole budget, or the end of its share
    /// once tasks have waited. Zero while tasks give way.
    limit: Cell<u64>,
    /// Each task's share of the budget.
    share: Cell<u64>,
    /// What the last call used of the budget.
    last_cost: Cell<u64>,
    /// Number of times that a task has waited in this turn, because the budget was used up or
    /// because the task gave way.
    waited: Cell<u64>,
    /// Number of tasks that must still give way before this turn's budget may be used.
    giving_way: Cell<u64>,
    /// The state of the generator that chooses how many tasks give way. It starts the same in each
    /// runtime, so that simulations can be repeated.
    random: Cell<u64>,
    turn: Cell<u64>,
    /// The last clock reading, and the number of untimed calls since the last `read_clock`.
    last_reading: Cell<Duration>,
    since_reading: Cell<u32>,
    /// Whether the descriptor of a file has been closed since the turn began.
    closed: Cell<bool>,
    /// Whether the kernel refuses this process reads (index 0) and opens (index 1) that fail
    /// instead of waiting.
    refused: [Cell<bool>; 2],
}

impl InlinePolicy {
    pub(crate) fn new(default: Policy, is_real: bool) -> Self {
        Self {
            default,
            latency: RefCell::new(LatencyPolicy::new()),
            places: RefCell::default(),
            serials: Cell::new(0),
            is_real,
            inline: Cell::new(0),
            misses: Cell::new(0),
            spent: Cell::new(0),
            limit: Cell::new(INLINE_BUDGET_NS),
            share: Cell::new(INLINE_BUDGET_NS),
            last_cost: Cell::new(0),
            waited: Cell::new(0),
            giving_way: Cell::new(0),
            random: Cell::new(1),
            turn: Cell::new(0),
            last_reading: Cell::default(),
            since_reading: Cell::default(),
            closed: Cell::default(),
            refused: Default::default(),
        }
    }

    /// Begins a turn, with a new budget if the loop has checked for events. Returns true if a
    /// descriptor was closed since the previous turn began.
    #[inline]
    pub(crate) fn begin_turn(&self, has_checked_events: bool) -> bool {
        if has_checked_events {
            match self.is_budget_spent() || self.waited.get() > 0 {
                true => self.renew_contested(),
                false => self.spent.set(0),
            }
        }
        self.turn.set(self.turn.get().wrapping_add(1));
        self.closed.replace(false)
    }

    /// Renews a budget that was used up or waited for, and divides it among as many tasks as have
    /// waited. If it was also used up, a random number of the tasks that run first give way. Tasks
    /// usually run in the same order in each turn, so otherwise the same ones would use up every
    /// budget, and the ones after them would wait forever.
    #[cold]
    fn renew_contested(&self) {
        let waited = self.waited.replace(0);
        let was_used_up = self.spent.replace(0) >= INLINE_BUDGET_NS;
        let giving_way = if was_used_up && waited > 0 { self.random_up_to(waited) } else { 0 };
        self.giving_way.set(giving_way);
        self.share.set((INLINE_BUDGET_NS / waited.max(1)).max(MIN_SHARE_NS));
        match giving_way {
            0 => self.begin_share(),
            _ => self.limit.set(0),
        }
    }

    /// Begins the share of a task. It ends before the call that would exceed it if that costs as
    /// much as the last one did. Otherwise the last tasks of a turn would get nothing.
    fn begin_share(&self) {
        let share = self.share.get().saturating_sub(self.last_cost.get()).max(1);
        self.limit.set((self.spent.get() + share).min(INLINE_BUDGET_NS));
    }

    /// Returns a number from 0 up to and including `max` (xorshift64).
    fn random_up_to(&self, max: u64) -> u64 {
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        random % (max + 1)
    }

    /// Records that a task waits for a later turn, because
    /// [`is_budget_spent`](Self::is_budget_spent) returned true. The next task gets its share,
    /// unless it has to give way too.
    pub(crate) fn note_wait(&self) {
        self.waited.set(self.waited.get() + 1);
        self.giving_way.set(self.giving_way.get().saturating_sub(1));
        if self.giving_way.get() == 0 {
            self.begin_share();
        }
    }

    #[inline]
    pub(crate) fn note_close(&self) {
        self.closed.set(true);
    }

    /// Returns the number of this turn, which wraps.
    #[inline]
    pub(crate) fn turn(&self) -> u32 {
        self.turn.get() as u32
    }

    pub(crate) fn turns(&self) -> u64 {
        self.turn.get()
    }

    /// Returns true if the running task must leave the rest of this turn's budget for inline calls
    /// to other tasks, or if nothing is left.
    #[inline]
    pub(crate) fn is_budget_spent(&self) -> bool {
        self.spent.get() >= self.limit.get()
    }

    /// Counts an inline call that moves at most this many bytes.
    #[inline]
    pub(crate) fn count_inline(&self, bytes: usize) {
        self.inline.set(self.inline.get() + 1);
        self.spend(bytes);
    }

    /// Counts a call that failed because its data was not in memory.
    pub(crate) fn count_miss(&self) {
        self.misses.set(self.misses.get() + 1);
        self.spend(0);
    }

    #[inline]
    fn spend(&self, bytes: usize) {
        let cost = MIN_CALL_NS + bytes as u64 / BYTES_PER_NS;
        self.last_cost.set(cost);
        self.spent.set(self.spent.get() + cost);
    }

    /// Adds the calls that the driver never saw to its counters.
    pub(crate) fn add_to(&self, mut counters: Counters) -> Counters {
        counters.file_inline += self.inline.get();
        counters.file_misses = self.misses.get();
        counters
    }

    /// Returns a number that no other open file of the runtime has.
    pub(crate) fn next_serial(&self) -> u64 {
        self.serials.set(self.serials.get() + 1);
        self.serials.get()
    }

    /// Returns where a call on a path goes, if that is known without asking a file system.
    pub(crate) fn place_of(&self, start: Start, entry: PathEntry<'_>) -> Option<Place> {
        if !self.is_real {
            return self.places.borrow_mut().known.find(entry);
        }
        let device = |number| self.device_by_number(number);
        self.places.borrow_mut().find(start, entry, self.turn.get(), device)
    }

    /// Like [`place_of`](Self::place_of), for the target of the path if its last part is a symbolic
    /// link. Call `place_of` first.
    pub(crate) fn place_behind(&self, start: Start, entry: PathEntry<'_>) -> Option<Place> {
        let device = |number| self.device_by_number(number);
        self.places.borrow().follow(start, entry, device)
    }

    /// Like [`place_of`](Self::place_of), for a path whose directory has been opened.
    pub(crate) fn learn_place(&self, entry: PathEntry<'_>, dir: BorrowedFd<'_>) -> Option<Place> {
        let device = |number| self.device_by_number(number);
        self.places.borrow_mut().learn(entry, dir, device)
    }

    /// Returns where calls on an open file go.
    pub(crate) fn place_of_file(&self, file: Fd) -> Place {
        if !self.is_real {
            return Place::Local(DeviceId::default());
        }
        let device = |number| self.device_by_number(number);
        self.places.borrow_mut().of_file(file, self.turn.get(), device)
    }

    fn device_by_number(&self, number: u64) -> DeviceId {
        self.latency.borrow_mut().device(number)
    }

    /// Records the number of the device that a simulated path is on.
    pub(crate) fn learn_device(&self, entry: PathEntry<'_>, number: u64) -> DeviceId {
        let device = self.device_by_number(number);
        self.places.borrow_mut().known.insert(entry, Place::Local(device));
        device
    }

    /// Returns true unless the device is known not to support reads and opens that fail instead of
    /// waiting.
    #[inline]
    pub(crate) fn supports_nowait(&self, device: DeviceId) -> bool {
        self.latency.borrow().supports_nowait(device)
    }

    pub(crate) fn note_no_nowait(&self, device: DeviceId) {
        self.latency.borrow_mut().note_no_nowait(device);
    }

    /// Returns true if the kernel refuses this process calls of this class that fail instead of
    /// waiting, whatever the device.
    #[inline]
    pub(crate) fn is_refused(&self, class: Class) -> bool {
        self.refused[usize::from(class == Class::Open)].get()
    }

    /// Records that the kernel refuses this process calls of this class that fail instead of
    /// waiting.
    pub(crate) fn note_refused(&self, class: Class) {
        self.refused[usize::from(class == Class::Open)].set(true);
    }

    /// Decides how to time a call that is about to be made inline. Returns `None` if it must not be
    /// made inline, because such calls were slow.
    #[inline]
    pub(crate) fn before_inline(&self, kind: &CallKind) -> Option<Timing> {
        self.latency.borrow_mut().before_inline(kind)
    }

    pub(crate) fn after_inline(&self, kind: &CallKind, took: Duration) {
        self.latency.borrow_mut().after_inline(kind, took);
    }

    /// Returns true if calls of this kind are made off the loop because they were slow. Only these
    /// need [`after_offload`](Self::after_offload).
    pub(crate) fn is_slow(&self, kind: &CallKind) -> bool {
        self.latency.borrow().is_slow(kind)
    }

    pub(crate) fn after_offload(&self, kind: &CallKind, took: Duration) {
        self.latency.borrow_mut().after_offload(kind, took);
    }

    #[inline]
    pub(crate) fn timed<T>(&self, kernel: &dyn Kernel, call: impl FnOnce() -> T) -> (T, Duration) {
        let began = kernel.now();
        let answer = call();
        let ended = kernel.now();
        self.last_reading.set(ended);
        (answer, ended - began)
    }

    /// Makes an inline call. With exact timing, records how long it took. With sampled timing, only
    /// reads the clock after every few calls, and returns true if the time since the last reading
    /// means that one of them may have stalled; all calls are then timed for a while.
    #[inline]
    pub(crate) fn measured<T>(
        &self,
        kernel: &dyn Kernel,
        timing: Timing,
        kind: &CallKind,
        call: impl FnOnce() -> T,
    ) -> (T, bool) {
        let began = (timing == Timing::Exact).then(|| kernel.now());
        let answer = call();
        if let Some(began) = began {
            let ended = kernel.now();
            self.last_reading.set(ended);
            self.after_inline(kind, ended - began);
            return (answer, false);
        }
        let calls = self.since_reading.get() + 1;
        self.since_reading.set(calls);
        let stalled = calls >= CALLS_PER_CLOCK_READ && self.read_clock(kernel);
        if stalled {
            self.latency.borrow_mut().time_all();
        }
        (answer, stalled)
    }

    /// Reads the clock. Returns true if more time has passed since the last reading than calls take
    /// without a stall.
    #[inline]
    fn read_clock(&self, kernel: &dyn Kernel) -> bool {
        self.since_reading.set(0);
        let now = Duration::from_nanos(kernel.tick());
        now.saturating_sub(self.last_reading.replace(now)) >= MIN_STALL_GAP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs turns in which each of these tasks makes reads of 4 KiB until it must wait. Returns how
    /// many reads each task made in each turn.
    fn reads(tasks: usize, turns: usize) -> Vec<Vec<u64>> {
        let policy = InlinePolicy::new(Policy::Adaptive, false);
        let task = || {
            let before = policy.inline.get();
            while !policy.is_budget_spent() {
                policy.count_inline(4096);
            }
            policy.note_wait();
            policy.inline.get() - before
        };
        let turn = || {
            policy.begin_turn(true);
            std::iter::repeat_with(task).take(tasks).collect()
        };
        std::iter::repeat_with(turn).take(turns).collect()
    }

    #[test]
    fn tasks_that_wait_share_the_budget_of_a_turn() {
        const READS_PER_TURN: u64 = INLINE_BUDGET_NS / (MIN_CALL_NS + 4096 / BYTES_PER_NS);
        for tasks in [1, 2, 3, 10, 32] {
            let turns = reads(tasks, 100);
            assert_eq!(turns[0].iter().sum::<u64>(), READS_PER_TURN + 1, "{tasks} tasks");
            // In the next turn some give way, because the first task has used up the budget.
            let shares = vec![READS_PER_TURN / tasks as u64; tasks];
            assert_eq!(turns[2..].iter().find(|turn| **turn != shares), None, "{tasks} tasks");
        }
    }

    #[test]
    fn no_task_waits_for_long_if_the_shares_exceed_the_budget() {
        for tasks in [64, 128] {
            let turns = reads(tasks, 1000);
            for task in 0..tasks {
                let waits = turns.split(|turn| turn[task] > 0).map(<[_]>::len).max();
                assert!(waits < Some(tasks), "{tasks} tasks: {task} waits for {waits:?} turns");
            }
        }
    }
}
