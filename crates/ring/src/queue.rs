//! The two queues, in memory shared with the kernel.
//!
//! Indices count through all of `u32`, and are masked only to access a slot. Differences are taken with `wrapping_sub`, so that
//! the wrap at 2^32 needs no special case.
#![allow(unsafe_code)]

use crate::completion::Completion;
use crate::entry::Entry;
use crate::memory::Area;
use annulus_kernel::{CompletionOffsets, SubmissionOffsets, prefetch};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// How many entries ahead the submission queue is prefetched.
const AHEAD: u32 = 3;

/// The submission queue has no free entry: enter first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the submission queue is full; enter the kernel before pushing more")
    }
}

impl std::error::Error for Full {}

/// A 32-bit word that is shared with the kernel.
#[derive(Clone, Copy)]
struct Word(*const AtomicU32);

impl Word {
    /// # Safety
    /// The area must stay mapped as long as the word and its copies are used, and `offset` must be a multiple of four.
    unsafe fn at(area: Area, offset: u32) -> Self {
        Self(area.at(offset, size_of::<u32>()).cast())
    }

    #[inline]
    fn load(self, order: Ordering) -> u32 {
        // SAFETY: the word is mapped and aligned, as `at` demands, and both sides access it atomically only.
        unsafe { (*self.0).load(order) }
    }

    #[inline]
    fn store(self, value: u32, order: Ordering) {
        // SAFETY: the word is mapped and aligned, as `at` demands, and both sides access it atomically only.
        unsafe { (*self.0).store(value, order) }
    }
}

/// `IORING_SQ_NEED_WAKEUP`
const NEED_WAKEUP: u32 = 1 << 0;
/// `IORING_SQ_CQ_OVERFLOW`
const CQ_OVERFLOW: u32 = 1 << 1;
/// `IORING_SQ_TASKRUN`
const TASKRUN: u32 = 1 << 2;

/// `IORING_CQ_EVENTFD_DISABLED`
const EVENTFD_DISABLED: u32 = 1 << 0;

/// The submission queue.
pub(crate) struct Submission {
    head: Word,
    shared_tail: Word,
    flags: Word,
    entries: *mut Entry,
    mask: u32,
    len: u32,
    tail: u32,
}

impl Submission {
    /// # Safety
    /// The areas must be mappings of the ring whose offsets these are, and stay mapped as long as the queue is used.
    pub(crate) unsafe fn new(ring: Area, entries: Area, offsets: &SubmissionOffsets) -> Self {
        // SAFETY: the offsets are the kernel's for this area, which stays mapped; both are demanded by this function.
        let word = |offset| unsafe { Word::at(ring, offset) };
        let len = word(offsets.ring_entries).load(Ordering::Relaxed);
        let shared_tail = word(offsets.tail);
        Self {
            head: word(offsets.head),
            shared_tail,
            flags: word(offsets.flags),
            entries: entries.at(0, len as usize * size_of::<Entry>()).cast(),
            mask: word(offsets.ring_mask).load(Ordering::Relaxed),
            len,
            tail: shared_tail.load(Ordering::Relaxed),
        }
    }

