//! Memory that a kernel writes or reads beside us, owned.
#![allow(unsafe_code)]

use crate::kernel::Kernel;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::rc::Rc;

/// A ring's own memory, mapped through the seam and unmapped on drop.
pub(crate) struct RingMemory {
    area: Area,
    kernel: Rc<dyn Kernel>,
}

impl RingMemory {
    /// Maps `len` bytes at `offset` of a ring's memory.
    pub(crate) fn map(
        kernel: &Rc<dyn Kernel>,
        ring: RawFd,
        offset: u64,
        len: usize,
    ) -> io::Result<Self> {
        let start =
            NonNull::new(kernel.map(ring, offset, len)?).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { area: Area { start, len }, kernel: kernel.clone() })
    }

    pub(crate) fn area(&self) -> Area {
        self.area
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping, and the owner's end says that nothing refers to it.
        unsafe { self.kernel.unmap(self.area.start.as_ptr(), self.area.len) };
    }
}

/// Where mapped memory lies. A plain pair: it does not keep the memory alive.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    pub(crate) start: NonNull<u8>,
    pub(crate) len: usize,
}

impl Area {
    /// The address of `size` bytes at `offset`.
    ///
    /// Panics where they do not lie inside: only a kernel that contradicts itself could ask for that.
    pub(crate) fn at(self, offset: u32, size: usize) -> *mut u8 {
        let end = (offset as usize).checked_add(size);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "the kernel named memory outside its mapping"
        );
        // SAFETY: the range was checked just now.
        unsafe { self.start.as_ptr().add(offset as usize) }
    }
}

/// Anonymous memory of this process, unmapped on drop. It starts zeroed, whole pages, and takes no memory until touched.
pub struct Mapping {
    area: Area,
}

// SAFETY: a mapping is an address range that any thread may reach; what lies in it is its users' affair.
unsafe impl Send for Mapping {}
// SAFETY: as above: a shared mapping only tells its address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes.
    ///
    /// # Errors
    /// Whatever the system says: `ENOMEM`, mostly.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { area: Area { start, len } })
    }

    /// Leaves this memory out of forked children: the kernel holds the parent's pages, and a copy-on-write after a
    /// fork would part the two.
    ///
    /// # Errors
    /// Whatever `madvise(2)` says.
    pub fn keep_from_children(&self) -> io::Result<()> {
        self.advise(Advice::LinuxDontFork)
    }

    /// Makes this memory read as zero in forked children.
    ///
    /// # Errors
    /// Whatever `madvise(2)` says.
    pub fn wipe_in_children(&self) -> io::Result<()> {
        self.advise(Advice::LinuxWipeOnFork)
    }

    /// Has the system back this memory with small pages: only what is touched takes any.
    ///
    /// # Errors
    /// `EINVAL` where the kernel was built without huge pages.
    pub fn forgo_huge_pages(&self) -> io::Result<()> {
        self.advise(Advice::LinuxNoHugepage)
    }

    /// The first byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.area.start.as_ptr()
    }

    /// The length in bytes, as asked for.
    #[inline]
    pub fn len(&self) -> usize {
        self.area.len
    }

    /// True where the mapping has no bytes.
    pub fn is_empty(&self) -> bool {
        self.area.len == 0
    }

    #[cfg(test)]
    pub(crate) fn area(&self) -> Area {
        self.area
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: the range is a mapping that we own, and neither advice changes what this process sees.
        unsafe { madvise(self.as_ptr().cast(), self.area.len, advice)? };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping, and the owner's end says that nothing refers to it.
        _ = unsafe { munmap(self.as_ptr().cast(), self.area.len) };
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.area.len)
    }
}
