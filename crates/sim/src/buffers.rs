//! Buffer groups. A published buffer is checked for writes by the submitter until a receive uses
//! it.

use crate::memory::BufferEntries;
use crate::memory_range::MemoryRange;
use annulus_ring::CompletionFlags;
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) id: u16,
    pub(crate) memory: MemoryRange,
}

impl Buffer {
    /// Returns the completion flags that carry the id of this buffer.
    pub(crate) fn flags(self) -> u32 {
        CompletionFlags::BUFFER.bits() | u32::from(self.id) << 16
    }
}

/// A registered buffer ring.
pub(crate) struct BufferGroup {
    number: u16,
    entries: BufferEntries,
    count: u32,
    /// `head` is the index of the next buffer to use. `seen` is the index of the first published
    /// buffer that `take_published` has not seen yet. Both wrap.
    head: u16,
    seen: u16,
    /// Whether each buffer, by id, is published and not used yet.
    held: Vec<bool>,
    /// Number of bytes that are poisoned at each end of a buffer.
    span: usize,
}

impl BufferGroup {
    pub(crate) fn new(number: u16, entries: BufferEntries, count: u32, span: usize) -> Self {
        Self { number, entries, count, head: 0, seen: 0, held: Vec::new(), span }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Returns the number of buffers that the kernel has.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.seen.wrapping_sub(self.head))
    }

    /// Takes the buffers published since the last call, and poisons them. Panics if the kernel
    /// still has one of these buffers, or if there are more buffers than ring entries.
    #[inline]
    pub(crate) fn take_published(&mut self) {
        let tail = self.entries.tail();
        while self.seen != tail {
            let (id, memory) = self.entries.buffer(self.seen);
            self.hold(id);
            memory.poison(self.span);
            self.seen = self.seen.wrapping_add(1);
        }
        let held = self.len();
        assert!(
            held <= self.count as usize,
            "buffer group {} holds {held} buffers in a ring of {} entries: published entries were overwritten",
            self.number,
            self.count,
        );
    }

    fn hold(&mut self, id: u16) {
        let index = usize::from(id);
        if self.held.len() <= index {
            self.held.resize(index + 1, false);
        }
        assert!(
            !self.held[index],
            "buffer {id} of group {} was published twice: the kernel still has it",
            self.number,
        );
        self.held[index] = true;
    }

    /// Returns the buffer that the next receive will use.
    #[inline]
    pub(crate) fn next(&self) -> Option<Buffer> {
        (self.head != self.seen).then(|| self.buffer(self.head))
    }

    /// Uses the next buffer, which then belongs to the submitter again. Panics if it was written to
    /// while the kernel had it.
    #[inline]
    pub(crate) fn take(&mut self) -> Buffer {
        let buffer = self.buffer(self.head);
        self.verify(buffer);
        self.held[usize::from(buffer.id)] = false;
        self.head = self.head.wrapping_add(1);
        buffer
    }

    /// Checks all buffers that the kernel has; panics like [`take`](Self::take).
    pub(crate) fn verify_all(&self) {
        self.held().for_each(|buffer| self.verify(buffer));
    }

    /// Re-poisons the kernel's buffers that start in `range`.
    pub(crate) fn poison_again(&self, range: &Range<u64>) {
        let within = self.held().filter(|buffer| range.contains(&buffer.memory.address()));
        within.for_each(|buffer| buffer.memory.poison(self.span));
    }

    fn held(&self) -> impl Iterator<Item = Buffer> {
        (0..self.len() as u16).map(|ahead| self.buffer(self.head.wrapping_add(ahead)))
    }

    #[inline]
    fn buffer(&self, index: u16) -> Buffer {
        let (id, memory) = self.entries.buffer(index);
        Buffer { id, memory }
    }

    #[inline]
    fn verify(&self, buffer: Buffer) {
        if let Some(at) = buffer.memory.overwritten_at(self.span) {
            panic!(
                "buffer {} of group {} was written to while it was with the kernel (byte {at} of {})",
                buffer.id,
                self.number,
                buffer.memory.len(),
            );
        }
    }
}
