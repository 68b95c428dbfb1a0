//! Distinguishes a forked child from the process that built the runtime, and, by the same load, whether the next use of the runtime has to
//! notify a host.
#![allow(unsafe_code)]

use annulus_kernel::{Mapping, named};
use std::io;

/// The state that a forked child reads: the page was wiped.
const CHILD: u8 = 0;
/// The owner process.
const OWNER: u8 = 1;
/// The owner process, and the next use has to notify the host.
const WATCHED: u8 = 2;

/// A page that children see as zeroes: a check is one load, not a system call as `getpid`.
pub(crate) struct ForkGuard {
    page: Mapping,
}

impl ForkGuard {
    pub(crate) fn new() -> io::Result<Self> {
        let page = Mapping::anonymous(4096).map_err(named("mmap"))?;
        page.wipe_in_children().map_err(named("madvise"))?;
        let guard = Self { page };
        guard.write(OWNER);
        Ok(guard)
    }

    /// True in the process that made the guard.
    #[inline]
    pub(crate) fn in_owner_process(&self) -> bool {
        self.read() != CHILD
    }

    /// True in the owner process, unless the next use has to notify the host.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.read() == OWNER
    }

    /// Sets whether the next use has to notify the host. In a forked child nothing changes.
    pub(crate) fn watch(&self, on: bool) {
        if self.in_owner_process() {
            self.write(if on { WATCHED } else { OWNER });
        }
    }

    fn write(&self, state: u8) {
        // SAFETY: the page is mapped, writable and private while the guard lives, and only this thread uses it.
        unsafe { self.page.as_ptr().write_volatile(state) };
    }

    #[inline]
    fn read(&self) -> u8 {
        // SAFETY: the page is mapped while the guard lives, in children too. Volatile, since a fork changes it without the
        // compiler's knowledge.
        unsafe { self.page.as_ptr().read_volatile() }
    }
}
