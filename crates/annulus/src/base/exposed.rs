//! Exposed descriptors: those that handles have given to other code, as `AsFd` does.
//!
//! An exposed descriptor must stay open while it is borrowed, and so as long as its handle. If the
//! runtime ends first, it keeps exposed descriptors open until its last handle is gone.
#![allow(unsafe_code)]

use annulus_kernel::{Fd, Linux};
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The exposed descriptors that are open.
#[derive(Default)]
pub(crate) struct Exposed {
    lent: BTreeSet<RawFd>,
    /// Whether the runtime is ending, so that descriptors are kept instead of closed.
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

    /// Removes a descriptor that is about to be closed or given away. Returns true if it was
    /// exposed.
    pub(crate) fn remove(&mut self, fd: Fd) -> bool {
        self.lent.remove(&fd.raw())
    }

    /// Takes over a descriptor that the runtime no longer uses.
    ///
    /// # Safety
    /// `fd` must be a real descriptor that the caller would otherwise close, and no longer does. No
    /// copy of `fd` may be used afterwards.
    pub(crate) unsafe fn keep(&mut self, fd: Fd) {
        // SAFETY: the caller guarantees that the descriptor is open and has no other owner.
        self.kept.push(unsafe { OwnedFd::from_raw_fd(fd.raw()) });
    }
}

/// Borrows the descriptor of a handle. If the handle has none that other code may use (after the
/// runtime's end, or in a simulation), returns a number on which every call fails with `EBADF`.
pub(crate) fn borrowed<'a>(fd: Option<Fd>) -> BorrowedFd<'a> {
    // SAFETY: the number is not -1, and no descriptor ever has it, since the kernel's limit on
    // descriptors (`fs.nr_open`) is at most 2^31 - 64. So no other code can own it.
    fd.map_or_else(|| unsafe { BorrowedFd::borrow_raw(RawFd::MAX) }, Linux::borrow)
}
