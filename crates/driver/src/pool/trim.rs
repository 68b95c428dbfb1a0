//! Gives memory of buffers back to the system.
#![allow(unsafe_code)]

use super::{Book, BufferState, Pool, Trim};

impl Pool {
    /// Gives back memory of buffers that are not lent. With `all` also of buffers with the kernel, which is correct only if the
    /// kernel fills them inside calls of this thread (deferred task work).
    pub(crate) fn trim(&self, trim: Trim, all: bool) {
        let mut book = self.book.borrow_mut();
        match trim {
            Trim::Everything => self.trim_everything(&mut book, all),
            Trim::Surplus => self.trim_surplus(&mut book, all),
        }
    }

    fn trim_everything(&self, book: &mut Book, all: bool) {
        book.touched = false;
        self.discard_above(book, 0, all);
        let Book { idle, cold, .. } = book;
        cold.append(idle);
        book.least_idle = 0;
    }

    fn trim_surplus(&self, book: &mut Book, all: bool) {
        book.refills = 0;
        book.least_idle = book.least_idle.min(book.idle.len());
        book.shrink(self);
        let most = std::mem::take(&mut book.largest).next_multiple_of(self.page());
        // The kernel cycles through its buffers: with few receives, most of them will not be used for a long time.
        let surplus = book.with_kernel > 2 * book.depth.now();
        self.discard_above(book, most, all);
        if surplus && all {
            self.discard_where(book, |state, _| state == BufferState::Kernel);
        }
    }

    /// Discards the memory of buffers that are not lent and have more than `most` bytes of it.
    fn discard_above(&self, book: &mut Book, most: u32, all: bool) {
        self.discard_where(book, |state, written| {
            written > most && (state == BufferState::Idle || all && state == BufferState::Kernel)
        });
    }

    pub(super) fn discard_where(&self, book: &mut Book, which: impl Fn(BufferState, u32) -> bool) {
        let Book { state, written, fresh, .. } = book;
        let used = 0..*fresh as u16;
        let ids: Vec<u16> =
            used.filter(|&id| which(state[usize::from(id)], written[usize::from(id)])).collect();
        self.discard(&ids, written);
    }

    /// Discards the memory of buffers, in ascending order of ids; adjacent ones with one call.
    pub(super) fn discard(&self, ids: &[u16], written: &mut [u32]) {
        for run in ids.chunk_by(|a, b| a + 1 == *b) {
            let bytes =
                run.iter().map(|id| std::mem::take(&mut written[usize::from(*id)]) as usize);
            let bytes: usize = bytes.sum();
            self.resident.set(self.resident.get() - bytes);
            if bytes == 0 {
                continue;
            }
            let len = run.len() * self.memory.stride;
            // SAFETY: the buffers are adjacent whole pages of the pool's mapping, and no code uses them: they are idle, or with a
            // kernel that writes them only inside calls of this thread.
            unsafe { self.kernel.discard(self.memory.address(run[0]), len) };
        }
    }
}
