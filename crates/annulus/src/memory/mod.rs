//! The memory that streams and datagram sockets hold, measured once per turn, and how much each
//! stream may therefore hold.
//!
//! The pools count the bytes that receives have written to their buffers, and a [`Meter`] counts
//! heap memory. Their sum and the limit determine a stream's *allowance* and the *budget* of the
//! turn's receives. A stream above its allowance is *paused*: it receives only while it has no
//! undelivered bytes, and its sends wait. Paused streams are in a list, which is searched when the
//! allowance rises.
//!
//! Long before streams are paused, the bounds of each stream are lowered. Large bounds make fast
//! streams faster. But if many streams are fast, or if peers do not read, the process holds the sum
//! of these bounds. So while more than [`LOWERING_MARK_BYTES`] are in use, the bounds are at most
//! [`LOWERED_BOUNDS`]. For undelivered bytes this applies to every stream, and for unsent bytes
//! only to streams whose peer makes no room, because other streams soon send their queued bytes. A
//! stream at a lowered bound waits for its own task or peer, as at any other bound, so nothing has
//! to be done when the bounds rise again. Receives that were armed before the bounds fell could
//! still deliver more, so they are armed again (see `Streams::shorten_receives`).
#![allow(unsafe_code)]

use annulus_driver::ReceiveBudget;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

mod limit;
mod machine;

pub use limit::MemoryLimit;

/// Bytes that each stream may hold, unless the limit has been exceeded. After that, a stream
/// receives only while it has no undelivered bytes, and queues only while it has no unsent bytes.
const MIN_STREAM_BYTES: usize = 8 * 1024;
/// The fraction 1/`RESERVED_PART` of the limit is reserved for streams that hold little.
const RESERVED_PART: usize = 4;
/// A single stream may hold 1/`STREAM_PART` of the free memory.
const STREAM_PART: usize = 8;
/// Minimum budget of receives in bytes, however little memory is free.
const MIN_RECEIVE_BUDGET_BYTES: usize = 64 * 1024;

/// Bytes in use by a runtime's sockets above which the bounds of each stream are lowered.
const LOWERING_MARK_BYTES: usize = 6 << 20;
/// The highest bounds that apply above [`LOWERING_MARK_BYTES`].
const LOWERED_BOUNDS: StreamBounds = StreamBounds { receive: 16 << 10, send: 4 << 10 };

/// The bytes that a stream may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamBounds {
    /// Undelivered bytes; at most `i32::MAX`.
    pub(crate) receive: usize,
    /// Queued and unsent bytes. Beyond this bound, a send waits.
    pub(crate) send: usize,
}

impl StreamBounds {
    /// Returns the lower bound of each kind.
    pub(crate) fn min(self, other: Self) -> Self {
        Self { receive: self.receive.min(other.receive), send: self.send.min(other.send) }
    }
}

/// The memory accounting of a runtime.
pub(crate) struct Memory {
    /// Counts the heap memory of streams and sockets.
    pub(crate) meter: Meter,
    /// The limit, which other runtimes may share; `None` if there is no limit.
    limit: Option<MemoryLimit>,
    /// Bytes that this runtime has reported to the limit.
    reported: usize,
    /// Bytes, undelivered and unsent together, beyond which a stream is paused.
    pub(crate) allowance: usize,
    /// The bounds of a stream while little memory is held.
    pub(crate) most: StreamBounds,
    /// The current bound of a stream's undelivered bytes.
    pub(crate) recv_bound: u32,
    /// The current bound of a stream's unsent bytes.
    pub(crate) send_bound: usize,
    /// The current bound of a stream's unsent bytes if its peer makes no room.
    pub(crate) waiting_bound: usize,
    /// Half of the limit.
    half: usize,
    /// Bytes in use above which the bounds are lowered.
    mark: usize,
    /// The number of held bytes at which the allowance and the bounds must be computed again.
    much: usize,
    /// Whether the bounds of each stream are lowered.
    is_lowered: bool,
    /// Whether more than half of the limit is in use.
    is_tight: bool,
    streams_paused: usize,
}

impl Memory {
    /// Creates the accounting. `most` are the bounds of a stream while little memory is held.
    pub(crate) fn new(limit: Option<MemoryLimit>, most: StreamBounds) -> Self {
        let bytes = limit.as_ref().map(MemoryLimit::bytes);
        let allowance = bytes.map_or(usize::MAX, |bytes| allowance(bytes, bytes / 2));
        let half = bytes.map_or(usize::MAX, |bytes| bytes / 2);
        let mut memory = Self {
            meter: Meter::default(),
            half,
            mark: LOWERING_MARK_BYTES.min(half),
            much: 0,
            limit,
            reported: 0,
            allowance,
            most,
            recv_bound: 0,
            send_bound: 0,
            waiting_bound: 0,
            is_lowered: false,
            is_tight: false,
            streams_paused: 0,
        };
        memory.set_bounds();
        memory
    }

    /// Returns the budget of a turn's receives while at most half of the limit is held.
    pub(crate) fn first_budget(&self) -> ReceiveBudget {
        self.limit
            .as_ref()
            .map_or(ReceiveBudget::UNLIMITED, |limit| budget(limit.bytes(), limit.bytes() / 2))
    }

    pub(crate) fn limit(&self) -> Option<&MemoryLimit> {
        self.limit.as_ref()
    }

    pub(crate) fn streams_paused(&self) -> usize {
        self.streams_paused
    }

    pub(crate) fn add_paused(&mut self) {
        self.streams_paused += 1;
        self.limit.iter().for_each(MemoryLimit::add_paused);
    }

    pub(crate) fn sub_paused(&mut self) {
        self.streams_paused -= 1;
        self.limit.iter().for_each(|limit| limit.sub_paused(1));
    }

