//! The argument of a registration.
#![allow(unsafe_code)]

use super::BufferEntries;
use annulus_kernel::IoVec;
use annulus_ring::{BufferRingSetup, BufferTableSetup, BufferTableUpdate, RingUpdate};
use rustix::io::Errno;

/// `IORING_MAX_REG_BUFFERS`
const MAX_BUFFER_TABLE_SLOTS: u32 = 1 << 14;

/// A registered buffer. Only its place is kept: operations name their own memory within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PinnedBuffer {
    address: usize,
    len: usize,
}

impl PinnedBuffer {
    /// Returns true if `len` bytes at `address` are in the buffer.
    pub(crate) fn contains(self, address: u64, len: u32) -> bool {
        let Some(start) = address.checked_sub(self.address as u64) else { return false };
        start.checked_add(len.into()).is_some_and(|end| end <= self.len as u64)
    }
}

/// The memory that a registration reads or writes during the call.
#[derive(Clone, Copy)]
pub(crate) struct RegisterArgument {
    start: *mut u8,
    count: u32,
}

/// `struct io_uring_restriction`: one rule that restricts a ring.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RestrictionEntry {
    /// An `IORING_RESTRICTION_*` constant, which determines whether `value` is an opcode or a set
    /// of flags.
    pub(crate) kind: u16,
    pub(crate) value: u8,
    reserved: u8,
    reserved2: [u32; 3],
}

impl RegisterArgument {
    /// # Safety
    /// `start` must point to `count` items of the type that the registration expects, as required
    /// by `Kernel::register`.
    pub(crate) unsafe fn new(start: *mut u8, count: u32) -> Self {
        Self { start, count }
    }

    pub(crate) fn count(self) -> u32 {
        self.count
    }

    pub(crate) fn ring_update(self) -> Result<RingUpdate, Errno> {
        self.check(1)?;
        Ok(self.read())
    }

    pub(crate) fn answer_ring_update(self, update: RingUpdate) {
        // SAFETY: the argument is a `RingUpdate`, which `ring_update` has already read.
        unsafe { self.start.cast::<RingUpdate>().write(update) };
    }

    pub(crate) fn buffer_ring(self) -> Result<BufferRingSetup, Errno> {
        self.check(1)?;
        Ok(self.read())
    }

    /// Returns the entries of the buffer ring to register, if the set-up is valid.
    pub(crate) fn buffer_entries(self, setup: &BufferRingSetup) -> Result<BufferEntries, Errno> {
        let valid = setup.ring_entries.is_power_of_two() && setup.ring_entries <= 32_768;
        if !valid || setup.ring_addr == 0 || !setup.ring_addr.is_multiple_of(4096) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the contract of `Kernel::register` keeps the entries valid until they are
        // unregistered.
        Ok(unsafe { BufferEntries::new(setup) })
    }

    /// Returns the number of slots of a new table of registered buffers, all of them empty.
    pub(crate) fn buffer_table(self) -> Result<usize, Errno> {
        self.check_size::<BufferTableSetup>()?;
        let BufferTableSetup { slots, flags, reserved, data, tags } = self.read();
        // Only a table of empty slots is simulated.
        let is_valid = (1..=MAX_BUFFER_TABLE_SLOTS).contains(&slots)
            && (flags, reserved, data, tags) == (BufferTableSetup::SPARSE, 0, 0, 0);
        if is_valid { Ok(slots as usize) } else { Err(Errno::INVAL) }
    }

    /// Returns a slot of the table of registered buffers, and its new buffer, if any.
    pub(crate) fn buffer_update(self) -> Result<(usize, Option<PinnedBuffer>), Errno> {
        self.check_size::<BufferTableUpdate>()?;
        let BufferTableUpdate { first_slot, reserved, data, tags, count, reserved2 } = self.read();
        // Only updates of a single slot without a tag are simulated.
        if (reserved, tags, count, reserved2) != (0, 0, 1, 0) {
            return Err(Errno::INVAL);
        }
        if data == 0 {
            return Err(Errno::FAULT);
        }
        let vector = std::ptr::with_exposed_provenance::<IoVec>(data as usize);
        // SAFETY: the contract of `Kernel::register` makes the vector of the update valid during
        // the call.
        let IoVec { base, len } = unsafe { vector.read() };
        match (base.addr(), len) {
            (0, 0) => Ok((first_slot as usize, None)),
            (0, _) | (_, 0) => Err(Errno::FAULT),
            (address, _) => Ok((first_slot as usize, Some(PinnedBuffer { address, len }))),
        }
    }

    pub(crate) fn restriction(self, index: u32) -> RestrictionEntry {
        assert!(index < self.count);
        // SAFETY: the argument has `count` restrictions.
        unsafe { self.start.cast::<RestrictionEntry>().add(index as usize).read_unaligned() }
    }

    /// Writes the result of a probe: the operations up to `last`, as many as fit.
    pub(crate) fn answer_probe(self, last: u8, has: impl Fn(u8) -> bool) -> Result<(), Errno> {
        self.check(u32::MAX)?;
        let shown = (u32::from(last) + 1).min(self.count) as u8;
        let header: [u8; 16] = std::array::from_fn(|i| [last, shown].get(i).copied().unwrap_or(0));
        let line = |code| {
            let [low, high] = u16::from(has(code)).to_ne_bytes();
            [code, 0, low, high, 0, 0, 0, 0]
        };
        // SAFETY: the argument is a header of 16 bytes and `count` lines of 8 bytes, and `shown` is
        // at most `count`.
        unsafe {
            self.start.cast::<[u8; 16]>().write(header);
            let lines = self.start.add(16).cast::<[u8; 8]>();
            (0..shown).for_each(|code| lines.add(usize::from(code)).write(line(code)));
        }
        Ok(())
    }

    /// Reads the argument as the structure that its registration expects.
    fn read<T: PlainStruct>(self) -> T {
        // SAFETY: `new` guarantees that `start` points to what the registration expects. Each
        // caller handles one kind of registration and reads its structure; all of these are plain
        // integers.
        unsafe { self.start.cast::<T>().read() }
    }

    fn check_size<T: PlainStruct>(self) -> Result<(), Errno> {
        self.check(u32::MAX)?;
        if self.count as usize == size_of::<T>() { Ok(()) } else { Err(Errno::INVAL) }
    }

    fn check(self, most: u32) -> Result<(), Errno> {
        if self.start.is_null() {
            return Err(Errno::FAULT);
        }
        if self.count == 0 || self.count > most { Err(Errno::INVAL) } else { Ok(()) }
    }
}

/// Structures of plain integers that registrations take.
trait PlainStruct: Copy {}

impl PlainStruct for RingUpdate {}
impl PlainStruct for BufferRingSetup {}
impl PlainStruct for BufferTableSetup {}
impl PlainStruct for BufferTableUpdate {}

const _: () = assert!(size_of::<RestrictionEntry>() == 16);
