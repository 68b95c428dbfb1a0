//! Anonymous memory, for buffers and for memory shared with a kernel.
#![allow(unsafe_code)]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::fmt;
use std::io;
use std::ptr::NonNull;

/// Anonymous memory of this process: whole zeroed pages, which take no memory until they are used.
/// Unmapped on drop.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping gives out only its address, and any thread may unmap it. Access through the
// address is unsafe.
unsafe impl Send for Mapping {}
// SAFETY: the methods that take `&self` only read the fields and call `madvise`, which any thread
// may do.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes.
    ///
    /// # Errors
    /// The system's error, usually `ENOMEM`.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        // Miri maps memory, but supports neither this flag nor `madvise`, which only save memory.
        let unreserved = if cfg!(miri) { MapFlags::empty() } else { MapFlags::NORESERVE };
        let flags = MapFlags::PRIVATE | unreserved;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses overlaps no other.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Keeps this memory out of forked children: the kernel uses the parent's pages, and a
    /// copy-on-write after a fork would give the parent other pages.
    ///
    /// # Errors
    /// The errors of `madvise(2)`.
    pub fn keep_from_children(&self) -> io::Result<()> {
        self.advise(Advice::LinuxDontFork)
    }

    /// Makes this memory read as zero in forked children.
    ///
    /// # Errors
    /// The errors of `madvise(2)`.
    pub fn wipe_in_children(&self) -> io::Result<()> {
        self.advise(Advice::LinuxWipeOnFork)
    }

    /// Uses small pages, so that only the part in use takes memory.
    ///
    /// # Errors
    /// `EINVAL` if the kernel was built without huge pages.
    pub fn forgo_huge_pages(&self) -> io::Result<()> {
        self.advise(Advice::LinuxNoHugepage)
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the requested length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the mapping has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        if cfg!(miri) {
            return Ok(());
        }
        // SAFETY: the range is the whole mapping, and none of the advice passed to this function
        // changes what this process reads there.
        unsafe { madvise(self.as_ptr().cast(), self.len, advice)? };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the whole mapping, and this is its only owner. Code that uses the
        // address must keep the `Mapping` alive.
        _ = unsafe { munmap(self.as_ptr().cast(), self.len) };
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.len)
    }
}
