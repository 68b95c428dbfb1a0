//! The two queues of a ring, as the kernel sees them.
#![allow(unsafe_code)]

use super::SubmittedEntry;
use annulus_kernel::{CompletionOffsets, Mapping, SubmissionOffsets};
use annulus_ring::{Completion, Entry};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

/// The layout of the first mapping of a ring. The completions follow at `CQES_OFFSET`, then the
/// index array.
pub(crate) const SUBMISSION_OFFSETS: SubmissionOffsets = SubmissionOffsets {
    head: 0,
    tail: 4,
    ring_mask: 8,
    ring_entries: 12,
    flags: 16,
    dropped: 20,
    array: 0,
    reserved: 0,
    user_addr: 0,
};
pub(crate) const COMPLETION_OFFSETS: CompletionOffsets = CompletionOffsets {
    head: 64,
    tail: 68,
    ring_mask: 72,
    ring_entries: 76,
    overflow: 80,
    cqes: CQES_OFFSET,
    flags: 84,
    reserved: 0,
    user_addr: 0,
};
const CQES_OFFSET: u32 = 128;
const PAGE_SIZE: usize = 4096;
/// Indices start just below the wrap. Linux starts at zero, but programs must not rely on that.
const FIRST_INDEX: u32 = u32::MAX - 7;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RingSizes {
    pub(crate) submissions: u32,
    pub(crate) completions: u32,
    /// Whether an index array selects the entries.
    pub(crate) array: bool,
}

impl RingSizes {
    /// Returns the offset of the index array, or zero without one.
    pub(crate) fn array_offset(self) -> u32 {
        if self.array { CQES_OFFSET + self.completions * size_of::<Completion>() as u32 } else { 0 }
    }

    fn rings_len(self) -> usize {
        let array = if self.array { self.submissions as usize * 4 } else { 0 };
        CQES_OFFSET as usize + self.completions as usize * size_of::<Completion>() + array
    }
}

/// The memory of both queues and of the entries, and the indices that the kernel advances.
pub(crate) struct Queues {
    rings: Mapping,
    entries: Mapping,
    shape: RingSizes,
    head: u32,
    tail: u32,
}

impl Queues {
    pub(crate) fn new(shape: RingSizes) -> Result<Self, Errno> {
        let map = |len| Mapping::anonymous(len).map_err(|_| Errno::NOMEM);
        let rings = map(shape.rings_len())?;
        let entries = map(shape.submissions as usize * size_of::<Entry>())?;
        let queues = Self { rings, entries, shape, head: FIRST_INDEX, tail: FIRST_INDEX };
        for offset in [
            SUBMISSION_OFFSETS.head,
            SUBMISSION_OFFSETS.tail,
            COMPLETION_OFFSETS.head,
            COMPLETION_OFFSETS.tail,
        ] {
            queues.word(offset).store(FIRST_INDEX, Ordering::Relaxed);
        }
        queues.word(SUBMISSION_OFFSETS.ring_mask).store(shape.submissions - 1, Ordering::Relaxed);
        queues.word(SUBMISSION_OFFSETS.ring_entries).store(shape.submissions, Ordering::Relaxed);
        queues.word(COMPLETION_OFFSETS.ring_mask).store(shape.completions - 1, Ordering::Relaxed);
        queues.word(COMPLETION_OFFSETS.ring_entries).store(shape.completions, Ordering::Relaxed);
        Ok(queues)
    }

    /// Returns the address of the mapping at `offset`, if it has at least `len` bytes.
    pub(crate) fn address(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let mapping = match offset {
            0 => &self.rings,
            0x1000_0000 => &self.entries,
            _ => return None,
        };
        // A mapping consists of whole pages.
        (len <= mapping.len().next_multiple_of(PAGE_SIZE)).then(|| mapping.as_ptr())
    }

    /// Returns true if one of the mappings starts at `address`.
    pub(crate) fn owns(&self, address: *const u8) -> bool {
        [&self.rings, &self.entries].iter().any(|mapping| mapping.as_ptr().cast_const() == address)
    }

