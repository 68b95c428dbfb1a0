//! A connection between two runtimes.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// A connection that belongs to no runtime: its descriptor, and the bytes it had received that nobody took. `Send`.
#[derive(Debug)]
pub struct Parts {
    /// The connection.
    pub socket: OwnedFd,
    /// Bytes received already, which come first.
    pub received: Vec<u8>,
}

/// Owns a real descriptor that a runtime or its kernel has handed over.
pub(super) fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: whoever calls gives the descriptor up, and nothing of it is in flight.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

impl Parts {
    pub(super) fn new(fd: RawFd, received: Vec<u8>) -> Self {
        Self { socket: owned(fd), received }
    }

    pub(super) fn take(self) -> (RawFd, Vec<u8>) {
        (std::os::fd::IntoRawFd::into_raw_fd(self.socket), self.received)
    }
}
