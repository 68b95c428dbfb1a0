//! The argument of a registration.
#![allow(unsafe_code)]

use super::BufferEntries;
use annulus_ring::{BufferRingSetup, RingUpdate};
use rustix::io::Errno;

/// Memory that a registration reads or writes during the call.
#[derive(Clone, Copy)]
pub(crate) struct RegisterArgument {
    start: *mut u8,
    count: u32,
}

/// `struct io_uring_restriction`: an operation that a ring may do.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RestrictionEntry {
    /// 1 allows a submission opcode.
    pub(crate) kind: u16,
    pub(crate) value: u8,
    reserved: u8,
    reserved2: [u32; 3],
}

impl RegisterArgument {
    /// # Safety
    /// `start` must point to `count` items of what the registration expects, as the contract of `Kernel::register` demands.
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
        // SAFETY: the argument is a `RingUpdate`, which `ring_update` has read.
        unsafe { self.start.cast::<RingUpdate>().write(update) };
    }

    /// The set-up of a buffer ring.
    pub(crate) fn buffer_ring(self) -> Result<BufferRingSetup, Errno> {
        self.check(1)?;
        Ok(self.read())
    }

    /// The entries of a buffer ring to register, if its set-up is valid.
    pub(crate) fn buffer_entries(self, setup: &BufferRingSetup) -> Result<BufferEntries, Errno> {
        let valid = setup.ring_entries.is_power_of_two() && setup.ring_entries <= 32_768;
        if !valid || setup.ring_addr == 0 || !setup.ring_addr.is_multiple_of(4096) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the entries are valid until they are unregistered, as the contract of `Kernel::register` demands.
        Ok(unsafe { BufferEntries::new(setup) })
    }

    pub(crate) fn restriction(self, index: u32) -> RestrictionEntry {
        assert!(index < self.count);
        // SAFETY: the argument has `count` restrictions.
        unsafe { self.start.cast::<RestrictionEntry>().add(index as usize).read_unaligned() }
    }

    /// Writes the result of a probe: the operations up to `last`, as far as there is space.
    pub(crate) fn answer_probe(self, last: u8, has: impl Fn(u8) -> bool) -> Result<(), Errno> {
        self.check(u32::MAX)?;
        let shown = (u32::from(last) + 1).min(self.count) as u8;
        let header: [u8; 16] = std::array::from_fn(|i| [last, shown].get(i).copied().unwrap_or(0));
        let line = |code| {
            let [low, high] = u16::from(has(code)).to_ne_bytes();
            [code, 0, low, high, 0, 0, 0, 0]
        };
        // SAFETY: the argument is a header of 16 bytes and `count` lines of 8, and `shown` is at most `count`.
        unsafe {
            self.start.cast::<[u8; 16]>().write(header);
            let lines = self.start.add(16).cast::<[u8; 8]>();
            (0..shown).for_each(|code| lines.add(usize::from(code)).write(line(code)));
        }
        Ok(())
    }

    /// The argument, as the structure that its registration expects.
    fn read<T: PlainStruct>(self) -> T {
        // SAFETY: `start` points to what the registration expects, as `new` demands. Each caller is the accessor for one
        // kind of registration, and asks for its structure; all of them are plain integers.
        unsafe { self.start.cast::<T>().read() }
    }

    fn check(self, most: u32) -> Result<(), Errno> {
        if self.start.is_null() {
            return Err(Errno::FAULT);
        }
        if self.count == 0 || self.count > most { Err(Errno::INVAL) } else { Ok(()) }
    }
}

/// The structures of plain integers that registrations take.
trait PlainStruct: Copy {}

impl PlainStruct for RingUpdate {}
impl PlainStruct for BufferRingSetup {}

const _: () = assert!(size_of::<RestrictionEntry>() == 16);
