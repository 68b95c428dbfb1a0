//! Descriptors that the kernel has looked up, so that operations on them need not.

use crate::params::{TableSetup, TableUpdate};
use crate::ring::Ring;
use annulus_kernel::{Fd, Register};
use std::io;

/// A ring's table of open files (5.19), whose indices [`Entry::of_file`](crate::Entry::of_file) names. A ring has one.
///
/// The file of an index stays open, even if its descriptor is closed, until the index is cleared or the ring is gone.
#[derive(Debug)]
pub struct FileTable(());

impl FileTable {
    /// Registers a table with so many empty indices.
    ///
    /// # Errors
    /// The kernel's: EBUSY if there is a table, EMFILE for more indices than the process may have descriptors, EACCES for a
    /// restricted ring, EINVAL before 5.19.
    pub fn register(ring: &Ring, count: u32) -> io::Result<Self> {
        let mut setup = TableSetup { count, flags: TableSetup::SPARSE, ..TableSetup::default() };
        let size = size_of::<TableSetup>() as u32;
        ring.register(Register::Files, (&raw mut setup).cast(), size)?;
        Ok(Self(()))
    }

    /// Registers the file of a descriptor at an index.
    ///
    /// # Errors
    /// The kernel's: EINVAL for an index that is not in the table, EBADF for a descriptor that is not open or is a ring's.
    pub fn set(&self, ring: &Ring, index: u32, fd: Fd) -> io::Result<()> {
        update(ring, index, fd)
    }

    /// Clears an index. Operations in flight that name it continue.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(&self, ring: &Ring, index: u32) -> io::Result<()> {
        update(ring, index, Fd::NONE)
    }
}

fn update(ring: &Ring, index: u32, fd: Fd) -> io::Result<()> {
    let number = fd.raw();
    let elements = &raw const number as u64;
    let mut update = TableUpdate { index, elements, count: 1, ..TableUpdate::default() };
    let size = size_of::<TableUpdate>() as u32;
    ring.register(Register::FilesUpdate, (&raw mut update).cast(), size).map(drop)
}
