//! The file calls.

use super::{FileStat, OpenHow};
use crate::pipe::SigPipe;
use crate::vectors::IoVec;
use std::ffi::c_char;
use std::os::fd::RawFd;

/// A path: a C string, and the directory from which a relative path starts.
#[derive(Clone, Copy, Debug)]
pub struct PathAt {
    /// A directory's descriptor, or `AT_FDCWD`.
    pub dir: RawFd,
    /// The path, terminated by zero.
    pub path: *const c_char,
}

/// One call on a file or a path, as plain data.
///
/// The result is a number of bytes, a descriptor, or zero.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum FileCall {
    /// `openat2(2)`. As a system call it does not wait for the other end of a named pipe; as an entry it may, if the path is not
    /// cached: see [`OpenHow::nonblocking`].
    Open { at: PathAt, how: *const OpenHow },
    /// `pread(2)`; with `nowait` only from the page cache (`RWF_NOWAIT`). Offset [`CURSOR`](super::CURSOR) is the file's cursor.
    Read { fd: RawFd, buffer: *mut u8, len: u32, offset: u64, nowait: bool },
    /// `pwrite(2)`. Offset [`CURSOR`](super::CURSOR) is the file's cursor.
    Write { fd: RawFd, buffer: *const u8, len: u32, offset: u64 },
    /// `preadv(2)`, as `Read`.
    ReadVector { fd: RawFd, vectors: *const IoVec, count: u32, offset: u64, nowait: bool },
    /// `pwritev(2)`, as `Write`.
    WriteVector { fd: RawFd, vectors: *const IoVec, count: u32, offset: u64 },
    /// `fsync(2)`, or `fdatasync(2)`.
    Sync { fd: RawFd, data_only: bool },
    /// `statx(2)`, with `AT_*` flags.
    Stat { at: PathAt, flags: u32, stat: *mut FileStat },
    /// `ftruncate(2)`.
    SetLen { fd: RawFd, len: u64 },
    /// `fallocate(2)`, with `FALLOC_FL_*`.
    Allocate { fd: RawFd, mode: u32, offset: u64, len: u64 },
    /// `posix_fadvise(2)`, with `POSIX_FADV_*`.
    Advise { fd: RawFd, offset: u64, len: u32, advice: u32 },
    /// `unlinkat(2)`, of a directory if asked for.
    Remove { at: PathAt, directory: bool },
    /// `renameat2(2)`, with `RENAME_*` flags.
    Rename { from: PathAt, to: PathAt, flags: u32 },
    /// `mkdirat(2)`.
    MakeDir { at: PathAt, mode: u32 },
    /// `symlinkat(2)`: a link at `at` to `target`.
    Symlink { target: *const c_char, at: PathAt },
    /// `linkat(2)`, with `AT_*` flags.
    Link { from: PathAt, to: PathAt, flags: u32 },
    /// `readlinkat(2)`.
    ReadLink { at: PathAt, buffer: *mut u8, len: u32 },
    /// `getdents64(2)`.
    ReadDir { fd: RawFd, buffer: *mut u8, len: u32 },
    /// `fchmodat(2)`.
    SetMode { at: PathAt, mode: u32 },
    /// `fchmod(2)`.
    SetModeOf { fd: RawFd, mode: u32 },
    /// `fcntl(2)` with `F_SETFL`: the status flags.
    SetFlags { fd: RawFd, flags: u32 },
    /// `copy_file_range(2)`. Offset [`CURSOR`](super::CURSOR) is the file's cursor.
    Copy { from: RawFd, from_offset: u64, to: RawFd, to_offset: u64, len: u32 },
    /// `sendfile(2)` to a socket that was made ready for it by [`prepare`](super::pages::prepare): then it does not block if the socket
    /// has no space, and raises no SIGPIPE if the peer has closed.
    Send { from: RawFd, offset: u64, to: RawFd, len: u32, signal: SigPipe },
    /// `lseek(2)`, from an origin `SEEK_*`. The new position is written to `position`.
    Seek { fd: RawFd, offset: i64, origin: u32, position: *mut u64 },
    /// `flock(2)`, with `LOCK_*`. It blocks without `LOCK_NB`.
    Lock { fd: RawFd, operation: u32 },
}
