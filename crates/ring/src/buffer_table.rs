//! A table of registered buffers. The kernel looks up and pins the pages of a buffer once, instead
//! of in each operation that uses it.
#![allow(unsafe_code)]

use crate::entry::Entry;
use crate::opcode;
use crate::params::{BufferTableSetup, BufferTableUpdate};
use crate::ring::Ring;
use annulus_kernel::{IoVec, Register};
use std::io;

/// A table of registered buffers of a [`Ring`] (5.19). A ring has at most one.
///
/// A buffer in the table is only pinned: the kernel accesses it in operations that name its slot,
/// and these are unsafe to submit. If its memory is freed first, the slot must be cleared before an
/// operation uses it again, because the kernel would access the old pages.
#[derive(Debug)]
pub struct BufferTable {
    slots: u16,
}

impl BufferTable {
    /// Registers a table of empty slots.
    ///
    /// # Errors
    /// The kernel's error: `EBUSY` if the ring has a table, `EINVAL` for no or too many slots, or
    /// before 5.19.
    pub fn register(ring: &Ring, slots: u16) -> io::Result<Self> {
        let mut setup = BufferTableSetup {
            slots: slots.into(),
            flags: BufferTableSetup::SPARSE,
            ..BufferTableSetup::default()
        };
        let bytes = size_of::<BufferTableSetup>() as u32;
        // SAFETY: this is the size of the set-up, which the kernel reads during the call.
        unsafe { ring.register(Register::Buffers, (&raw mut setup).cast(), bytes) }?;
        Ok(Self { slots })
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// Puts a buffer into a slot, and pins its pages. No operation in flight may use the slot.
    ///
    /// # Errors
    /// The kernel's error: `ENOMEM` if `RLIMIT_MEMLOCK` allows no more pinned pages, `EFAULT` if
    /// the memory does not belong to the process or exceeds 1 GiB. The slot is then empty.
    pub fn set(&self, ring: &Ring, slot: u16, buffer: IoVec) -> io::Result<()> {
        update(ring, slot, buffer)
    }

    /// Removes the buffer from a slot.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn clear(ring: &Ring, slot: u16) -> io::Result<()> {
        update(ring, slot, IoVec { base: std::ptr::null(), len: 0 })
    }
}

fn update(ring: &Ring, slot: u16, buffer: IoVec) -> io::Result<()> {
    let mut update = BufferTableUpdate {
        first_slot: slot.into(),
        data: &raw const buffer as u64,
        count: 1,
        ..BufferTableUpdate::default()
    };
    let bytes = size_of::<BufferTableUpdate>() as u32;
    // SAFETY: this is the size of the update. It refers to one buffer of one slot, and the kernel
    // reads both during the call. It pins the buffer's pages and does not access them.
    unsafe { ring.register(Register::BuffersUpdate, (&raw mut update).cast(), bytes) }.map(drop)
}

/// Makes a read or write use the registered buffer in a slot, which must contain its memory.
/// Returns `None` for other operations.
pub fn with_registered_buffer(entry: Entry, slot: u16) -> Option<Entry> {
    let opcode = match entry.opcode {
        opcode::READ => opcode::READ_FIXED,
        opcode::WRITE => opcode::WRITE_FIXED,
        _ => return None,
    };
    Some(Entry { opcode, buf_group: slot, ..entry })
}
