//! An eventfd, by which other threads end the wait of a loop, or of a thread that polls.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An eventfd, which is readable once it was signalled, until it is cleared.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// # Errors
    /// Out of descriptors or memory.
    pub fn new() -> Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Makes it readable, from any thread.
    pub fn signal(&self) {
        // It fails only if the counter is full, and then it is readable.
        _ = rustix::io::write(self, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub fn clear(&self) {
        // It fails only if it was not signalled, which is harmless.
        _ = rustix::io::read(self, &mut [0; 8]);
    }
}

/// Another descriptor of an eventfd.
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
