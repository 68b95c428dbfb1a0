//! Zero-copy receive (6.15): memory that the network stack fills, and the ring that returns it.
//!
//! Without a device (7.1), the kernel copies the bytes into the memory, and everything else is the
//! same.
#![allow(unsafe_code)]

use crate::error::SetupError;
use crate::memory::{MappedArea, SharedWord};
use crate::params::DeviceQueue;
use crate::ring::Ring;
use annulus_kernel::{Mapping, Register};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Maximum number of entries of a refill ring.
const MAX_REFILL_ENTRIES: u32 = 32_768;

/// `ZCRX_REG_NODEV`
const WITHOUT_DEVICE: u32 = 1 << 1;
/// `IORING_MEM_REGION_TYPE_USER`
const USER_MEMORY: u32 = 1;
/// `ZCRX_CTRL_FLUSH_RQ`
const FLUSH: u32 = 0;

/// `struct io_uring_zcrx_rqe`: a piece of memory to return.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RefillEntry {
    offset: u64,
    len: u32,
    padding: u32,
}

/// `struct io_uring_zcrx_offsets`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Offsets {
    head: u32,
    tail: u32,
    entries: u32,
    reserved: u32,
    reserved2: [u64; 2],
}

/// `struct io_uring_zcrx_area_reg`: the memory to fill.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct AreaSetup {
    address: u64,
    len: u64,
    token: u64,
    flags: u32,
    dmabuf: u32,
    reserved: [u64; 2],
}

/// `struct io_uring_region_desc`: the memory of the refill ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RegionSetup {
    address: u64,
    len: u64,
    flags: u32,
    id: u32,
    offset: u64,
    reserved: [u64; 4],
}

/// `struct io_uring_zcrx_ifq_reg`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct QueueSetup {
    device: u32,
    queue: u32,
    entries: u32,
    flags: u32,
    area: u64,
    region: u64,
    offsets: Offsets,
    id: u32,
    buffer_len: u32,
    events: u64,
    reserved: [u64; 2],
}

/// `struct zcrx_ctrl`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    id: u32,
    operation: u32,
    reserved: [u64; 2],
    argument: [u64; 6],
}

const _: () = assert!(size_of::<RefillEntry>() == 16);
const _: () = assert!(size_of::<AreaSetup>() == 48);
const _: () = assert!(size_of::<RegionSetup>() == 64);
const _: () = assert!(size_of::<QueueSetup>() == 96);
const _: () = assert!(size_of::<Control>() == 72);

/// A registered zero-copy receive: the kernel fills an area of memory, piece by piece, and this
/// type returns the pieces.
///
/// A [`RecvZeroCopy`](crate::op::RecvZeroCopy) has a [large](crate::Completion::is_large)
/// completion for each piece. The kernel pins the pages of the area and of the refill ring until it
/// has torn down the [`Ring`].
pub struct RefillRing {
    head: SharedWord,
    shared_tail: SharedWord,
    entries: *mut RefillEntry,
    mask: u32,
    tail: u32,
    id: u32,
    /// The bits that select the area in the offset of an entry.
    area: u64,
    // The fields above point into it.
    _memory: Mapping,
}

impl RefillRing {
    /// Registers the `len` bytes at `area` (whole pages) for receives from the given queue of a
    /// device, or without one from any socket. The ring needs [`mixed
    /// completions`](crate::RingBuilder::mixed_completions). `entries`, a power of two up to
    /// 32,768, is the maximum number of returned pieces that the kernel has not taken back.
    ///
    /// # Errors
    /// [`SetupError::ZeroCopyReceive`] with the kernel's error; [`SetupError::Step`] if memory
    /// cannot be mapped.
    ///
    /// # Safety
    /// Until the kernel has torn down the ring, no code may use the area, except the pieces that a
    /// completion has delivered and [`give_back`](Self::give_back) has not returned.
    pub unsafe fn register(
        ring: &Ring,
        queue: Option<DeviceQueue>,
        area: *mut u8,
        len: usize,
        entries: u32,
    ) -> Result<Self, SetupError> {
        debug_assert!(entries.is_power_of_two() && entries <= MAX_REFILL_ENTRIES);
        let page = rustix::param::page_size();
        // The kernel's header takes less than a page.
        let bytes = page + (entries as usize * size_of::<RefillEntry>()).next_multiple_of(page);
        let step = |e| SetupError::Step("mapping a refill ring", e);
        let memory = Mapping::anonymous(bytes).map_err(step)?;
        memory.keep_from_children().map_err(step)?;
        let mut area_setup =
            AreaSetup { address: area as u64, len: len as u64, ..AreaSetup::default() };
        let mut region = RegionSetup {
            address: memory.as_ptr() as u64,
            len: bytes as u64,
            flags: USER_MEMORY,
            ..RegionSetup::default()
        };
        let mut setup = QueueSetup {
            device: queue.map_or(0, |queue| queue.device),
            queue: queue.map_or(0, |queue| queue.queue),
            entries,
            flags: if queue.is_none() { WITHOUT_DEVICE } else { 0 },
            area: (&raw mut area_setup) as u64,
            region: (&raw mut region) as u64,
            ..QueueSetup::default()
        };
        // SAFETY: there is one set-up. The kernel reads and writes it, and what it points to,
        // during the call, and pins the pages of the area and of the region.
        unsafe { ring.register(Register::ZeroCopyReceive, (&raw mut setup).cast(), 1) }
            .map_err(|e| SetupError::ZeroCopyReceive(queue, e))?;
        Ok(Self::over(memory, &setup, area_setup.token))
    }

