//! Calls on files as plain data: what the ring takes as an entry, a worker thread or the loop itself as a system call.
//!
//! One value, three ways to do it. Which way is policy, and lives above.

mod call;
mod now;
mod stat;

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

const _: () = assert!(size_of::<OpenHow>() == 24);
