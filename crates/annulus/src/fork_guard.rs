//! Detects a forked child, in which a runtime must not be used.
#![allow(unsafe_code)]

use annulus_kernel::{Mapping, named};
use std::io;

/// A forked child: the page reads as zero because fork has wiped it.
const FORKED_CHILD: u8 = 0;
const OWNER_PROCESS: u8 = 1;
/// The owner process, in which the next use has to notify the host.
const WATCHED_OWNER: u8 = 2;

/// Detects a forked child, and whether the next use of the runtime has to notify a host. Both are
/// read from one page, which the kernel zeroes in children, so a check is one load instead of a
/// system call such as `getpid`. Signal handlers may check too.
pub(crate) struct ForkGuard {
    page: Mapping,
}

/// Returns the error of a runtime that is used in a forked child.
pub(crate) fn forked() -> io::Error {
    io::Error::other("this runtime belongs to the parent process; build another one in the child")
}

impl ForkGuard {
    pub(crate) fn new() -> io::Result<Self> {
        let page = Mapping::anonymous(4096).map_err(named("mmap"))?;
        page.wipe_in_children().map_err(named("madvise"))?;
        let guard = Self { page };
        guard.write(OWNER_PROCESS);
        Ok(guard)
    }

    /// Returns true in the process that created the guard.
    #[inline]
    pub(crate) fn in_owner_process(&self) -> bool {
        self.read() != FORKED_CHILD
    }

    /// Returns true in the owner process, unless the next use has to notify the host.
    #[inline]
    pub(crate) fn is_unwatched_owner(&self) -> bool {
        self.read() == OWNER_PROCESS
    }

    /// Sets whether the next use has to notify the host. Does nothing in a forked child.
    pub(crate) fn watch(&self, on: bool) {
        if self.in_owner_process() {
            self.write(if on { WATCHED_OWNER } else { OWNER_PROCESS });
        }
    }

    fn write(&self, state: u8) {
        // SAFETY: the page is mapped, writable and private while the guard lives. No other thread
        // uses it meanwhile: a guard stays on one thread, or is shared only after the last write.
        unsafe { self.page.as_ptr().write_volatile(state) };
    }

    #[inline]
    fn read(&self) -> u8 {
        // SAFETY: the page is mapped while the guard lives, in children too. The read is volatile
        // because a fork changes the page without the compiler's knowledge.
        unsafe { self.page.as_ptr().read_volatile() }
    }
}