    fn over(memory: Mapping, setup: &QueueSetup, area: u64) -> Self {
        let start = NonNull::new(memory.as_ptr()).expect("a mapping is at address zero");
        let mapped = MappedArea { start, len: memory.len() };
        let QueueSetup { offsets, entries, id, .. } = *setup;
        // SAFETY: the offsets are the kernel's for this memory, which the new value keeps.
        let word = |offset| unsafe { SharedWord::at(mapped, offset) };
        let shared_tail = word(offsets.tail);
        Self {
            head: word(offsets.head),
            shared_tail,
            entries: mapped.at(offsets.entries, entries as usize * size_of::<RefillEntry>()).cast(),
            mask: entries - 1,
            tail: shared_tail.load(Ordering::Relaxed),
            id,
            area,
            _memory: memory,
        }
    }

    /// Returns the number that an entry refers to it by.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns true if [`give_back`](Self::give_back) has space for another piece.
    #[inline]
    pub fn has_space(&self) -> bool {
        // Acquire pairs with the kernel's release store of `head`, which follows its reads of the
        // entries below: only then may they be overwritten.
        self.tail.wrapping_sub(self.head.load(Ordering::Acquire)) <= self.mask
    }

    /// Returns a piece. The kernel sees it after [`publish`](Self::publish).
    ///
    /// # Panics
    /// Panics if there is [no space](Self::has_space).
    ///
    /// # Safety
    /// A completion has delivered the piece, and it has not been returned since. No code may use
    /// its bytes from now on.
    #[inline]
    pub unsafe fn give_back(&mut self, offset: u64, len: u32) {
        assert!(self.has_space(), "the refill ring is full");
        let entry = RefillEntry { offset: offset | self.area, len, padding: 0 };
        // SAFETY: the masked index lies inside the mapping, and the kernel has read the slot's
        // previous entry, since `head` has passed it.
        unsafe { self.entries.add((self.tail & self.mask) as usize).write(entry) };
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes every piece returned so far, with one store.
    #[inline]
    pub fn publish(&self) {
        // Release pairs with the kernel's acquire load of the tail: if it sees the tail, it sees
        // the entries below.
        self.shared_tail.store(self.tail, Ordering::Release);
    }

    /// Makes the kernel take back all published pieces. A device's queue does that by itself;
    /// without a device, nothing else does.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn flush(&self, ring: &Ring) -> io::Result<()> {
        let mut control = Control { id: self.id, operation: FLUSH, ..Control::default() };
        // SAFETY: the kernel reads one control during the call. The count of this call is zero.
        unsafe { ring.register(Register::ZeroCopyControl, (&raw mut control).cast(), 0) }.map(drop)
    }
}

impl std::fmt::Debug for RefillRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RefillRing({} entries)", self.mask + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a refill ring of four entries in plain memory. Its tail wraps with the second piece.
    fn below_the_wrap() -> RefillRing {
        let memory = Mapping::anonymous(4096).unwrap();
        let offsets = Offsets { head: 0, tail: 64, entries: 128, ..Offsets::default() };
        let setup = QueueSetup { entries: 4, offsets, ..QueueSetup::default() };
        let mut ring = RefillRing::over(memory, &setup, 1 << 48);
        ring.head.store(u32::MAX - 1, Ordering::Relaxed);
        ring.tail = u32::MAX - 1;
        ring.publish();
        ring
    }

    #[test]
    fn pieces_are_published_together_and_in_order_across_the_wrap() {
        let mut ring = below_the_wrap();
        for number in 0..4 {
            assert!(ring.has_space());
            // SAFETY: no kernel reads this ring, and no code uses the pieces.
            unsafe { ring.give_back(number * 4096, number as u32) };
        }
        let tail = |ring: &RefillRing| ring.shared_tail.load(Ordering::Relaxed);
        assert_eq!(tail(&ring), u32::MAX - 1, "a piece was published before publish()");
        ring.publish();
        assert_eq!(tail(&ring), 2);
        // SAFETY: the indices are below four. The first piece is at index (2^32 - 2) & 3 = 2.
        let entries = [2, 3, 0, 1].map(|at| unsafe { ring.entries.add(at).read() });
        for (number, entry) in (0..).zip(entries) {
            let offset = (1 << 48) | (number * 4096);
            assert_eq!(entry, RefillEntry { offset, len: number as u32, padding: 0 });
        }
    }

    #[test]
    fn full_ring_has_space_once_the_kernel_has_taken_a_piece() {
        let mut ring = below_the_wrap();
        // SAFETY: no kernel reads this ring, and no code uses the pieces.
        (0..4).for_each(|number| unsafe { ring.give_back(number, 1) });
        assert!(!ring.has_space());
        ring.head.store(u32::MAX, Ordering::Relaxed);
        assert!(ring.has_space());
    }

    #[test]
    #[should_panic(expected = "the refill ring is full")]
    fn piece_without_space_panics() {
        let mut ring = below_the_wrap();
        // SAFETY: no kernel reads this ring, and no code uses the pieces.
        (0..5).for_each(|number| unsafe { ring.give_back(number, 1) });
    }
}
