//! A connection between two runtimes.
#![allow(unsafe_code)]

use super::Permit;
use annulus_kernel::Fd;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

/// A connection that belongs to no runtime: its descriptor, and the bytes it had received that nobody took. `Send`.
#[derive(Debug)]
pub struct Parts {
    /// The connection.
    pub socket: OwnedFd,
    /// Bytes received already, which come first.
    pub received: Vec<u8>,
    /// What it counts against, for as long as it stays in its parts.
    permit: Option<Permit>,
}

/// Owns a real descriptor that a runtime or its kernel has handed over.
pub(super) fn owned(fd: Fd) -> OwnedFd {
    // SAFETY: the caller gives the descriptor up, and nothing of it is in flight.
    unsafe { OwnedFd::from_raw_fd(fd.raw()) }
}

/// Hands a real descriptor over to a runtime.
pub(super) fn given(socket: OwnedFd) -> Fd {
    // SAFETY: the owner gives the descriptor up.
    unsafe { Fd::from_raw(socket.into_raw_fd()) }
}

impl Parts {
    /// A connection that was made elsewhere, with bytes that were received there.
    pub fn new(socket: OwnedFd, received: Vec<u8>) -> Self {
        Self { socket, received, permit: None }
    }

    pub(super) fn of_fd(fd: Fd, received: Vec<u8>, permit: Option<Permit>) -> Self {
        Self { socket: owned(fd), received, permit }
    }

    pub(super) fn take(self) -> (Fd, Vec<u8>, Option<Permit>) {
        (given(self.socket), self.received, self.permit)
    }
}