    pub(crate) fn completion_entries(&self) -> u32 {
        self.shape.completions
    }

    /// Returns the number of published entries that have not been read.
    #[inline]
    pub(crate) fn submitted(&self) -> u32 {
        // Acquire pairs with the submitter's release store of the tail.
        let tail = self.word(SUBMISSION_OFFSETS.tail).load(Ordering::Acquire);
        tail.wrapping_sub(self.head).min(self.shape.submissions)
    }

    /// Reads the next entry, or returns `None` if the index array holds an invalid index. Call this
    /// only while [`submitted`](Self::submitted) is not zero.
    #[inline]
    pub(crate) fn take_entry(&mut self) -> Option<SubmittedEntry> {
        let slot = self.head & (self.shape.submissions - 1);
        self.head = self.head.wrapping_add(1);
        let index = if self.shape.array { self.indirect(slot) } else { slot };
        if index >= self.shape.submissions {
            return None;
        }
        // SAFETY: the index is inside the mapping, and the submitter does not change the entry
        // until the head has passed it. The entry was published under the contract of
        // `Kernel::enter`, as `SubmittedEntry::new` requires.
        Some(unsafe {
            SubmittedEntry::new(self.entries.as_ptr().cast::<Entry>().add(index as usize).read())
        })
    }

    /// Publishes how many entries have been read.
    #[inline]
    pub(crate) fn commit(&self) {
        // Release pairs with the submitter's acquire load of the head; only then may it overwrite
        // the entries.
        self.word(SUBMISSION_OFFSETS.head).store(self.head, Ordering::Release);
    }

    /// Returns the number of posted completions that the submitter has not taken.
    #[inline]
    pub(crate) fn ready(&self) -> u32 {
        self.tail.wrapping_sub(self.taken())
    }

    /// Returns the head of the completion queue, which the submitter advances.
    #[inline]
    pub(crate) fn taken(&self) -> u32 {
        // Acquire pairs with the submitter's release store of the head: the slots before it can be
        // reused.
        self.word(COMPLETION_OFFSETS.head).load(Ordering::Acquire)
    }

    /// Returns how many completions have been posted; wraps.
    #[inline]
    pub(crate) fn posted(&self) -> u32 {
        self.tail
    }

    /// Posts a completion. Returns false if the queue is full.
    #[inline]
    pub(crate) fn post(&mut self, completion: Completion) -> bool {
        if self.ready() >= self.shape.completions {
            return false;
        }
        let slot = (self.tail & (self.shape.completions - 1)) as usize;
        // SAFETY: the slot is inside the mapping, and the submitter has taken the completion that
        // it held.
        unsafe {
            let first = self.rings.as_ptr().add(CQES_OFFSET as usize).cast::<Completion>();
            first.add(slot).write(completion);
        }
        self.tail = self.tail.wrapping_add(1);
        // Release pairs with the submitter's acquire load of the tail.
        self.word(COMPLETION_OFFSETS.tail).store(self.tail, Ordering::Release);
        true
    }

    /// Sets or clears a bit of the submission queue's flags.
    #[inline]
    pub(crate) fn flag(&self, bit: u32, on: bool) {
        let flags = self.word(SUBMISSION_OFFSETS.flags);
        let value = flags.load(Ordering::Relaxed);
        flags.store(if on { value | bit } else { value & !bit }, Ordering::Relaxed);
    }

    fn indirect(&self, slot: u32) -> u32 {
        self.word(self.shape.array_offset() + slot * 4).load(Ordering::Relaxed)
    }

    #[inline]
    fn word(&self, offset: u32) -> &AtomicU32 {
        debug_assert!(offset as usize + 4 <= self.rings.len());
        // SAFETY: the offsets come from the layout above. They are aligned, inside the mapping, and
        // only accessed atomically by both sides.
        unsafe { &*self.rings.as_ptr().add(offset as usize).cast::<AtomicU32>() }
    }
}
