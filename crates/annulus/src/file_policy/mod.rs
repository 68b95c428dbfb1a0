//! The policy that decides if a file call is made inline, on the loop, or off it.
//!
//! - [`latency`]: how long calls of each kind have lately taken on each device.
//! - [`page_cache`]: if the data of a file's next read is probably in memory.
//! - [`places`], [`devices`]: on which mount and device a path is, before the file is open.
//! - Here: the inline budget of a turn, and the sampled timing of inline calls.
//!
//! These are data and arithmetic; `fs/call.rs` makes the calls.

mod devices;
mod latency;
mod page_cache;
mod places;

pub(crate) use devices::Entry;
pub use latency::QUICK;
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

/// The inline budget: about as many nanoseconds of a turn go to inline calls before other tasks run.
const BUDGET: u64 = 100_000;
/// The estimated cost of a call: nanoseconds at least, and bytes moved in each further nanosecond.
const CALL: u64 = 400;
const BYTES_PER_NS: u64 = 8;
/// The clock is read after this many calls that are not timed one by one.
const CLOCK_EVERY: u32 = 4;
/// Time between two readings that means that a call may have stalled. The coarse clock steps by a few milliseconds.
const STALL: Duration = Duration::from_millis(8);

/// Where file calls are made: inline, on the loop, or off it.
///
/// io_uring hands most file operations to kernel workers, and the way there and back costs more than a call on cached data. But an
/// inline call that waits for a device holds up everything else on the loop.
///
/// Whatever the policy, no call is made inline that may wait for a server: on a network file system, FUSE, an automount, or any type that
/// is not known to be local. Such calls go to threads of their own, a few for each mount, so that a server that no longer answers stops
/// neither the loop nor calls on other mounts. Closing such a file goes there, too.
///
/// ```
/// use annulus::fs::{OpenOptions, Policy};
///
/// // For a runtime whose files are all on a network file system, and one file that is in memory.
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
    /// Inline, as in a plain program. While a device makes a call wait, everything else on the loop waits with it. Calls that may
    /// wait for another process, on pipes and terminals, leave the loop all the same.
    Inline,
    /// Inline if that has been quick: reads that find their data in memory, and calls that the device has lately done within
    /// [`QUICK`](crate::fs::QUICK). Off the loop otherwise. Calls of a kind that was never made are made inline: a device that is
    /// slow from the start holds up the loop a few times for each kind of call. So may a file that was in memory for a thousand
    /// reads and no longer is. The default.
    #[default]
    Adaptive,
    /// Always off the loop: reads, direct writes and calls on paths by the ring, all others by a worker thread.
    Offload,
}

named!(Policy, "policy", {
    "inline" => Inline,
    "adaptive" => Adaptive,
    "offload" => Offload,
});

