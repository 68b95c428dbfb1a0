//! The memory that streams and datagram sockets hold, measured once a turn, and the amount that each stream may hold in return.
//!
//! Sums are kept where bytes are counted anyway: the pools count what receives have written to their buffers, a [`Meter`]
//! the heap memory. From the sum and the limit follow a stream's *allowance*, and the *budget* of the turn's receives.
//! A stream above its allowance arms no receive, and its sends wait: it is *paused*, on a list that is looked
//! through as the allowance rises.
//!
//! Long before that, the bounds of each stream are lowered. A stream that receives and sends fast gains by large bounds. If many do so at
//! once, or if peers read nothing, the sum of large bounds is what the process holds. So above a mark the bounds are [`LOWERED`]: that of
//! undelivered bytes for every stream, that of unsent ones for streams whose peer makes no room, since the others pass on what they queue. A
//! stream at a lowered bound waits for its own task or peer as it would at any other, so nothing has to be looked at when the bounds rise
//! again. Receives that were armed before they fell may still bring more: those are armed anew, see `Streams::shorten_receives`.

mod heap;
mod limit;
mod machine;

pub(crate) use heap::{HeapMemory, Meter};
pub use limit::MemoryLimit;

use annulus_driver::Budget;

/// Bytes that a stream may hold whatever the others do, up to the limit. Beyond it, one that holds nothing goes on.
const FLOOR: usize = 8 * 1024;
/// The part of the limit that is for streams that hold little.
const RESERVE: usize = 4;
/// The part of the free memory that a single stream may hold.
const SHARE: usize = 8;
/// The budget that receives have however little is free: bytes.
const LEAST: usize = 64 * 1024;

/// Bytes in use by the sockets of a runtime above which the bounds of each stream are lowered.
const MARK: usize = 6 << 20;
/// The bounds above the mark.
const LOWERED: StreamBounds = StreamBounds { receive: 16 << 10, send: 4 << 10 };

/// How many bytes a stream may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamBounds {
    /// Undelivered.
    pub(crate) receive: u32,
    /// Queued and unsent; beyond it a send waits.
    pub(crate) send: usize,
}

impl StreamBounds {
    /// The lesser of each.
    pub(crate) fn min(self, other: Self) -> Self {
        Self { receive: self.receive.min(other.receive), send: self.send.min(other.send) }
    }
}

/// A runtime's part in the limit.
pub(crate) struct Memory {
    /// Counts the heap memory of streams and sockets.
    pub(crate) meter: Meter,
    /// The limit that this runtime shares, or has alone; `None` is no limit.
    limit: Option<MemoryLimit>,
    /// Bytes that this runtime has reported to the limit.
    reported: usize,
    /// Bytes, undelivered and unsent, beyond which a stream is paused.
    pub(crate) allowance: usize,
    /// The bounds of a stream while little is held.
    pub(crate) most: StreamBounds,
    /// The bound of a stream's undelivered bytes now.
    pub(crate) recv_bound: u32,
    /// The bound of a stream's unsent bytes, as far as there is memory.
    pub(crate) send_bound: usize,
    /// The same while the peer makes no room.
    pub(crate) waiting_bound: usize,
    /// Half of the limit.
    half: usize,
    /// Bytes that may be in use before the bounds are lowered.
    mark: usize,
    /// From this sum on something is to be set.
    much: usize,
    /// More than the mark is in use, so that the bounds of each stream are lowered.
    is_lowered: bool,
    /// More than half of the limit is in use.
    is_tight: bool,
    /// Streams that are paused.
    streams_paused: usize,
}