    /// Writes one entry; the kernel sees it after [`publish`](Self::publish).
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) -> Result<(), Full> {
        if self.pending() == self.len {
            return Err(Full);
        }
        // SAFETY: the masked index lies inside the mapped array, and the kernel has consumed the slot, since `head` has passed it.
        unsafe { self.entries.add((self.tail & self.mask) as usize).write(entry) };
        // By the next round of the queue, an entry has left the nearest cache.
        let ahead = self.tail.wrapping_add(AHEAD) & self.mask;
        prefetch(self.entries.wrapping_add(ahead as usize), size_of::<Entry>());
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Entries written and not yet consumed by the kernel.
    #[inline]
    pub(crate) fn pending(&self) -> u32 {
        // Acquire pairs with the kernel's release store of `head`, after it has read the entries below: only then may they be
        // overwritten.
        self.tail.wrapping_sub(self.head.load(Ordering::Acquire))
    }

    /// Whether the kernel thread sleeps, and must be woken to see what was published.
    #[inline]
    pub(crate) fn poller_sleeps(&self) -> bool {
        // The thread sets the flag, then reads the tail once more, and sleeps only if it has not changed. This side has stored
        // the tail, and now reads the flag. At least one must see the store of the other, which takes a full fence on both
        // sides: a release store and a later load may be reordered.
        fence(Ordering::SeqCst);
        self.flags.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    /// Publishes every entry pushed so far.
    #[inline]
    pub(crate) fn publish(&self) {
        // Release pairs with the kernel's acquire load of `tail`: if it sees the tail, it sees the entries below.
        self.shared_tail.store(self.tail, Ordering::Release);
    }

    /// Entries the queue can hold.
    pub(crate) fn capacity(&self) -> u32 {
        self.len
    }

    /// Whether the kernel holds completions that found no space; an enter flushes them.
    #[inline]
    pub(crate) fn overflowed(&self) -> bool {
        // Relaxed: a hint. The enter that follows synchronizes with the kernel.
        self.flags.load(Ordering::Relaxed) & CQ_OVERFLOW != 0
    }

    /// Deferred work waits for an enter.
    #[inline]
    pub(crate) fn work_pending(&self) -> bool {
        // Relaxed: a hint. The enter that follows synchronizes with the kernel.
        self.flags.load(Ordering::Relaxed) & TASKRUN != 0
    }
}

/// The completion queue.
pub(crate) struct Completed {
    shared_head: Word,
    tail: Word,
    flags: Word,
    overflow: Word,
    completions: *const Completion,
    mask: u32,
    len: u32,
    head: u32,
}

impl Completed {
    /// # Safety
    /// The area must be the mapping of the ring whose offsets these are, and stay mapped as long as the queue is used.
    pub(crate) unsafe fn new(ring: Area, offsets: &CompletionOffsets) -> Self {
        // SAFETY: the offsets are the kernel's for this area, which stays mapped; both are demanded by this function.
        let word = |offset| unsafe { Word::at(ring, offset) };
        let len = word(offsets.ring_entries).load(Ordering::Relaxed);
        let shared_head = word(offsets.head);
        Self {
            shared_head,
            tail: word(offsets.tail),
            flags: word(offsets.flags),
            overflow: word(offsets.overflow),
            completions: ring.at(offsets.cqes, len as usize * size_of::<Completion>()).cast(),
            mask: word(offsets.ring_mask).load(Ordering::Relaxed),
            len,
            head: shared_head.load(Ordering::Relaxed),
        }
    }

    /// Completions the queue can hold.
    pub(crate) fn capacity(&self) -> u32 {
        self.len
    }

    /// Whether the registered eventfd is signalled for what comes from now on. Once it is on, look for what came before.
    #[inline]
    pub(crate) fn notify(&self, on: bool) {
        self.flags.store(if on { 0 } else { EVENTFD_DISABLED }, Ordering::Relaxed);
        if on {
            // The kernel posts, or notes deferred work, then reads the flag. This side has cleared the flag, and its caller now
            // reads what was posted. At least one must see the store of the other, which takes a full fence on both sides.
            fence(Ordering::SeqCst);
        }
    }

    /// How many completions wait to be taken.
    #[inline]
    pub(crate) fn ready(&self) -> u32 {
        // Acquire pairs with the kernel's release store of `tail`: if this side sees the tail, it sees the completions below.
        self.tail.load(Ordering::Acquire).wrapping_sub(self.head)
    }

    /// The completion `ahead` completions after the next one, without taking it.
    #[inline]
    pub(crate) fn peek(&self, ahead: u32) -> Option<Completion> {
        let slot = (self.head.wrapping_add(ahead) & self.mask) as usize;
        // SAFETY: the masked index lies inside the mapped array. The slot is below the tail that was acquired, and not below the
        // head that the kernel sees, so that the kernel does not write it.
        (ahead < self.ready()).then(|| unsafe { self.completions.add(slot).read() })
    }

    /// Takes the completions that are ready now.
    #[inline]
    pub(crate) fn drain(&mut self) -> Completions<'_> {
        let end = self.head.wrapping_add(self.ready());
        Completions { queue: self, end }
    }

    /// Completions that the kernel dropped: none on a kernel with `NODROP`.
    pub(crate) fn dropped(&self) -> u32 {
        self.overflow.load(Ordering::Relaxed)
    }
}

/// The completions that were ready when it was made. Dropping it gives the slots of those that were taken back, with one store.
pub struct Completions<'a> {
    queue: &'a mut Completed,
    end: u32,
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        if self.queue.head == self.end {
            return None;
        }
        let slot = (self.queue.head & self.queue.mask) as usize;
        // SAFETY: the masked index lies inside the mapped array. The slot is below the tail that was acquired, and not below the
        // head that the kernel sees, so that the kernel does not write it.
        let completion = unsafe { self.queue.completions.add(slot).read() };
        self.queue.head = self.queue.head.wrapping_add(1);
        Some(completion)
    }
}

