//! The result of `statx(2)`, and the identity of a file.
#![allow(unsafe_code)]

use super::PathAt;
use crate::call::last_error;
use crate::newer::NewerCall;
use rustix::io::Result;
use std::mem::MaybeUninit;
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
    /// Creates a time since 1970.
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
    pub const WANTED_FIELDS: u32 = Self::BASIC_FIELDS | 0x800 | 0x2000;
    /// `STATX_BASIC_STATS`: the fields that older calls also return.
    const BASIC_FIELDS: u32 = 0x7ff;
}

/// Reads the metadata of a path, with `AT_*` flags: by `statx`, or by `fstatat` where `statx` is
/// refused.
///
/// # Safety
/// The path must be valid, and the directory open or `AT_FDCWD`.
pub(super) unsafe fn stat(at: PathAt, flags: u32, stat: &mut FileStat) -> Result<()> {
    static STATX: NewerCall = NewerCall::new();
    let stat = std::cell::Cell::from_mut(stat);
    let newer = || {
        let PathAt { dir, path } = at;
        // SAFETY: the caller guarantees that directory and path are valid, and the answer outlives
        // the call.
        let done = unsafe {
            libc::syscall(libc::SYS_statx, dir, path, flags, FileStat::WANTED_FIELDS, stat.as_ptr())
        };
        if done == 0 { Ok(()) } else { Err(last_error()) }
    };
    let older = || {
        // Flags such as `AT_STATX_DONT_SYNC` exist only for `statx`.
        let flags = flags as i32 & (libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH);
        let mut old = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the caller guarantees that directory and path are valid, and a `struct stat` of
        // zeroes is valid.
        let (done, old) =
            unsafe { (libc::fstatat(at.dir, at.path, old.as_mut_ptr(), flags), old.assume_init()) };
        if done != 0 {
            return Err(last_error());
        }
        stat.set(FileStat::from(&old));
        Ok(())
    };
    STATX.or_older(newer, older)
}

impl From<&libc::stat> for FileStat {
    #[allow(clippy::unnecessary_cast, reason = "the types of the fields differ by architecture")]
    fn from(old: &libc::stat) -> Self {
        let time = |seconds: i64, nanoseconds: i64| StatTime::new(seconds, nanoseconds as u32);
        Self {
            mask: Self::BASIC_FIELDS,
            block_size: old.st_blksize as u32,
            links: old.st_nlink as u32,
            uid: old.st_uid,
            gid: old.st_gid,
            mode: old.st_mode as u16,
            inode: old.st_ino,
            size: old.st_size as u64,
            blocks: old.st_blocks as u64,
            accessed: time(old.st_atime, old.st_atime_nsec),
            changed: time(old.st_ctime, old.st_ctime_nsec),
            modified: time(old.st_mtime, old.st_mtime_nsec),
            rdev_major: libc::major(old.st_rdev),
            rdev_minor: libc::minor(old.st_rdev),
            dev_major: libc::major(old.st_dev),
            dev_minor: libc::minor(old.st_dev),
            ..Self::default()
        }
    }
}

/// Returns the device and inode of a path on Linux. Does not follow a symbolic link.
///
/// # Errors
/// `NOENT`, `ACCES`, …
pub fn identity(path: &Path) -> Result<(u64, u64)> {
    rustix::fs::lstat(path).map(|stat| (stat.st_dev, stat.st_ino))
}

const _: () = assert!(size_of::<FileStat>() == 256);
const _: () = assert!(std::mem::offset_of!(FileStat, direct_memory_align) == 0x98);
