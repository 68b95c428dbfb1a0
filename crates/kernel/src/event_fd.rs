//! An eventfd, which other threads use to wake a loop or a polling thread.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An eventfd, readable from when it is signalled until it is cleared.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Creates an eventfd that is not signalled.
    ///
    /// # Errors
    /// Fails if the process is out of descriptors or memory.
    pub fn new() -> Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Makes the eventfd readable, from any thread.
    pub fn signal(&self) {
        // The write fails only if the counter is full, and then the eventfd is already readable.
        _ = rustix::io::write(self, &1u64.to_ne_bytes());
    }

    /// Makes the eventfd unreadable.
    pub fn clear(&self) {
        // The read fails if the eventfd is not signalled, which is harmless.
        _ = rustix::io::read(self, &mut [0; 8]);
    }
}

impl From<OwnedFd> for EventFd {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