impl Drop for Completions<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the kernel's acquire load of `head`: it reuses a slot only after the reads above.
        self.queue.shared_head.store(self.queue.head, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Nop;
    use annulus_kernel::Mapping;

    /// Both queues in plain memory, with four entries each and all indices starting at `start`.
    struct Fake {
        ring: Mapping,
        entries: Mapping,
    }

    const SQ: SubmissionOffsets = SubmissionOffsets {
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
    const CQ: CompletionOffsets = CompletionOffsets {
        head: 32,
        tail: 36,
        ring_mask: 40,
        ring_entries: 44,
        overflow: 48,
        cqes: 64,
        flags: 52,
        reserved: 0,
        user_addr: 0,
    };

    impl Fake {
        fn starting_at(start: u32) -> Self {
            let fake = Self {
                ring: Mapping::anonymous(4096).unwrap(),
                entries: Mapping::anonymous(4096).unwrap(),
            };
            for (offset, value) in [
                (0, start),
                (4, start),
                (8, 3),
                (12, 4),
                (32, start),
                (36, start),
                (40, 3),
                (44, 4),
            ] {
                fake.word(offset).store(value, Ordering::Relaxed);
            }
            fake
        }

        fn word(&self, offset: u32) -> Word {
            // SAFETY: the offsets in these tests lie inside the page and are aligned, and the fake outlives the word.
            unsafe { Word::at(Area::of(&self.ring), offset) }
        }

        fn submission(&self) -> Submission {
            // SAFETY: the offsets are those of the layout in `starting_at`, and the fake outlives the queue.
            unsafe { Submission::new(Area::of(&self.ring), Area::of(&self.entries), &SQ) }
        }

        fn completed(&self) -> Completed {
            // SAFETY: the offsets are those of the layout in `starting_at`, and the fake outlives the queue.
            unsafe { Completed::new(Area::of(&self.ring), &CQ) }
        }

        fn post(&self, user_data: u64) {
            let tail = self.word(36).load(Ordering::Relaxed);
            let slot = 64 + (tail & 3) as usize * size_of::<Completion>();
            // SAFETY: the slot lies inside the page.
            unsafe {
                self.ring.as_ptr().add(slot).cast::<Completion>().write(Completion {
                    user_data,
                    result: 0,
                    flags: 0,
                })
            };
            self.word(36).store(tail.wrapping_add(1), Ordering::Release);
        }
    }

    fn nop(user_data: u64) -> Entry {
        Nop.entry().user_data(user_data).into()
    }

    #[test]
    fn submission_wraps_and_fills_exactly() {
        let fake = Fake::starting_at(u32::MAX - 1);
        let mut queue = fake.submission();
        for data in 0..4 {
            queue.push(nop(data)).unwrap();
        }
        assert_eq!(queue.push(nop(9)), Err(Full));
        queue.publish();
        assert_eq!(fake.word(4).load(Ordering::Relaxed), 2);
        fake.word(0).store(u32::MAX, Ordering::Release);
        assert_eq!(queue.pending(), 3);
        queue.push(nop(4)).unwrap();
        assert_eq!(queue.push(nop(9)), Err(Full));
    }

    #[test]
    fn completions_wrap_in_order_and_free_their_slots() {
        let fake = Fake::starting_at(u32::MAX - 1);
        let mut queue = fake.completed();
        let mut seen = Vec::new();
        for round in 0..3u64 {
            for data in 0..4 {
                fake.post(round * 4 + data);
            }
            assert_eq!(queue.ready(), 4);
            seen.extend(queue.drain().map(|c| c.user_data));
            assert_eq!(
                fake.word(32).load(Ordering::Relaxed),
                fake.word(36).load(Ordering::Relaxed)
            );
        }
        assert_eq!(seen, (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn a_dropped_drain_keeps_what_was_not_taken() {
        let fake = Fake::starting_at(u32::MAX);
        let mut queue = fake.completed();
        fake.post(1);
        fake.post(2);
        assert_eq!(queue.drain().next().unwrap().user_data, 1);
        assert_eq!(queue.ready(), 1);
        assert_eq!(queue.drain().next().unwrap().user_data, 2);
    }
}
