//! Descriptors that handles have lent to other code, as `AsFd` does.
//!
//! A descriptor that is lent must stay open while it is borrowed, and so as long as its handle. The runtime may end before that, and
//! closes what its handles own: those that were lent are then kept, until the last handle of the runtime is gone.
#![allow(unsafe_code)]

use annulus_kernel::{Fd, Linux};
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The descriptors that were lent and are open.
#[derive(Default)]
pub(crate) struct Exposed {
    lent: BTreeSet<RawFd>,
    /// The runtime ends.
    pub(crate) keep: bool,
    pub(crate) kept: Vec<OwnedFd>,
}

impl Exposed {
    pub(crate) fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }

    pub(crate) fn add(&mut self, fd: Fd) {
        self.lent.insert(fd.raw());
    }

    pub(crate) fn contains(&self, fd: Fd) -> bool {
        self.lent.contains(&fd.raw())
    }

    /// It is about to be closed or given away; true if it was lent.
    pub(crate) fn remove(&mut self, fd: Fd) -> bool {
        self.lent.remove(&fd.raw())
    }

    /// Takes a descriptor over, which the runtime no longer uses.
    ///
    /// # Safety
    /// It must be a real descriptor that the caller was to close, and does not. No copy of `fd` may be used afterwards.
    pub(crate) unsafe fn keep(&mut self, fd: Fd) {
        // SAFETY: this function demands that the descriptor is open and has no other owner.
        self.kept.push(unsafe { OwnedFd::from_raw_fd(fd.raw()) });
    }
}

/// A descriptor of a handle, or if it has none that other code may use (after the runtime's end, in a simulation), a number on which
/// every call fails with `EBADF`.
pub(crate) fn borrowed<'a>(fd: Option<Fd>) -> BorrowedFd<'a> {
    // SAFETY: the number is not -1. No descriptor has it, now or later: the kernel's limit of them (`fs.nr_open`) is at most
    // 2^31 - 64. So it is never one that other code owns.
    fd.map_or_else(|| unsafe { BorrowedFd::borrow_raw(RawFd::MAX) }, Linux::borrow)
}
