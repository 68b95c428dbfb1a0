//! A connection that belongs to no runtime.
#![allow(unsafe_code)]

use super::Permit;
use annulus_kernel::Fd;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// A connection that belongs to no runtime: its descriptor, and bytes that were received and not yet taken. `Send`.
#[derive(Debug)]
pub struct Parts {
    /// The connection.
    pub socket: OwnedFd,
    /// Bytes received already; `recv` returns them first.
    pub received: Vec<u8>,
    /// Its part of a connection limit, while no runtime has it.
    permit: Option<Permit>,
}

/// Owns a real descriptor that a runtime gives up.
pub(super) fn owned(fd: Fd) -> OwnedFd {
    // SAFETY: the caller no longer owns the descriptor, and no operation on it is in flight.
    unsafe { OwnedFd::from_raw_fd(fd.raw()) }
}

/// Owns a real descriptor that the kernel has made just now.
pub(super) fn new_descriptor(number: RawFd) -> OwnedFd {
    // SAFETY: the kernel made it for the caller, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Gives a real descriptor to a runtime.
pub(super) fn given(socket: OwnedFd) -> Fd {
    // SAFETY: `into_raw_fd` gives up the only owner of an open descriptor.
    unsafe { Fd::from_raw(socket.into_raw_fd()) }
}

impl Parts {
    /// A connection from elsewhere, with bytes that were received there.
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
