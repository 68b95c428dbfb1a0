//! The result of `statx(2)`, and the identity of a file.

use rustix::io::Result;
use std::path::Path;

/// `struct statx_timestamp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
    reserved: i32,
}

impl StatTime {
    /// A time since 1970.
    pub fn new(seconds: i64, nanoseconds: u32) -> Self {
        Self { seconds, nanoseconds, reserved: 0 }
    }
}

/// `struct statx`, up to the fields in use.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct FileStat {
    pub mask: u32,
    pub block_size: u32,
    pub attributes: u64,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Type and permissions.
    pub mode: u16,
    spare: u16,
    pub inode: u64,
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    pub attributes_mask: u64,
    pub accessed: StatTime,
    pub born: StatTime,
    pub changed: StatTime,
    pub modified: StatTime,
    pub rdev_major: u32,
    pub rdev_minor: u32,
    pub dev_major: u32,
    pub dev_minor: u32,
    pub mount: u64,
    /// Alignment of memory for direct I/O, if known (6.1).
    pub direct_memory_align: u32,
    /// Alignment of offsets and lengths for direct I/O.
    pub direct_offset_align: u32,
    rest: [u64; 12],
}

impl FileStat {
    /// `STATX_BASIC_STATS`, `STATX_BTIME` and `STATX_DIOALIGN`.
    pub const WANTED: u32 = 0x7ff | 0x800 | 0x2000;
}

/// The device and the inode of a path of Linux, of a symbolic link its own.
///
/// # Errors
/// `NOENT`, `ACCES`, …
pub fn identity(path: &Path) -> Result<(u64, u64)> {
    rustix::fs::lstat(path).map(|stat| (stat.st_dev, stat.st_ino))
}

const _: () = assert!(size_of::<FileStat>() == 256);
const _: () = assert!(std::mem::offset_of!(FileStat, direct_memory_align) == 0x98);
