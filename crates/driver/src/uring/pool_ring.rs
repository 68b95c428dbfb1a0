//! A pool, and the buffer ring that gives its buffers to the kernel.
#![allow(unsafe_code)]

use super::zero_copy_receive::ReceiveArea;
use crate::pool::{Pool, PoolMemory, PoolSize, Trim};
use crate::slots::{OpKind, Token};
use annulus_kernel::Kernel;
use annulus_ring::{BufferRing, Ring, SetupError, SetupFlags};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;

/// The buffer groups of the pools.
pub(super) const STREAM_GROUP: u16 = 0;
pub(super) const DATAGRAM_GROUP: u16 = 1;

/// Returns the group whose buffers an operation fills.
#[inline]
pub(super) fn group_of(token: Token) -> u16 {
    if token.kind() == OpKind::RecvDatagram { DATAGRAM_GROUP } else { STREAM_GROUP }
}

/// Reserves the memory that streams receive into.
///
/// # Errors
/// Returns [`SetupError::Step`] if there is not enough.
pub(super) fn stream_pool(
    size: PoolSize,
    area: Option<ReceiveArea>,
    kernel: Rc<dyn Kernel>,
) -> Result<Rc<Pool>, SetupError> {
    reserved(match area {
        Some(area) => Pool::with_area(size, kernel, area.size(size.count)),
        None => Pool::new(size, kernel),
    })
}

/// Names the step that has reserved a pool.
pub(super) fn reserved(pool: io::Result<Rc<Pool>>) -> Result<Rc<Pool>, SetupError> {
    pool.map_err(|e| SetupError::Step("reserving receive memory", e))
}

/// A pool and its buffer ring, which share the same buffer ids.
///
/// The memory is leaked unless [`close`](Self::close) has unregistered the group. A driver that is
/// dropped without a close may have receives in flight, which can complete even after the ring's
/// descriptor has been closed.
pub(super) struct PoolRing {
    buffers: BufferRing,
    pub(super) pool: Rc<Pool>,
    memory: ManuallyDrop<Arc<PoolMemory>>,
}

impl PoolRing {
    /// Registers the buffers of a pool as group `group`.
    ///
    /// # Errors
    /// Returns [`SetupError::Step`] with the step that failed.
    pub(super) fn new(ring: &Ring, group: u16, pool: Rc<Pool>) -> Result<Self, SetupError> {
        let buffers = BufferRing::register(ring, group, pool.capacity())?;
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
            // SAFETY: the pool's memory is kept until the group has been unregistered (`memory`).
            // Only the kernel touches a buffer in state `Kernel`, except that `trim` may discard
            // its pages, and the ring has an entry for each buffer.
            unsafe { buffers.add(address, len, id) };
        });
        if any {
            self.buffers.publish();
        }
    }

    /// Gives memory back to the system. Every completion must have been taken: a buffer that the
    /// kernel has filled must not count as empty.
    pub(super) fn trim(&self, trim: Trim, flags: SetupFlags) {
        self.pool.trim(trim, flags.contains(SetupFlags::DEFER_TASKRUN));
    }

    /// # Safety
    /// `ring` must be the ring that this was created for.
    pub(super) unsafe fn close(self, ring: &Ring) -> io::Result<()> {
        // SAFETY: the caller guarantees that `new` registered the group with this `ring`.
        unsafe { self.buffers.unregister(ring) }?;
        drop(ManuallyDrop::into_inner(self.memory));
        Ok(())
    }
}

impl fmt::Debug for PoolRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_kernel::Linux;
    use annulus_skip::skip;

    #[test]
    fn memory_is_freed_only_after_the_group_is_unregistered() {
        let Ok(ring) = Ring::builder().entries(4).build() else {
            return skip!("io_uring is blocked here");
        };
        let size = PoolSize { buffer: 4096, count: 2 };
        let pool = || stream_pool(size, None, Rc::new(Linux)).unwrap();
        let pool_ring = || PoolRing::new(&ring, STREAM_GROUP, pool()).unwrap();
        let closed = pool_ring();
        let pool = closed.pool.clone();
        // SAFETY: the group was registered with this ring.
        unsafe { closed.close(&ring) }.unwrap();
        assert_eq!(
            Arc::strong_count(pool.memory()),
            1,
            "the memory is still leaked although the group is unregistered"
        );
        let dropped = pool_ring();
        let pool = dropped.pool.clone();
        drop(dropped);
        assert_eq!(
            Arc::strong_count(pool.memory()),
            2,
            "the memory was freed while the group was registered"
        );
    }
}
