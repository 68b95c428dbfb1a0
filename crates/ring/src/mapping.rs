//! Memory that is shared with a kernel, owned.
#![allow(unsafe_code)]

use crate::kernel::Kernel;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::rc::Rc;

enum Origin {
    /// Mapped through the seam: a ring's own memory.
    Kernel(Rc<dyn Kernel>),
    /// Anonymous memory of this process.
    Anonymous,
}

/// A mapped range, unmapped on drop. Zeroed at first.
pub struct Mapping {
    address: NonNull<u8>,
    len: usize,
    origin: Origin,
}

impl Mapping {
    /// Maps `len` bytes at `offset` of a ring's memory.
    ///
    /// # Errors
    /// Whatever the kernel says: `ENOMEM`, mostly.
    pub(crate) fn of_ring(
        kernel: &Rc<dyn Kernel>,
        ring: RawFd,
        offset: u64,
        len: usize,
    ) -> io::Result<Self> {
        let address =
            NonNull::new(kernel.map(ring, offset, len)?).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, len, origin: Origin::Kernel(kernel.clone()) })
    }

    /// Maps `len` bytes of zeroed memory, rounded up to whole pages by the system and touched only when used.
    ///
    /// # Errors
    /// Whatever the system says: `ENOMEM`, mostly.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing.
        let address = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)?
        };
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, len, origin: Origin::Anonymous })
    }

    /// Leaves this memory out of forked children: the kernel holds the parent's pages, and a copy-on-write after a
    /// fork would part the two.
    ///
    /// # Errors
    /// Whatever `madvise(2)` says.
    pub fn keep_from_children(&self) -> io::Result<()> {
        self.advise(0, self.len, Advice::LinuxDontFork)
    }

    /// Makes this memory read as zero in forked children.
    ///
    /// # Errors
    /// Whatever `madvise(2)` says.
    pub fn wipe_in_children(&self) -> io::Result<()> {
        self.advise(0, self.len, Advice::LinuxWipeOnFork)
    }

    /// Gives `len` bytes at `offset` back to the system; they read as zero when next touched. Whole pages only.
    ///
    /// # Errors
    /// Whatever `madvise(2)` says.
    ///
    /// # Safety
    /// Nobody may need the bytes' content any more, and no kernel may write there during the call.
    pub unsafe fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        self.advise(offset, len, Advice::LinuxDontNeed)
    }

    /// The first byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.address.as_ptr()
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

    fn advise(&self, offset: usize, len: usize, advice: Advice) -> io::Result<()> {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "range outside the mapping"
        );
        // SAFETY: the range lies inside a mapping that we own, and the callers' contracts cover what the advice does
        // to its content.
        unsafe { madvise(self.as_ptr().add(offset).cast(), len, advice)? };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, and the owner's end says that nothing refers to it.
        unsafe {
            match &self.origin {
                Origin::Kernel(kernel) => kernel.unmap(self.as_ptr(), self.len),
                Origin::Anonymous => _ = munmap(self.as_ptr().cast(), self.len),
            }
        }
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping({} bytes)", self.len)
    }
}
