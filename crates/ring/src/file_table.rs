//! Descriptors that the kernel has looked up, so that operations on them need not.

use crate::ring::Ring;
use crate::table;
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
        table::register(ring, Register::Files, count)?;
        Ok(Self(()))
    }

    /// Registers the file of a descriptor at an index.
    ///
    /// # Errors
    /// The kernel's: EINVAL for an index that is not in the table, EBADF for a descriptor that is not open or is a ring's.
    pub fn set(&self, ring: &Ring, index: u32, fd: Fd) -> io::Result<()> {
        table::update(ring, Register::FilesUpdate, index, &fd.raw())
    }

    /// Clears an index. Operations in flight that name it continue.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(&self, ring: &Ring, index: u32) -> io::Result<()> {
        self.set(ring, index, Fd::NONE)
    }
}
