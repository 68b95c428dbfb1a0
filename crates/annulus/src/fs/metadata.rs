//! Metadata of files.
#![allow(unsafe_code)]

use super::call::CallArgs;
use annulus_kernel::file::{FileCall, FileStat, PathAt, StatTime};
use rustix::fs::FileType;
use std::borrow::Cow;
use std::ffi::CStr;
use std::fs::Permissions;
use std::os::fd::RawFd;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `STATX_BTIME`: the creation time is known.
const STATX_BTIME: u32 = 0x800;

/// The metadata of a file, a directory or anything else that a path can refer to.
///
/// ```
/// use annulus::fs;
/// use std::time::SystemTime;
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-metadata-{}", std::process::id()));
/// # fs::write(&path, "12345").await?;
/// let known = fs::metadata(&path).await?;
/// assert!(known.is_file() && known.len() == 5);
/// let age = SystemTime::now().duration_since(known.modified()).unwrap_or_default();
/// println!("changed {} s ago, mode {:o}", age.as_secs(), known.mode() & 0o777);
/// # fs::remove_file(&path).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Metadata(FileStat);

impl Metadata {
    pub(super) fn new(stat: FileStat) -> Self {
        Self(stat)
    }

    /// Returns the length of the file in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a size, as std has it")]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Returns true for an ordinary file.
    pub fn is_file(&self) -> bool {
        self.kind() == FileType::RegularFile
    }

    pub(super) fn is_block_device(&self) -> bool {
        self.kind() == FileType::BlockDevice
    }

    /// Returns true for a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileType::Directory
    }

    /// Returns true for a symbolic link that was not followed.
    pub fn is_symlink(&self) -> bool {
        self.kind() == FileType::Symlink
    }

    /// Returns the type and permissions, as in `st_mode`.
    pub fn mode(&self) -> u32 {
        u32::from(self.0.mode)
    }

    /// Returns the permissions alone.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.mode() & 0o7777)
    }

    /// Returns when the content was last changed.
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.modified)
    }

    /// Returns when the file was last changed in any way: its content, its attributes or its names.
    /// Programs cannot set this time.
    pub fn changed(&self) -> SystemTime {
        system_time(self.0.changed)
    }

    /// Returns when the file was last read, as far as the file system records this.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.accessed)
    }

    /// Returns when the file was created, or `None` if the file system does not record this.
    pub fn created(&self) -> Option<SystemTime> {
        (self.0.mask & STATX_BTIME != 0).then(|| system_time(self.0.born))
    }

    /// Returns the inode number, which identifies the file on its device.
    pub fn ino(&self) -> u64 {
        self.0.inode
    }

    /// Returns the number of the device, with the major number in the upper 32 bits.
    pub fn dev(&self) -> u64 {
        u64::from(self.0.dev_major) << 32 | u64::from(self.0.dev_minor)
    }

    /// Returns the number of hard links.
    pub fn nlink(&self) -> u32 {
        self.0.links
    }

    /// Returns the user ID of the owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Returns the group ID of the owner.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Returns the number of 512-byte blocks that the file takes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Returns the number of bytes that the file system prefers to read or write at a time.
    pub fn block_size(&self) -> u32 {
        self.0.block_size
    }

    /// Returns the alignment that direct I/O requires, in bytes: first for memory, then for offsets
    /// and lengths. Returns `None` if the kernel does not report it (before 6.1) or the file does
    /// not support direct I/O.
    pub(super) fn direct_alignment(&self) -> Option<(u32, u32)> {
        let known = self.0.direct_memory_align != 0 && self.0.direct_offset_align != 0;
        known.then_some((self.0.direct_memory_align, self.0.direct_offset_align))
    }

    /// Returns true if both are the metadata of the same unchanged file.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let key = |it: &Self| (it.dev(), it.ino(), it.len(), it.modified(), it.changed());
        key(self) == key(other)
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode())
    }
}

fn system_time(time: StatTime) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds));
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    if time.seconds >= 0 {
        UNIX_EPOCH + seconds + nanoseconds
    } else {
        UNIX_EPOCH - seconds + nanoseconds
    }
}

/// A call that reads metadata. An empty path with `AT_EMPTY_PATH` means the descriptor itself.
pub(super) struct Stat<'a> {
    pub(super) path: Cow<'a, CStr>,
    pub(super) flags: u32,
    pub(super) stat: Box<FileStat>,
}

// SAFETY: the path is borrowed or on the heap, and the call writes only to the box's memory.
// Neither moves with `self`.
unsafe impl CallArgs for Stat<'_> {
    fn call(&mut self, dir: RawFd) -> FileCall {
        let at = PathAt { dir, path: self.path.as_ptr() };
        FileCall::Stat { at, flags: self.flags, stat: &mut *self.stat }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_kept() {
        let before = system_time(StatTime::new(-2, 500_000_000));
        assert_eq!(UNIX_EPOCH.duration_since(before).unwrap(), Duration::from_millis(1500));
        let after = system_time(StatTime::new(2, 500_000_000));
        assert_eq!(after.duration_since(UNIX_EPOCH).unwrap(), Duration::from_millis(2500));
    }
}
