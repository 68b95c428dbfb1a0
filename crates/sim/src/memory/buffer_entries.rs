//! A registered buffer ring, as the kernel sees it.
#![allow(unsafe_code)]

use crate::memory_range::MemoryRange;
use annulus_ring::BufferRingSetup;
use std::sync::atomic::{AtomicU16, Ordering};

/// `struct io_uring_buf`. In entry 0, the last field is the tail of the ring.
#[repr(C)]
struct BufferEntry {
    address: u64,
    len: u32,
    id: u16,
    tail: AtomicU16,
}

/// The entries of a buffer ring.
#[derive(Clone, Copy)]
pub(crate) struct BufferEntries {
    first: *const BufferEntry,
    mask: u16,
}

impl BufferEntries {
    /// # Safety
    /// The set-up was registered under the contract of `Kernel::register`: the entries stay valid
    /// until the group is unregistered, and their number is a power of two up to 32,768.
    pub(super) unsafe fn new(setup: &BufferRingSetup) -> Self {
        let first = std::ptr::with_exposed_provenance(setup.ring_addr as usize);
        Self { first, mask: (setup.ring_entries - 1) as u16 }
    }

    /// Returns how many buffers have been published; wraps.
    #[inline]
    pub(crate) fn tail(self) -> u16 {
        // SAFETY: entry 0 exists, and its tail is only accessed atomically. Acquire pairs with the
        // submitter's release store: this side sees every entry below the tail that it loads.
        unsafe { (*self.first).tail.load(Ordering::Acquire) }
    }

    /// Returns the id and memory of the `index`th published buffer; the index wraps.
    #[inline]
    pub(crate) fn buffer(self, index: u16) -> (u16, MemoryRange) {
        // SAFETY: the masked index is inside the ring, and the submitter does not change published
        // entries. It does change the tail field, which is not read here.
        unsafe {
            let slot = self.first.add(usize::from(index & self.mask));
            let (address, len) =
                ((&raw const (*slot).address).read(), (&raw const (*slot).len).read());
            ((&raw const (*slot).id).read(), MemoryRange::new(address, len as usize))
        }
    }
}
