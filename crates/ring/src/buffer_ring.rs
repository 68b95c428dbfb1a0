//! A ring of buffers that the kernel picks from when data arrives.
#![allow(unsafe_code)]

use crate::error::SetupError;
use crate::params::BufferRingSetup;
use crate::ring::Ring;
use annulus_kernel::{Mapping, Register};
use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU16, Ordering};

/// Most entries a buffer ring may have.
const MAX_ENTRIES: u32 = 32_768;

/// `struct io_uring_buf`. In entry 0 the last field is the ring's tail: an entry is written field by field, never whole.
#[repr(C)]
struct Slot {
    address: u64,
    len: u32,
    id: u16,
    tail: AtomicU16,
}

/// A registered buffer ring (5.19): the kernel takes buffers at the head, we publish at the tail.
///
/// The ring holds *entries*, not the buffers' memory, which must stay until the ring is unregistered or the kernel has torn down
/// its [`Ring`]. The entries' own memory is freed by [`unregister`](Self::unregister) alone, and leaked otherwise.
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
    /// [`SetupError::Size`] for a bad size; otherwise whatever the kernel says.
    pub fn register(ring: &Ring, group: u16, entries: u32) -> Result<Self, SetupError> {
        if !entries.is_power_of_two() || entries > MAX_ENTRIES {
            return Err(SetupError::Size {
                what: "a buffer ring (powers of two)",
                given: entries,
                limit: MAX_ENTRIES,
            });
        }
        let memory = Mapping::anonymous(entries as usize * size_of::<Slot>())
            .map_err(|e| SetupError::Step("mapping a buffer ring", e))?;
        // Simulated kernels share this process, so a failure here only matters to a fork.
        memory.keep_from_children().map_err(|e| SetupError::Step("guarding a buffer ring", e))?;
        let mut setup = BufferRingSetup {
            ring_addr: memory.as_ptr() as u64,
            ring_entries: entries,
            group,
            ..BufferRingSetup::default()
        };
        ring.register(Register::BufferRing, (&raw mut setup).cast(), 1)
            .map_err(|e| SetupError::Step("registering a buffer ring", e))?;
        Ok(Self { memory: ManuallyDrop::new(memory), group, mask: (entries - 1) as u16, tail: 0 })
    }

    /// The group's number.
    pub fn group(&self) -> u16 {
        self.group
    }

    /// Entries there is room for.
    pub fn entries(&self) -> u32 {
        u32::from(self.mask) + 1
    }

    /// Adds one buffer; the kernel sees it after [`publish`](Self::publish).
    ///
    /// # Safety
    /// `len` bytes at `address` must stay valid and untouched from the publication until a completion names `id`, and
    /// no more than [`entries`](Self::entries) buffers may be with the kernel at once.
    #[inline]
    pub unsafe fn add(&mut self, address: *mut u8, len: u32, id: u16) {
        // SAFETY: the masked index lies inside the mapping, and the kernel has taken the entry that stood there, since
        // at most `entries` are out. The tail field beside it is left alone.
        unsafe {
            let slot = self.slots().add(usize::from(self.tail & self.mask));
            (&raw mut (*slot).address).write(address as u64);
            (&raw mut (*slot).len).write(len);
            (&raw mut (*slot).id).write(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel every buffer added so far, with one store.
    #[inline]
    pub fn publish(&self) {
        // SAFETY: entry 0 exists, and its tail is reached only through this atomic.
        let tail = unsafe { &(*self.slots()).tail };
        // Release pairs with the kernel's acquire load of the tail: whoever sees it sees the entries below.
        tail.store(self.tail, Ordering::Release);
    }

    /// Takes the group away from the kernel, and frees the entries' memory.
    ///
    /// # Errors
    /// Whatever the kernel says; the memory is leaked then.
    ///
    /// # Safety
    /// `ring` must be the one that the group was registered with.
    pub unsafe fn unregister(mut self, ring: &Ring) -> io::Result<()> {
        let mut setup = BufferRingSetup { group: self.group, ..BufferRingSetup::default() };
        ring.register(Register::UnregisterBufferRing, (&raw mut setup).cast(), 1)?;
        // SAFETY: it is dropped once: the value ends here. The kernel has let go of the memory.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
        Ok(())
    }

    fn slots(&self) -> *mut Slot {
        self.memory.as_ptr().cast()
    }
}

const _: () = assert!(size_of::<Slot>() == 16);

impl std::fmt::Debug for BufferRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufferRing(group {}, {} entries)", self.group, self.entries())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring over plain memory whose tail stands just below the wrap.
    fn below_the_wrap() -> BufferRing {
        let memory = Mapping::anonymous(4 * size_of::<Slot>()).unwrap();
        BufferRing { memory: ManuallyDrop::new(memory), group: 0, mask: 3, tail: u16::MAX }
    }

    #[test]
    fn adding_to_entry_zero_leaves_the_tail_alone_and_the_tail_wraps() {
        let mut ring = below_the_wrap();
        ring.publish();
        for id in 0..4 {
            // SAFETY: no kernel looks at this ring.
            unsafe { ring.add(std::ptr::dangling_mut(), 9, id) };
        }
        // SAFETY: the mapping holds four slots.
        let tail = |ring: &BufferRing| unsafe { (*ring.slots()).tail.load(Ordering::Relaxed) };
        assert_eq!(tail(&ring), u16::MAX, "nothing is published before publish()");
        ring.publish();
        assert_eq!(tail(&ring), 3);
        // SAFETY: as above. The first of the four went to index 65535 & 3 = 3.
        let ids: Vec<u16> = (0..4).map(|i| unsafe { (*ring.slots().add(i)).id }).collect();
        assert_eq!(ids, [1, 2, 3, 0]);
    }
}
