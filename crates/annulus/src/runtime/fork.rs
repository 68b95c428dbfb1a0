//! Telling a forked child from the process that built the runtime.
#![allow(unsafe_code)]

use annulus_kernel::{Mapping, named};
use std::io;

/// A page that children see as zeroes: a check is one load, not a system call as `getpid`.
pub(crate) struct ForkGuard {
    page: Mapping,
}

impl ForkGuard {
    pub(crate) fn new() -> io::Result<Self> {
        let page = Mapping::anonymous(4096).map_err(named("mmap"))?;
        page.wipe_in_children().map_err(named("madvise"))?;
        // SAFETY: the page was just mapped, writable and private; nothing else points to it.
        unsafe { page.as_ptr().write_volatile(1) };
        Ok(Self { page })
    }

    /// True in the process that made the guard.
    #[inline]
    pub(crate) fn at_home(&self) -> bool {
        // SAFETY: the page is mapped while the guard lives, in children too. Volatile, since a fork changes it without the
        // compiler's knowledge.
        unsafe { self.page.as_ptr().read_volatile() == 1 }
    }
}
