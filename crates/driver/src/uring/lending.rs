//! A pool, and the buffer ring through which the kernel borrows from it.
#![allow(unsafe_code)]

use crate::pool::{Pool, PoolSize};
use crate::token::{Kind, Token};
use annulus_kernel::Kernel;
use annulus_ring::{BufferRing, Ring, SetupError, SetupFlags};
use std::io;
use std::rc::Rc;

/// The buffer groups of the pools.
pub(super) const STREAMS: u16 = 0;
pub(super) const PACKETS: u16 = 1;

/// The group that an operation of this name borrows from.
#[inline]
pub(super) fn group(token: Token) -> u16 {
    if token.kind() == Kind::Packet { PACKETS } else { STREAMS }
}

/// The two belong together: each id of the pool is one of the ring.
#[derive(Debug)]
pub(super) struct Lending {
    buffers: BufferRing,
    pub(super) pool: Rc<Pool>,
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
        let pool =
            Pool::new(size, kernel).map_err(|e| SetupError::Step("reserving receive memory", e))?;
        let buffers = BufferRing::register(ring, group, size.most)?;
        Ok(Self { buffers, pool })
    }

    /// Publishes returned buffers with one store.
    #[inline]
    pub(super) fn refill(&mut self) {
        let buffers = &mut self.buffers;
        let mut any = false;
        self.pool.refill(|address, len, id| {
            any = true;
            // SAFETY: the pool's memory lives until the group is unregistered; a buffer in the pool's `Kernel` place is
            // touched by nobody else, and the ring has an entry for each.
            unsafe { buffers.add(address, len, id) };
        });
        if any {
            self.buffers.publish();
        }
    }

    /// Every completion was taken, so that no buffer has been filled that the pool still counts as the kernel's.
    pub(super) fn trim(&self, flags: SetupFlags) {
        self.pool.trim(flags.contains(SetupFlags::DEFER_TASKRUN));
    }

    /// # Safety
    /// `ring` must be the one that it was made for.
    pub(super) unsafe fn close(self, ring: &Ring) -> io::Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.buffers.unregister(ring) }
    }
}
