//! Memory whose pages the kernel has pinned, so that a read or write in it need not look them up.
#![allow(unsafe_code)]

use crate::params::{TableSetup, TableUpdate};
use crate::ring::Ring;
use annulus_kernel::{IoVec, Register};
use std::io;

/// A ring's table of registered memory (5.19), whose indices [`Entry::registered`](crate::Entry::registered) names. A ring has one.
///
/// The pages of an index stay pinned, even if they are unmapped, until the index is cleared or the ring is gone.
#[derive(Debug)]
pub struct BufferTable(());

impl BufferTable {
    /// Most bytes of an index.
    pub const MOST: usize = 1 << 30;

    /// Registers a table with so many empty indices.
    ///
    /// # Errors
    /// The kernel's: EBUSY if there is a table, EACCES for a restricted ring, EINVAL before 5.19.
    pub fn register(ring: &Ring, count: u32) -> io::Result<Self> {
        let mut setup = TableSetup { count, flags: TableSetup::SPARSE, ..TableSetup::default() };
        let size = size_of::<TableSetup>() as u32;
        ring.register(Register::Buffers, (&raw mut setup).cast(), size)?;
        Ok(Self(()))
    }

    /// Registers memory at an index.
    ///
    /// # Errors
    /// The kernel's: ENOMEM if it is more than the process may lock, EINVAL for an index that is not in the table, EFAULT for
    /// memory that is not mapped, or for more than [`MOST`](Self::MOST) bytes.
    ///
    /// # Safety
    /// As long as entries name the index, the memory must stay mapped: they access the pages that it had when it was registered.
    pub unsafe fn set(&self, ring: &Ring, index: u32, memory: IoVec) -> io::Result<()> {
        update(ring, index, memory)
    }

    /// Clears an index. Operations in flight that name it continue.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(&self, ring: &Ring, index: u32) -> io::Result<()> {
        let nothing = IoVec { base: std::ptr::null(), len: 0 };
        update(ring, index, nothing)
    }
}

fn update(ring: &Ring, index: u32, memory: IoVec) -> io::Result<()> {
    let elements = (&raw const memory) as u64;
    let mut update = TableUpdate { index, elements, count: 1, ..TableUpdate::default() };
    let size = size_of::<TableUpdate>() as u32;
    ring.register(Register::BuffersUpdate, (&raw mut update).cast(), size).map(drop)
}
