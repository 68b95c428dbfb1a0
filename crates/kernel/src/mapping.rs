//! Anonymous memory, owned: what a kernel writes or reads beside us, and where buffers lie.
#![allow(unsafe_code)]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::fmt;
use std::io;
use std::ptr::NonNull;

/// Anonymous memory of this process, unmapped on drop. It starts zeroed, whole pages, and takes no memory until touched.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
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
        Ok(Self { start, len })
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
        self.start.as_ptr()
    }

    /// The length in bytes, as asked for.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True where the mapping has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: the range is a mapping that we own, and neither advice changes what this process sees.
        unsafe { madvise(self.as_ptr().cast(), self.len, advice)? };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping, and the owner's end says that nothing refers to it.
        _ = unsafe { munmap(self.as_ptr().cast(), self.len) };
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.len)
    }
}