/// A runtime's data about its file calls. It lies beside the driver and the slots: an inline call needs neither.
pub(crate) struct InlinePolicy {
    /// Where calls are made, unless their file says otherwise.
    pub(crate) default: Policy,
    /// How long calls of each kind have lately taken on each device.
    latency: RefCell<LatencyPolicy>,
    /// The places of paths.
    places: RefCell<Places>,
    /// Directories opened so far.
    serials: Cell<u64>,
    /// Files are those of Linux, not of a simulation.
    is_real: bool,
    /// Calls made inline so far, and those that failed since their data was not in memory.
    inline: Cell<u64>,
    misses: Cell<u64>,
    /// The part of the budget that this turn has used.
    spent: Cell<u64>,
    /// Turns so far.
    turn: Cell<u64>,
    /// The last clock reading, and the calls made since.
    last_reading: Cell<Duration>,
    since_reading: Cell<u32>,
    /// A descriptor was closed in this turn.
    closed: Cell<bool>,
    /// Reads, and opens, that fail instead of waiting are refused in this process.
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
            turn: Cell::new(0),
            last_reading: Cell::default(),
            since_reading: Cell::default(),
            closed: Cell::default(),
            refused: Default::default(),
        }
    }

    /// Begins a turn, with a new budget if the loop has looked for events. True if a descriptor was closed since the last one began.
    #[inline]
    pub(crate) fn begin_turn(&self, has_looked: bool) -> bool {
        if has_looked {
            self.spent.set(0);
        }
        self.turn.set(self.turn.get().wrapping_add(1));
        self.closed.replace(false)
    }

    /// Notes that a descriptor was closed.
    #[inline]
    pub(crate) fn note_close(&self) {
        self.closed.set(true);
    }

    /// The number of this turn, which wraps.
    #[inline]
    pub(crate) fn turn(&self) -> u32 {
        self.turn.get() as u32
    }

    /// Turns so far.
    pub(crate) fn turns(&self) -> u64 {
        self.turn.get()
    }

    /// Whether this turn has made enough inline calls.
    #[inline]
    pub(crate) fn is_budget_spent(&self) -> bool {
        self.spent.get() >= BUDGET
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
        self.spent.set(self.spent.get() + CALL + bytes as u64 / BYTES_PER_NS);
    }

    /// The driver's counters, with the calls that it never saw.
    pub(crate) fn add_to(&self, mut counters: Counters) -> Counters {
        counters.file_inline += self.inline.get();
        counters.file_misses = self.misses.get();
        counters
    }

    /// A number that no other open file of the runtime has.
    pub(crate) fn next_serial(&self) -> u64 {
        self.serials.set(self.serials.get() + 1);
        self.serials.get()
    }

    /// Where a call on a path goes, if that is known without asking a file system.
    pub(crate) fn place_of(&self, start: Start, entry: Entry<'_>) -> Option<Place> {
        if !self.is_real {
            return self.places.borrow_mut().known.find(entry);
        }
        let device = |number| self.device_by_number(number);
        self.places.borrow_mut().find(start, entry, self.turn.get(), device)
    }

    /// As [`place_of`](Self::place_of), of what the path leads to if its last part is a symbolic link. Call that first.
    pub(crate) fn place_behind(&self, start: Start, entry: Entry<'_>) -> Option<Place> {
        let device = |number| self.device_by_number(number);
        self.places.borrow().follow(start, entry, device)
    }

    /// As [`place_of`](Self::place_of), of a path whose directory was opened.
    pub(crate) fn learn_place(&self, entry: Entry<'_>, dir: BorrowedFd<'_>) -> Option<Place> {
        let device = |number| self.device_by_number(number);
        self.places.borrow_mut().learn(entry, dir, device)
    }

    /// Where calls on an open file go.
    pub(crate) fn place_of_file(&self, file: Fd) -> Place {
        if !self.is_real {
            return Place::Local(DeviceId::default());
        }
        let device = |number| self.device_by_number(number);
        self.places.borrow_mut().of_file(file, self.turn.get(), device)
    }

    /// The device with this number.
    fn device_by_number(&self, number: u64) -> DeviceId {
        self.latency.borrow_mut().device(number)
    }

    /// Notes the number of the device that a path of a simulation is on.
    pub(crate) fn learn_device(&self, entry: Entry<'_>, number: u64) -> DeviceId {
        let device = self.device_by_number(number);
        self.places.borrow_mut().known.insert(entry, Place::Local(device));
        device
    }

    /// Whether reads and opens on a device can be asked to fail instead of waiting, as far as is known.
    #[inline]
    pub(crate) fn supports_nowait(&self, device: DeviceId) -> bool {
        self.latency.borrow().supports_nowait(device)
    }

    /// Notes that they cannot.
    pub(crate) fn note_no_nowait(&self, device: DeviceId) {
        self.latency.borrow_mut().note_no_nowait(device);
    }

    /// Whether reads, or opens, that fail instead of waiting turned out to be refused as such, whatever the device.
    #[inline]
    pub(crate) fn is_refused(&self, class: Class) -> bool {
        self.refused[usize::from(class == Class::Open)].get()
    }

    /// Notes that they are refused.
    pub(crate) fn note_refused(&self, class: Class) {
        self.refused[usize::from(class == Class::Open)].set(true);
    }

    /// How a call is to be timed that is about to be made inline; `None` if it must not be, because such calls were slow.
    #[inline]
    pub(crate) fn before_inline(&self, kind: &CallKind) -> Option<Timing> {
        self.latency.borrow_mut().before_inline(kind)
    }

    /// Notes how long an inline call took.
    pub(crate) fn after_inline(&self, kind: &CallKind, took: Duration) {
        self.latency.borrow_mut().after_inline(kind, took);
    }

    /// Notes how long a call took off the loop.
    pub(crate) fn after_offload(&self, kind: &CallKind, took: Duration) {
        self.latency.borrow_mut().after_offload(kind, took);
    }

    /// Makes a call, and measures how long it took.
    #[inline]
    pub(crate) fn timed<T>(&self, kernel: &dyn Kernel, call: impl FnOnce() -> T) -> (T, Duration) {
        let began = kernel.now();
        let answer = call();
        let ended = kernel.now();
        self.last_reading.set(ended);
        (answer, ended - began)
    }

    /// Makes an inline call, and notes how long it took. If that is sampled, the clock is read after every few calls: true if so
    /// much time has passed since the last reading that this call or one before it may have stalled. Then all calls are timed for
    /// a while.
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
        let stalled = calls >= CLOCK_EVERY && self.read_clock(kernel);
        if stalled {
            self.latency.borrow_mut().time_all();
        }
        (answer, stalled)
    }

    /// Whether more time has passed since the last reading than calls take that do not stall.
    #[inline]
    fn read_clock(&self, kernel: &dyn Kernel) -> bool {
        self.since_reading.set(0);
        let now = Duration::from_nanos(kernel.tick());
        now.saturating_sub(self.last_reading.replace(now)) >= STALL
    }
}
