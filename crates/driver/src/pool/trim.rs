//! Giving memory of buffers back to the system.
#![allow(unsafe_code)]

use super::{Book, Place, Pool, Trim};

impl Pool {
    /// Gives memory of buffers that are not lent back to the system. With `all`, that of buffers with the kernel too: legal
    /// only if the kernel fills them inside our own calls (deferred task work).
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
        // The kernel's were many for many receives: as few as there are now will not come round for a long time.
        let surplus = book.with_kernel > 2 * book.depth.now();
        self.discard_above(book, most, all);
        if surplus && all {
            self.discard_where(book, |place, _| place == Place::Kernel);
        }
    }

    /// Discards the memory of buffers that are not lent and have more than `most` bytes of it.
    fn discard_above(&self, book: &mut Book, most: u32, all: bool) {
        self.discard_where(book, |place, written| {
            written > most && (place == Place::Idle || all && place == Place::Kernel)
        });
    }

    pub(super) fn discard_where(&self, book: &mut Book, gone: impl Fn(Place, u32) -> bool) {
        let Book { place, written, fresh, .. } = book;
        let used = 0..*fresh as u16;
        let ids: Vec<u16> =
            used.filter(|&id| gone(place[usize::from(id)], written[usize::from(id)])).collect();
        self.discard(&ids, written);
    }

    /// Discards the memory of buffers in ascending order, neighbours together.
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
            // SAFETY: the run's buffers are whole pages of our mapping that no user reads: idle, or with a kernel
            // that only writes them inside our own calls.
            unsafe { self.kernel.discard(self.memory.address(run[0]), len) };
        }
    }
}
