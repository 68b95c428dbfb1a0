//! Gives the memory of buffers back to the system.
#![allow(unsafe_code)]

use super::{BufferState, Buffers, Pool, Trim};

impl Pool {
    /// Gives back memory of idle buffers. With `all`, also gives back memory of buffers that the
    /// kernel has, which is correct only if the kernel fills them inside system calls of this
    /// thread (deferred task work).
    pub(crate) fn trim(&self, trim: Trim, all: bool) {
        let mut buffers = self.buffers.borrow_mut();
        match trim {
            Trim::Everything => self.trim_everything(&mut buffers, all),
            Trim::Surplus => self.trim_surplus(&mut buffers, all),
        }
    }

    fn trim_everything(&self, buffers: &mut Buffers, all: bool) {
        buffers.used_since_trim = false;
        self.discard_above(buffers, 0, all);
        let Buffers { idle, cold, .. } = buffers;
        cold.append(idle);
        buffers.least_idle = 0;
    }

    fn trim_surplus(&self, buffers: &mut Buffers, all: bool) {
        buffers.refills = 0;
        buffers.least_idle = buffers.least_idle.min(buffers.idle.len());
        buffers.shrink(self);
        let most = std::mem::take(&mut buffers.largest).next_multiple_of(self.page_bytes());
        // The kernel cycles through its buffers: with few receives, most of them stay unused for a
        // long time.
        let surplus = buffers.with_kernel > 2 * buffers.depth.buffers();
        self.discard_above(buffers, most, all);
        if surplus && all {
            self.discard_where(buffers, |state, _| state == BufferState::Kernel);
        }
    }

    /// Discards the memory of idle buffers that have more than `most` bytes of it; with `all`, also
    /// of buffers that the kernel has.
    fn discard_above(&self, buffers: &mut Buffers, most: u32, all: bool) {
        self.discard_where(buffers, |state, written| {
            written > most && (state == BufferState::Idle || all && state == BufferState::Kernel)
        });
    }

    pub(super) fn discard_where(
        &self,
        buffers: &mut Buffers,
        which: impl Fn(BufferState, u32) -> bool,
    ) {
        let Buffers { state, written, fresh, .. } = buffers;
        let used = 0..*fresh as u16;
        let ids: Vec<u16> =
            used.filter(|&id| which(state[usize::from(id)], written[usize::from(id)])).collect();
        self.discard(&ids, written);
    }

    /// Discards the memory of the buffers `ids`, which are in ascending order. One call discards
    /// adjacent buffers.
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
            // SAFETY: the buffers are adjacent whole pages of the pool's mapping, and no code uses
            // them: they are idle, or with a kernel that writes them only inside system calls of
            // this thread.
            unsafe { self.kernel.discard(self.memory.address(run[0]), len) };
        }
    }
}
