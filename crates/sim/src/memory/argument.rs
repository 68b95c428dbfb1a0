//! The argument of a registration.
#![allow(unsafe_code)]

use super::BufferEntries;
use annulus_ring::{BufferRingSetup, RingUpdate};
use rustix::io::Errno;

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

const _: () = assert!(size_of::<RestrictionEntry>() == 16);
