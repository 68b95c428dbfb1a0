//! A registered buffer ring, from the kernel's side.
#![allow(unsafe_code)]

use super::Piece;
use annulus_ring::BufferRingSetup;
use std::sync::atomic::{AtomicU16, Ordering};

/// `struct io_uring_buf`; in entry 0 the last field is the ring's tail.
#[repr(C)]
struct Slot {
    address: u64,
    len: u32,
    id: u16,
    tail: AtomicU16,
}

/// The entries of a buffer ring.
#[derive(Clone, Copy)]
pub(crate) struct BufferEntries {
    first: *const Slot,
    mask: u16,
}

impl BufferEntries {
    /// # Safety
    /// The setup was registered under the promise of `Kernel::register`: the entries live until the group is
    /// unregistered, and their number is a power of two up to 32,768.
    pub(super) unsafe fn new(setup: &BufferRingSetup) -> Self {
        let first = std::ptr::with_exposed_provenance(setup.ring_addr as usize);
        Self { first, mask: (setup.ring_entries - 1) as u16 }
    }

    /// How many buffers were published, wrapping.
    #[inline]
    pub(crate) fn tail(self) -> u16 {
        // SAFETY: entry 0 exists, and its tail is reached only through this atomic. Acquire pairs with the submitter's
        // release store: whoever sees the tail sees the entries below it.
        unsafe { (*self.first).tail.load(Ordering::Acquire) }
    }

    /// The buffer published as the `index`th, wrapping.
    #[inline]
    pub(crate) fn buffer(self, index: u16) -> (u16, Piece) {
        // SAFETY: the masked index lies inside the ring; the submitter leaves published entries alone. The tail field
        // beside is not read.
        unsafe {
            let slot = self.first.add(usize::from(index & self.mask));
            let (address, len) =
                ((&raw const (*slot).address).read(), (&raw const (*slot).len).read());
            ((&raw const (*slot).id).read(), Piece::new(address, len as usize))
        }
    }
}
