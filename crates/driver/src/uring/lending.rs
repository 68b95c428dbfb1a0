//! A pool, and the buffer ring through which the kernel borrows from it.
#![allow(unsafe_code)]

use crate::pool::{Pool, PoolMemory, PoolSize, Trim};
use crate::token::{Kind, Token};
use annulus_kernel::Kernel;
use annulus_ring::{BufferRing, Ring, SetupError, SetupFlags};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;

/// The buffer groups of the pools.
pub(super) const STREAMS: u16 = 0;
pub(super) const PACKETS: u16 = 1;

/// The group that an operation of this name borrows from.
#[inline]
pub(super) fn group(token: Token) -> u16 {
    if token.kind() == Kind::Packet { PACKETS } else { STREAMS }
}

/// The two belong together: each id of the pool is one of the ring.
///
/// The memory is leaked unless [`close`](Self::close) has taken the group away from the kernel: a driver that is dropped otherwise
/// may have receives in flight, which go on for a moment after the ring's descriptor was closed.
pub(super) struct Lending {
    buffers: BufferRing,
    pub(super) pool: Rc<Pool>,
    memory: ManuallyDrop<Arc<PoolMemory>>,
}

impl Lending {
    /// Reserves memory and registers it as buffer group `group`.
    ///
    /// # Errors
    /// [`SetupError::Step`].
    pub(super) fn new(
        ring: &Ring,
        group: u16,
        size: PoolSize,
        kernel: Rc<dyn Kernel>,
    ) -> Result<Self, SetupError> {
        let pool = if group == PACKETS { Pool::of_datagrams } else { Pool::new };
        let pool =
            pool(size, kernel).map_err(|e| SetupError::Step("reserving receive memory", e))?;
        let buffers = BufferRing::register(ring, group, size.most)?;
        let memory = ManuallyDrop::new(pool.memory().clone());
        Ok(Self { buffers, pool, memory })
    }

    /// Publishes returned buffers with one store.
    #[inline]
    pub(super) fn refill(&mut self) {
        let buffers = &mut self.buffers;
        let mut any = false;
        self.pool.refill(|address, len, id| {
            any = true;
            // SAFETY: the pool's memory is held until the group was unregistered; a buffer in the pool's `Kernel` place is
            // touched by the kernel alone, and the ring has an entry for each.
            unsafe { buffers.add(address, len, id) };
        });
        if any {
            self.buffers.publish();
        }
    }

    /// Every completion was taken, so that no buffer has been filled that the pool still counts as the kernel's.
    pub(super) fn trim(&self, trim: Trim, flags: SetupFlags) {
        self.pool.trim(trim, flags.contains(SetupFlags::DEFER_TASKRUN));
    }

    /// # Safety
    /// `ring` must be the one that it was made for.
    pub(super) unsafe fn close(self, ring: &Ring) -> io::Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.buffers.unregister(ring) }?;
        drop(ManuallyDrop::into_inner(self.memory));
        Ok(())
    }
}

impl fmt::Debug for Lending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_kernel::Linux;

    #[test]
    fn memory_is_freed_only_after_the_kernel_has_let_go_of_it() {
        let Ok(ring) = Ring::builder().entries(4).build() else {
            return eprintln!("skipped: io_uring is blocked here");
        };
        let size = PoolSize { buffer: 4096, most: 2 };
        let lending = || Lending::new(&ring, STREAMS, size, Rc::new(Linux)).unwrap();
        let closed = lending();
        let pool = closed.pool.clone();
        // SAFETY: it was made for this ring.
        unsafe { closed.close(&ring) }.unwrap();
        assert_eq!(Arc::strong_count(pool.memory()), 1, "the pool's own");
        let dropped = lending();
        let pool = dropped.pool.clone();
        drop(dropped);
        assert_eq!(Arc::strong_count(pool.memory()), 2, "leaked: the group is still registered");
    }
}