impl Memory {
    /// `most` are the bounds of a stream while little is held.
    pub(crate) fn new(limit: Option<MemoryLimit>, most: StreamBounds) -> Self {
        let bytes = limit.as_ref().map(MemoryLimit::bytes);
        let allowance = bytes.map_or(usize::MAX, |bytes| allowance(bytes, bytes / 2));
        let half = bytes.map_or(usize::MAX, |bytes| bytes / 2);
        let mut memory = Self {
            meter: Meter::default(),
            half,
            mark: MARK.min(half),
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

    /// How much receives may bring in a turn while less than half of the limit is held.
    pub(crate) fn first_budget(&self) -> Budget {
        self.limit.as_ref().map_or(Budget::NONE, |limit| budget(limit.bytes(), limit.bytes() / 2))
    }

    /// The limit, if there is one.
    pub(crate) fn limit(&self) -> Option<&MemoryLimit> {
        self.limit.as_ref()
    }

    /// Streams that are paused now.
    pub(crate) fn streams_paused(&self) -> usize {
        self.streams_paused
    }

    /// Records that another stream is paused.
    pub(crate) fn add_paused(&mut self) {
        self.streams_paused += 1;
        self.limit.iter().for_each(MemoryLimit::add_paused);
    }

    /// Records that a stream is no longer paused.
    pub(crate) fn sub_paused(&mut self) {
        self.streams_paused -= 1;
        self.limit.iter().for_each(|limit| limit.sub_paused(1));
    }

    /// More than half of the limit is in use.
    #[inline]
    pub(crate) fn is_tight(&self) -> bool {
        self.is_tight
    }

    /// Bytes of a receive into heap memory.
    pub(crate) fn piece(&self, most: u32) -> u32 {
        if self.is_tight { most.min(4096) } else { most }
    }

    /// The bytes that all runtimes of the limit hold, now that this one holds `held`. `None` if nothing is to be set for that sum.
    #[inline]
    pub(crate) fn update_held(&mut self, held: usize) -> Option<usize> {
        let total =
            self.limit.as_ref().map_or(held, |limit| limit.report(&mut self.reported, held));
        (total >= self.much).then_some(total)
    }

    /// Sets the amounts that streams may hold until the next time, if `total` is held, and `in_use` here. Returns the changes.
    pub(crate) fn allow(&mut self, total: usize, in_use: usize) -> Changed {
        let was_lowered = self.is_lowered;
        // They rise again once there is some room: else they would fall and rise again and again.
        self.is_lowered = in_use > if was_lowered { self.mark / 2 } else { self.mark };
        let restricts = total > self.half || self.is_tight;
        let limit = self.limit.as_ref().map(MemoryLimit::bytes).filter(|_| restricts);
        let budget = limit.map(|limit| self.restrict(limit, total));
        self.set_bounds();
        Changed { budget, have_fallen: self.is_lowered && !was_lowered }
    }

    /// Sets the values that follow from the allowance, and from whether the bounds are lowered.
    fn set_bounds(&mut self) {
        let Self { most, allowance, .. } = *self;
        let bounds = if self.is_lowered { most.min(LOWERED) } else { most };
        self.recv_bound = bounds.receive;
        self.send_bound = most.send.min(allowance);
        self.waiting_bound = bounds.send.min(allowance);
        self.much = if self.is_lowered || self.is_tight { 0 } else { self.mark + 1 };
    }

    /// Sets the allowance.
    fn restrict(&mut self, limit: usize, total: usize) -> Budget {
        // Below half of it, all is as in the beginning.
        let total = total.max(limit / 2);
        let budget = budget(limit, total);
        self.is_tight = budget.is_tight;
        // Beyond the limit it stays until there is some room below: else all would go on and stop, again and again.
        let margin = if self.is_tight && self.allowance == 0 { limit / 16 } else { 0 };
        self.allowance = allowance(limit, total + margin);
        budget
    }
}

/// The changes that another sum has caused.
pub(crate) struct Changed {
    /// The budget of receives.
    pub(crate) budget: Option<Budget>,
    /// The bounds of streams have fallen.
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

/// The bytes that a stream may hold if `total` of the limit is held.
fn allowance(limit: usize, total: usize) -> usize {
    let free = (limit - limit / RESERVE).saturating_sub(total);
    if total > limit { 0 } else { (free / SHARE).max(FLOOR) }
}

/// The bytes that receives may bring until the next measurement: half of the free ones, since others take memory, too.
fn budget(limit: usize, total: usize) -> Budget {
    let bytes = (limit.saturating_sub(total) / 2).max(LEAST);
    Budget { bytes, is_tight: total > limit / 2 }
}

#[cfg(test)]
mod tests;
