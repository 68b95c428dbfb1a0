//! Calls on files as plain data: what the ring takes as an entry, a worker thread or the loop itself as a system call.
//!
//! One value, three ways to do it. Which way is policy, and lives above.

mod call;
mod now;
mod stat;

use rustix::fs::OFlags;

pub use call::{FileCall, PathAt};
pub use stat::{FileStat, StatTime};

/// `struct open_how`: how to open a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// `O_*`.
    pub flags: u64,
    /// Permissions of a file that is made.
    pub mode: u64,
    /// `RESOLVE_*`.
    pub resolve: u64,
}

impl OpenHow {
    /// Whether the open may wait for the other end of a named pipe, or for a line's carrier. A pipe that is opened both ways
    /// has its other end, and what is made with the open is no line.
    pub fn may_wait(&self) -> bool {
        let flags = OFlags::from_bits_retain(self.flags as u32);
        !flags.contains(OFlags::CREATE | OFlags::RDWR)
            && !flags.intersects(OFlags::NONBLOCK | OFlags::PATH)
    }

    /// The same with `O_NONBLOCK`, which what was opened keeps until [`FileCall::SetFlags`] clears it.
    pub fn nonblocking(&self) -> Self {
        Self { flags: self.flags | u64::from(OFlags::NONBLOCK.bits()), ..*self }
    }
}

const _: () = assert!(size_of::<OpenHow>() == 24);