    #[inline]
    pub(crate) fn is_tight(&self) -> bool {
        self.is_tight
    }

    /// Returns the size of a receive into heap memory: `most`, but at most 4 KiB while memory is
    /// short.
    pub(crate) fn piece(&self, most: u32) -> u32 {
        if self.is_tight { most.min(4096) } else { most }
    }

    /// Reports that this runtime holds `held` bytes. Returns the bytes that all runtimes of the
    /// limit hold, or `None` if that sum changes neither the allowance nor the bounds.
    #[inline]
    pub(crate) fn update_held(&mut self, held: usize) -> Option<usize> {
        let total =
            self.limit.as_ref().map_or(held, |limit| limit.report(&mut self.reported, held));
        (total >= self.much).then_some(total)
    }

    /// Sets how much streams may hold if all runtimes hold `total` bytes and this runtime uses
    /// `in_use` bytes. Returns the changes.
    pub(crate) fn allow(&mut self, total: usize, in_use: usize) -> BoundChanges {
        let was_lowered = self.is_lowered;
        // The bounds rise only at half the mark. Otherwise they would keep falling and rising.
        self.is_lowered = in_use > if was_lowered { self.mark / 2 } else { self.mark };
        let restricts = total > self.half || self.is_tight;
        let limit = self.limit.as_ref().map(MemoryLimit::bytes).filter(|_| restricts);
        let budget = limit.map(|limit| self.restrict(limit, total));
        self.set_bounds();
        BoundChanges { budget, have_fallen: self.is_lowered && !was_lowered }
    }

    /// Sets the values that depend on the allowance and on whether the bounds are lowered.
    fn set_bounds(&mut self) {
        let Self { most, allowance, .. } = *self;
        let bounds = if self.is_lowered { most.min(LOWERED_BOUNDS) } else { most };
        self.recv_bound = bounds.receive as u32;
        self.send_bound = most.send.min(allowance);
        self.waiting_bound = bounds.send.min(allowance);
        self.much = if self.is_lowered || self.is_tight { 0 } else { self.mark + 1 };
    }

    /// Sets the allowance, and returns the budget of receives.
    fn restrict(&mut self, limit: usize, total: usize) -> ReceiveBudget {
        // Below half of the limit, the initial values apply.
        let total = total.max(limit / 2);
        let budget = budget(limit, total);
        self.is_tight = budget.is_tight;
        // Once the limit has been exceeded, the allowance stays zero until a sixteenth of the limit
        // is free. Otherwise all streams would keep stopping and continuing.
        let margin = if self.is_tight && self.allowance == 0 { limit / 16 } else { 0 };
        self.allowance = allowance(limit, total + margin);
        budget
    }
}

/// The changes that [`Memory::allow`] has made.
pub(crate) struct BoundChanges {
    /// The new budget of receives, if it changes.
    pub(crate) budget: Option<ReceiveBudget>,
    /// Whether the bounds of streams have fallen.
    pub(crate) have_fallen: bool,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(limit) = &self.limit {
            limit.end(self.reported);
            limit.sub_paused(self.streams_paused);
        }
    }
}

/// Returns the bytes that a stream may hold if `total` bytes of the limit are held.
fn allowance(limit: usize, total: usize) -> usize {
    let free = (limit - limit / RESERVED_PART).saturating_sub(total);
    if total > limit { 0 } else { (free / STREAM_PART).max(MIN_STREAM_BYTES) }
}

/// Returns the bytes that receives may deliver until the next measurement: half of the free bytes,
/// because queued sends also take memory.
fn budget(limit: usize, total: usize) -> ReceiveBudget {
    let bytes = (limit.saturating_sub(total) / 2).max(MIN_RECEIVE_BUDGET_BYTES);
    ReceiveBudget { bytes, is_tight: total > limit / 2 }
}

#[cfg(test)]
mod tests;

/// Bytes of heap memory that a runtime's streams and datagram sockets hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Rc<Cell<usize>>);

impl Meter {
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.0.get()
    }

    #[inline]
    pub(crate) fn add(&self, bytes: usize) {
        self.0.set(self.0.get() + bytes);
    }

    #[inline]
    pub(crate) fn sub(&self, bytes: usize) {
        self.0.set(self.0.get() - bytes);
    }
}

/// A boxed slice, held by a raw pointer, because moving a `Box` asserts that no other pointer to
/// its bytes is in use.
pub(crate) struct HeapMemory {
    bytes: NonNull<[u8]>,
    meter: Option<Meter>,
}

impl HeapMemory {
    /// Takes over memory, which counts on the meter until it is dropped.
    pub(crate) fn new(bytes: Box<[u8]>, meter: Option<&Meter>) -> Box<Self> {
        meter.inspect(|meter| meter.add(bytes.len()));
        let bytes = NonNull::new(Box::into_raw(bytes)).expect("a box is at address zero");
        Box::new(Self { bytes, meter: meter.cloned() })
    }

    /// Allocates `len` zeroed bytes.
    pub(crate) fn zeroed(len: usize, meter: &Meter) -> Box<Self> {
        Self::new(vec![0; len].into_boxed_slice(), Some(meter))
    }

    /// Returns the address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.bytes.cast()
    }
}

impl Deref for HeapMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pointer comes from a box in `new`, and the box's bytes are initialised.
        unsafe { self.bytes.as_ref() }
    }
}

impl DerefMut for HeapMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the pointer comes from a box in `new`, and `self` is borrowed exclusively.
        unsafe { self.bytes.as_mut() }
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        if let Some(meter) = &self.meter {
            meter.sub(self.bytes.len());
        }
        // SAFETY: the pointer comes from `Box::into_raw` in `new`, and is freed only here.
        drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
    }
}
