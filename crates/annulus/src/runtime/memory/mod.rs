//! What streams and datagram sockets hold, weighed once a turn, and what each stream may hold in return.
//!
//! Sums are kept where bytes are counted anyway: the pools count what receives have written to their buffers, a [`Meter`]
//! the heap memory. From the sum and the limit follow a stream's *allowance*, and the *budget* of the turn's receives.
//! A stream above its allowance arms no receive, and its sends wait: it is *held back*, on a list that is looked
//! through as the allowance rises.

mod heap;
mod limit;
mod machine;
mod weigh;

pub(crate) use heap::{HeapMemory, Meter};
pub use limit::MemoryLimit;

use annulus_driver::Budget;
use std::collections::VecDeque;
use std::time::Duration;

/// What a stream may hold whatever the others do, up to the limit: bytes. Beyond it, one that holds nothing goes on.
const FLOOR: usize = 8 * 1024;
/// The part of the limit that is for streams that hold little.
const RESERVE: usize = 4;
/// The part of what is free that a single stream may hold.
const SHARE: usize = 8;
/// The budget that receives have however little is free: bytes.
const LEAST: usize = 64 * 1024;
/// Streams that are looked at in a turn, of those that were held back. Few in tests, so that it takes several turns there.
const SWEEP: usize = if cfg!(test) { 16 } else { 256 };
/// How soon to weigh again while streams are held back: other threads free memory without a word.
const AGAIN: Duration = Duration::from_millis(20);

/// A runtime's part in the limit.
pub(crate) struct Memory {
    pub(crate) meter: Meter,
    limit: Option<MemoryLimit>,
    /// What the limit was told that this runtime holds.
    told: usize,
    /// Bytes, undelivered and unsent, beyond which a stream is held back.
    pub(crate) allowance: usize,
    is_tight: bool,
    /// Streams that are held back, those of which the slot has been reused among them.
    waiting: VecDeque<u32>,
    /// Of these, how many are to be looked at; and the allowance when that began.
    sweep: usize,
    swept_at: usize,
    has_timer: bool,
}

impl Memory {
    pub(crate) fn new(limit: Option<MemoryLimit>) -> Self {
        let bytes = limit.as_ref().map(MemoryLimit::bytes);
        let allowance = bytes.map_or(usize::MAX, |bytes| allowance(bytes, bytes / 2));
        Self {
            meter: Meter::default(),
            limit,
            told: 0,
            allowance,
            is_tight: false,
            waiting: VecDeque::new(),
            sweep: 0,
            swept_at: allowance,
            has_timer: false,
        }
    }

    /// How much receives may bring in a turn while less than half of the limit is held.
    pub(crate) fn first_budget(&self) -> Budget {
        self.limit.as_ref().map_or(Budget::NONE, |limit| budget(limit.bytes(), limit.bytes() / 2))
    }

    /// Bytes of a receive into heap memory.
    pub(crate) fn piece(&self, most: u32) -> u32 {
        if self.is_tight { most.min(4096) } else { most }
    }

    /// Streams are left to be looked at: the loop must not sleep.
    #[inline]
    pub(crate) fn is_sweeping(&self) -> bool {
        self.sweep > 0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(limit) = &self.limit {
            limit.end(self.told);
        }
    }
}

/// What a stream may hold if `total` of the limit is held.
fn allowance(limit: usize, total: usize) -> usize {
    let free = (limit - limit / RESERVE).saturating_sub(total);
    if total > limit { 0 } else { (free / SHARE).max(FLOOR) }
}

/// What receives may bring until it is weighed again: half of what is free, since others take memory, too.
fn budget(limit: usize, total: usize) -> Budget {
    let bytes = (limit.saturating_sub(total) / 2).max(LEAST);
    Budget { bytes, is_tight: total > limit / 2 }
}

#[cfg(test)]
mod tests;
