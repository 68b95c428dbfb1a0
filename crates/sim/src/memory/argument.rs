//! The argument of a registration.
#![allow(unsafe_code)]

use super::BufferEntries;
use annulus_kernel::IoVec;
use annulus_ring::{BufferRingSetup, BufferTableSetup, BufferTableUpdate, RingUpdate};
use rustix::io::Errno;

/// Memory that a registration reads or writes during the call.
#[derive(Clone, Copy)]
pub(crate) struct Argument {
    start: *mut u8,
    count: u32,
}

/// `struct io_uring_restriction`: what a ring may do.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Restriction {
    /// Which kind: 1 allows a submission opcode.
    pub(crate) kind: u16,
    pub(crate) value: u8,
    reserved: u8,
    reserved2: [u32; 3],
}

impl Argument {
    /// # Safety
    /// The promise of `Kernel::register`: `start` points to what the registration expects, `count` items of it.
    pub(crate) unsafe fn new(start: *mut u8, count: u32) -> Self {
        Self { start, count }
    }

    pub(crate) fn count(self) -> u32 {
        self.count
    }

    pub(crate) fn ring_update(self) -> Result<RingUpdate, Errno> {
        self.check(1)?;
        // SAFETY: the promise, for a registration or release of ring descriptors.
        Ok(unsafe { self.start.cast::<RingUpdate>().read() })
    }

    pub(crate) fn answer_ring_update(self, update: RingUpdate) {
        // SAFETY: as in `ring_update`, which was called before.
        unsafe { self.start.cast::<RingUpdate>().write(update) };
    }

    /// The set-up of a buffer ring.
    pub(crate) fn buffer_ring(self) -> Result<BufferRingSetup, Errno> {
        self.check(1)?;
        // SAFETY: the promise, for a registration or release of a buffer ring.
        Ok(unsafe { self.start.cast::<BufferRingSetup>().read() })
    }

    /// The entries of a buffer ring to register, once its set-up was found good.
    pub(crate) fn buffer_entries(self, setup: &BufferRingSetup) -> Result<BufferEntries, Errno> {
        let sound = setup.ring_entries.is_power_of_two() && setup.ring_entries <= 32_768;
        if !sound || setup.ring_addr == 0 || !setup.ring_addr.is_multiple_of(4096) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the promise covers the entries, until they are unregistered.
        Ok(unsafe { BufferEntries::new(setup) })
    }

    /// How a table of registered memory is to be.
    pub(crate) fn table(self) -> Result<BufferTableSetup, Errno> {
        self.check_size(size_of::<BufferTableSetup>())?;
        // SAFETY: the promise, for a registration of a table; its size was given.
        Ok(unsafe { self.start.cast::<BufferTableSetup>().read() })
    }

    /// What is to lie in one place of a table: its number, and an address and a length.
    pub(crate) fn place(self) -> Result<(u32, IoVec), Errno> {
        self.check_size(size_of::<BufferTableUpdate>())?;
        // SAFETY: the promise, for an update of a table; its size was given.
        let update = unsafe { self.start.cast::<BufferTableUpdate>().read() };
        if update.count != 1 || update.tags != 0 {
            return Err(Errno::INVAL);
        }
        let vector = std::ptr::with_exposed_provenance::<IoVec>(update.vectors as usize);
        // SAFETY: the promise covers the vectors, of which there is one.
        Ok((update.index, unsafe { vector.read() }))
    }

    pub(crate) fn restriction(self, index: u32) -> Restriction {
        assert!(index < self.count);
        // SAFETY: the promise, for `count` restrictions.
        unsafe { self.start.cast::<Restriction>().add(index as usize).read_unaligned() }
    }

    /// Answers a probe: the operations up to `last`, as many as there is room for.
    pub(crate) fn answer_probe(self, last: u8, has: impl Fn(u8) -> bool) -> Result<(), Errno> {
        self.check(u32::MAX)?;
        let shown = (u32::from(last) + 1).min(self.count) as u8;
        let header: [u8; 16] = std::array::from_fn(|i| [last, shown].get(i).copied().unwrap_or(0));
        // SAFETY: the promise, for a probe: a header of 16 bytes and `count` lines of 8.
        unsafe { self.start.cast::<[u8; 16]>().write(header) };
        for code in 0..shown {
            let [low, high] = u16::from(has(code)).to_ne_bytes();
            let line = [code, 0, low, high, 0, 0, 0, 0];
            // SAFETY: as above; `code` is below `count`.
            unsafe { self.start.add(16).cast::<[u8; 8]>().add(usize::from(code)).write(line) };
        }
        Ok(())
    }

    /// Where the count is a size in bytes.
    fn check_size(self, size: usize) -> Result<(), Errno> {
        self.check(u32::MAX)?;
        if self.count as usize == size { Ok(()) } else { Err(Errno::INVAL) }
    }

    fn check(self, most: u32) -> Result<(), Errno> {
        if self.start.is_null() {
            return Err(Errno::FAULT);
        }
        if self.count == 0 || self.count > most { Err(Errno::INVAL) } else { Ok(()) }
    }
}

const _: () = assert!(size_of::<Restriction>() == 16);
