//! A ring of buffers from which the kernel takes one for each receive.
#![allow(unsafe_code)]

use crate::error::SetupError;
use crate::params::BufferRingSetup;
use crate::ring::Ring;
use annulus_kernel::{Mapping, Register};
use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU16, Ordering};

/// Maximum number of entries of a buffer ring.
const MAX_BUFFER_RING_ENTRIES: u32 = 32_768;

/// `struct io_uring_buf`. The last field of entry 0 is the ring's tail, so entries are written
/// field by field, never as a whole.
#[repr(C)]
struct BufferEntry {
    address: u64,
    len: u32,
    id: u16,
    tail: AtomicU16,
}

/// A registered buffer ring (5.19): the kernel takes buffers at the head, and this type publishes
/// them at the tail.
///
/// It holds *entries*, not the memory of the buffers. That memory must stay valid until the buffer
/// ring is unregistered or the kernel has torn down its [`Ring`]. Only
/// [`unregister`](Self::unregister) frees the memory of the entries; otherwise it is leaked.
pub struct BufferRing {
    memory: ManuallyDrop<Mapping>,
    group: u16,
    mask: u16,
    tail: u16,
}

impl BufferRing {
    /// Registers an empty ring of `entries` (a power of two, 1 to 32,768) as buffer group `group`.
    ///
    /// # Errors
    /// [`SetupError::Size`] for an invalid number of entries; [`SetupError::Step`] with the
    /// system's error.
    pub fn register(ring: &Ring, group: u16, entries: u32) -> Result<Self, SetupError> {
        if !entries.is_power_of_two() || entries > MAX_BUFFER_RING_ENTRIES {
            return Err(SetupError::Size {
                what: "a buffer ring (a power of two)",
                given: entries,
                limit: MAX_BUFFER_RING_ENTRIES,
            });
        }
        let memory = Mapping::anonymous(entries as usize * size_of::<BufferEntry>())
            .map_err(|e| SetupError::Step("mapping a buffer ring", e))?;
        // After a fork, copy-on-write would separate these pages from the ones that the kernel
        // reads.
        memory.keep_from_children().map_err(|e| SetupError::Step("guarding a buffer ring", e))?;
        let mut setup = BufferRingSetup {
            ring_addr: memory.as_ptr() as u64,
            ring_entries: entries,
            group,
            ..BufferRingSetup::default()
        };
        // SAFETY: there is one set-up, and its entries stay mapped: they are unmapped only once the
        // ring is unregistered, and otherwise leaked.
        unsafe { ring.register(Register::BufferRing, (&raw mut setup).cast(), 1) }
            .map_err(|e| SetupError::Step("registering a buffer ring", e))?;
        Ok(Self { memory: ManuallyDrop::new(memory), group, mask: (entries - 1) as u16, tail: 0 })
    }

    /// Returns the number of the buffer group.
    pub fn group(&self) -> u16 {
        self.group
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u32 {
        u32::from(self.mask) + 1
    }

    /// Adds a buffer. The kernel sees it after [`publish`](Self::publish).
    ///
    /// # Safety
    /// `len` bytes at `address` must stay valid and unused by other code from the publication until
    /// a completion returns `id`, and at most [`entries`](Self::entries) buffers may be with the
    /// kernel at once.
    #[inline]
    pub unsafe fn add(&mut self, address: *mut u8, len: u32, id: u16) {
        // SAFETY: the masked index lies inside the mapping. The kernel has consumed the previous
        // entry in this slot, since it holds at most `entries` buffers. The tail field, which the
        // kernel reads, is not written.
        unsafe {
            let slot = self.slots().add(usize::from(self.tail & self.mask));
            (&raw mut (*slot).address).write(address as u64);
            (&raw mut (*slot).len).write(len);
            (&raw mut (*slot).id).write(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes every buffer added so far, with one store.
    #[inline]
    pub fn publish(&self) {
        // SAFETY: entry 0 exists, and its tail is accessed only through this atomic.
        let tail = unsafe { &(*self.slots()).tail };
        // Release pairs with the kernel's acquire load of the tail: if it sees the tail, it sees
        // the entries below.
        tail.store(self.tail, Ordering::Release);
    }

    /// Unregisters the group and frees the memory of the entries.
    ///
    /// # Errors
    /// The kernel's error. The memory is then leaked.
    ///
    /// # Safety
    /// `ring` must be the ring that the group was registered with.
    pub unsafe fn unregister(self, ring: &Ring) -> io::Result<()> {
        let mut setup = BufferRingSetup { group: self.group, ..BufferRingSetup::default() };
        // SAFETY: the kernel reads one set-up during the call.
        unsafe { ring.register(Register::UnregisterBufferRing, (&raw mut setup).cast(), 1) }?;
        // The kernel no longer reads the entries.
        drop(ManuallyDrop::into_inner(self.memory));
        Ok(())
    }

    fn slots(&self) -> *mut BufferEntry {
        self.memory.as_ptr().cast()
    }
}

const _: () = assert!(size_of::<BufferEntry>() == 16);

impl std::fmt::Debug for BufferRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufferRing(group {}, {} entries)", self.group, self.entries())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a buffer ring in plain memory. Its tail wraps with the first buffer.
    fn below_the_wrap() -> BufferRing {
        let memory = Mapping::anonymous(4 * size_of::<BufferEntry>()).unwrap();
        BufferRing { memory: ManuallyDrop::new(memory), group: 0, mask: 3, tail: u16::MAX }
    }

    #[test]
    fn adding_to_entry_zero_does_not_change_the_tail_and_the_tail_wraps() {
        let mut ring = below_the_wrap();
        ring.publish();
        for id in 0..4 {
            // SAFETY: no kernel reads this ring, so nothing uses the address.
            unsafe { ring.add(std::ptr::dangling_mut(), 9, id) };
        }
        // SAFETY: the mapping holds four slots, and only this thread uses it.
        let tail = |ring: &BufferRing| unsafe { (*ring.slots()).tail.load(Ordering::Relaxed) };
        assert_eq!(tail(&ring), u16::MAX, "a buffer was published before publish()");
        ring.publish();
        assert_eq!(tail(&ring), 3);
        // SAFETY: the indices are below four. The first of the four buffers is at index 65535 & 3 =
        // 3.
        let ids: Vec<u16> = (0..4).map(|i| unsafe { (*ring.slots().add(i)).id }).collect();
        assert_eq!(ids, [1, 2, 3, 0]);
    }
}
