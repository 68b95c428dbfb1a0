//! File calls as plain data. A call can be an entry of a ring, or a system call on a worker thread
//! or on the loop: the layers above decide.

mod call;
mod held_path;
pub mod mount;
pub mod pages;
mod stat;

use rustix::fs::OFlags;

pub use call::{CallProperties, Cursor, FileCall, KeepsFileOpen, PIPE_BUF, PathAt};
pub use held_path::HeldPath;
pub use stat::{FileStat, StatTime, identity};

/// The offset that selects the file's cursor. It is also the offset for files without a cursor,
/// such as pipes.
pub const CURSOR_OFFSET: u64 = u64::MAX;

/// `struct open_how`: how to open a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// `O_*`.
    pub flags: u64,
    /// Permissions of a file that is created.
    pub mode: u64,
    /// `RESOLVE_*`.
    pub resolve: u64,
}

impl OpenHow {
    /// `RESOLVE_BENEATH`: no part of the path may lead out of the directory that it starts from.
    pub const BENEATH: u64 = 0x08;
    /// `RESOLVE_CACHED`: fail with EAGAIN unless the path is in memory (5.12).
    pub const CACHED: u64 = 0x20;

    /// Returns true if the open fails instead of waiting when the path is not in memory.
    pub fn is_cached_only(&self) -> bool {
        self.resolve & Self::CACHED != 0
    }

    /// Returns true if the open may wait for the other end of a named pipe, or for the carrier of a
    /// terminal. Opens with `O_NONBLOCK`, with `O_PATH`, or with both `O_CREAT` and `O_RDWR` do
    /// not.
    pub fn may_wait(&self) -> bool {
        let flags = OFlags::from_bits_retain(self.flags as u32);
        !flags.contains(OFlags::CREATE | OFlags::RDWR)
            && !flags.intersects(OFlags::NONBLOCK | OFlags::PATH)
    }

    /// Returns the same open, with `O_NONBLOCK` if it [may wait](Self::may_wait). The open file
    /// keeps the flag until [`FileCall::SetFlags`] clears it.
    pub fn without_waiting(&self) -> Self {
        let flag = if self.may_wait() { OFlags::NONBLOCK } else { OFlags::empty() };
        Self { flags: self.flags | u64::from(flag.bits()), ..*self }
    }
}

const _: () = assert!(size_of::<OpenHow>() == 24);
