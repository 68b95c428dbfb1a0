//! Descriptors that handles have lent to other code, as `AsFd` does.
//!
//! A descriptor that is lent must stay open while it is borrowed, and so as long as its handle. The runtime may end before that, and
//! closes what its handles own: those that were lent are then kept, until the last handle of the runtime is gone.
#![allow(unsafe_code)]

use annulus_kernel::{Fd, Linux};
use rustix::net::connect_unspec;
use rustix::net::sockopt::socket_linger;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::OnceLock;
use std::time::Duration;

/// The descriptors that were lent and are open.
#[derive(Default)]
pub(super) struct Exposed {
    lent: BTreeSet<RawFd>,
    /// The runtime ends.
    pub(super) keep: bool,
    pub(super) kept: Vec<OwnedFd>,
}

impl Exposed {
    pub(super) fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }

    pub(super) fn add(&mut self, fd: Fd) {
        self.lent.insert(fd.raw());
    }

    /// It is about to be closed or given away; true if it was lent.
    pub(super) fn remove(&mut self, fd: Fd) -> bool {
        self.lent.remove(&fd.raw())
    }

    /// Takes a descriptor over, which the runtime no longer uses.
    pub(super) fn keep(&mut self, fd: Fd) {
        // SAFETY: the caller was to close it, and does not: this is its only owner.
        self.kept.push(unsafe { OwnedFd::from_raw_fd(fd.raw()) });
    }
}

/// Resets a connection whose close would do that, as a truncated stream's must (`SO_LINGER` of zero); true if it did. Unix sockets
/// are not reset.
pub(super) fn reset(fd: Fd) -> bool {
    let socket = Linux::borrow(fd);
    socket_linger(socket) == Ok(Some(Duration::ZERO)) && connect_unspec(socket).is_ok()
}

/// A descriptor of a handle, or if it has none that other code may use (after the runtime's end, in a simulation), one on which every
/// call fails with `EBADF`.
pub(crate) fn borrowed<'a>(fd: Option<Fd>) -> BorrowedFd<'a> {
    fd.map_or_else(none, Linux::borrow)
}

/// A descriptor that can only be closed and duplicated (`O_PATH`).
fn none() -> BorrowedFd<'static> {
    static NONE: OnceLock<File> = OnceLock::new();
    const O_PATH: i32 = 0o10_000_000;
    let open = || std::fs::OpenOptions::new().read(true).custom_flags(O_PATH).open("/");
    NONE.get_or_init(|| {
        open().expect("the root directory can be opened: is the process out of descriptors?")
    })
    .as_fd()
}
