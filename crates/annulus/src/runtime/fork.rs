//! Telling a forked child from the process that built the runtime, and, by the same load, whether a host is to be told of the next
//! use of the runtime.
#![allow(unsafe_code)]

use annulus_kernel::{Mapping, named};
use std::io;

/// What a forked child reads.
const ELSEWHERE: u8 = 0;
const HOME: u8 = 1;
/// At home, and the next use is to be told.
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
        guard.write(HOME);
        Ok(guard)
    }

    /// True in the process that made the guard.
    #[inline]
    pub(crate) fn in_owner_process(&self) -> bool {
        self.read() != ELSEWHERE
    }

    /// At home, and the next use need not be told.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.read() == HOME
    }

    /// Whether the next use is to be told. In a forked child nothing changes.
    pub(crate) fn watch(&self, on: bool) {
        if self.in_owner_process() {
            self.write(if on { WATCHED } else { HOME });
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
