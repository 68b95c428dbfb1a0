//! The table of file calls: the arguments of each call, its other properties, and how it is made on
//! this thread. A new call needs a row here, and may have a ring entry in `annulus-ring`
//! (`opcode.rs`) and a simulation in `annulus-sim` (`memory/file_call.rs`); `CONTRIBUTING.md` has
//! the steps.
#![allow(unsafe_code)]

use super::{CURSOR_OFFSET, FileStat, OpenHow, pages};
use crate::call::last_error;
use crate::fd::borrow;
use crate::message::IoVec;
use crate::newer::may_be_refusal;
use crate::pipe::SigPipe;
use libc::syscall;
use rustix::event::PollFlags;
use rustix::fd::{BorrowedFd, IntoRawFd};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::ffi::{CStr, c_char};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{OwnedFd, RawFd};
use std::ptr::null_mut;
use std::{io, slice};

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
    /// `openat2(2)`. As a system call it does not wait for the other end of a named pipe; as an
    /// entry it may, if the path is not cached: see [`OpenHow::without_waiting`].
    Open { at: PathAt, how: *const OpenHow },
    /// `pread(2)`, with `nowait` only from the page cache (`RWF_NOWAIT`). Offset
    /// [`CURSOR_OFFSET`](super::CURSOR_OFFSET) is the file's cursor.
    Read { fd: RawFd, buffer: *mut u8, len: u32, offset: u64, nowait: bool },
    /// `pwrite(2)`. Offset [`CURSOR_OFFSET`](super::CURSOR_OFFSET) is the file's cursor.
    Write { fd: RawFd, buffer: *const u8, len: u32, offset: u64 },
    /// `pwritev2(2)` with `RWF_DSYNC`: returns once the device has the bytes, and everything that
    /// is needed to read them back. Where this flag is not supported, `pwrite(2)` and
    /// `fdatasync(2)`.
    WriteDurable { fd: RawFd, buffer: *const u8, len: u32, offset: u64 },
    /// `preadv(2)`, like `Read`.
    ReadVector { fd: RawFd, vectors: *const IoVec, count: u32, offset: u64, nowait: bool },
    /// `pwritev(2)`, like `Write`.
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
    /// `unlinkat(2)`, with `AT_REMOVEDIR` for a directory.
    Remove { at: PathAt, directory: bool },
    /// `renameat(2)`, or `renameat2(2)` with `RENAME_*` flags.
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
    /// `copy_file_range(2)`. Offset [`CURSOR_OFFSET`](super::CURSOR_OFFSET) is the file's cursor.
    Copy { from: RawFd, from_offset: u64, to: RawFd, to_offset: u64, len: u32 },
    /// `sendfile(2)` to a socket prepared by [`prepare`](super::pages::prepare). It does not block
    /// if the socket has no space, and raises no SIGPIPE if the peer has closed.
    Send { from: RawFd, offset: u64, to: RawFd, len: u32, signal: SigPipe },
    /// `lseek(2)`, from an origin `SEEK_*`. The new position is written to `position`.
    Seek { fd: RawFd, offset: i64, origin: u32, position: *mut u64 },
    /// `flock(2)`, with `LOCK_*`. It blocks without `LOCK_NB`.
    Lock { fd: RawFd, operation: u32 },
}

/// The properties of a call other than its arguments.
#[derive(Clone, Copy, Debug)]
pub struct CallProperties {
    /// The name of the system call.
    pub name: &'static str,
    /// The descriptor of the call, if its arguments refer to no memory and no other descriptor.
    pub only_descriptor: Option<RawFd>,
    /// The cursor that the call uses and may move; `None` if the call is made at an offset.
    pub cursor: Option<Cursor>,
    /// Whether the call returns a new descriptor.
    pub opens: bool,
    /// Whether the ring keeps the file open after it has completed the call.
    pub keeps_file_open: KeepsFileOpen,
}

/// A call at the cursor of a file. On a pipe or a terminal it may wait for another process forever.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    /// The file.
    pub fd: RawFd,
    /// The readiness that the call waits for.
    pub ready: PollFlags,
    /// The part of the call that does not block on a ready descriptor. For a vectored write this is
    /// the whole call, although only its first [`PIPE_BUF`] bytes do not block.
    pub part: FileCall,
}

/// Number of bytes that a pipe accepts without blocking once `poll` reports it writable.
pub const PIPE_BUF: u32 = 4096;

/// Whether a worker of the ring would make a call, and keep the file open for a moment after the
/// completion. A file that the program closes in that moment stays open for writing, or locked, a
/// little longer (Linux 6.18, `io_wq_free_work`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepsFileOpen {
    /// The ring makes the call if it supports the operation.
    No,
    /// A worker of the ring would make the call. So on Linux, worker threads of the driver make it
    /// instead of the ring.
    Yes,
    /// Like `Yes`, unless the file was opened with `O_DIRECT`: such writes usually need no worker
    /// of the ring.
    UnlessDirect(RawFd),
}

impl CallProperties {
    /// Properties of a call that refers to memory or to several descriptors, and waits for no other
    /// process.
    const fn new(name: &'static str, keeps_file_open: KeepsFileOpen) -> Self {
        Self { name, only_descriptor: None, cursor: None, opens: false, keeps_file_open }
    }

    /// Properties of a call that refers to a descriptor and nothing else.
    const fn on(name: &'static str, fd: RawFd, keeps_file_open: KeepsFileOpen) -> Self {
        Self { only_descriptor: Some(fd), ..Self::new(name, keeps_file_open) }
    }

    /// Properties of a call that transfers bytes at an offset, or at a cursor.
    const fn at(
        name: &'static str,
        keeps_file_open: KeepsFileOpen,
        offset: u64,
        cursor: Cursor,
    ) -> Self {
        let cursor = if offset == CURSOR_OFFSET { Some(cursor) } else { None };
        Self { cursor, ..Self::new(name, keeps_file_open) }
    }
}

impl FileCall {
    /// Returns the properties of the call other than its arguments.
    pub const fn properties(&self) -> CallProperties {
        use CallProperties as Row;
        use KeepsFileOpen::{No, UnlessDirect, Yes};
        let (input, output) = (PollFlags::IN, PollFlags::OUT);
        match *self {
            Self::Open { .. } => Row { opens: true, ..Row::new("openat2", No) },
            Self::Read { fd, buffer, len, offset, .. } => {
                let part = Self::Read { fd, buffer, len, offset, nowait: true };
                Row::at("pread64", No, offset, Cursor { fd, ready: input, part })
            }
            Self::Write { fd, buffer, len, offset } => {
                let len = if len < PIPE_BUF { len } else { PIPE_BUF };
                let part = Self::Write { fd, buffer, len, offset };
                Row::at("pwrite64", UnlessDirect(fd), offset, Cursor { fd, ready: output, part })
            }
            Self::ReadVector { fd, vectors, count, offset, .. } => {
                let part = Self::ReadVector { fd, vectors, count, offset, nowait: true };
                Row::at("preadv", No, offset, Cursor { fd, ready: input, part })
            }
            Self::WriteVector { fd, offset, .. } => {
                let part = *self;
                Row::at("pwritev", UnlessDirect(fd), offset, Cursor { fd, ready: output, part })
            }
            Self::WriteDurable { .. } => Row::new("pwritev2", Yes),
            Self::Sync { fd, data_only: false } => Row::on("fsync", fd, Yes),
            Self::Sync { fd, data_only: true } => Row::on("fdatasync", fd, Yes),
            Self::Stat { .. } => Row::new("statx", No),
            Self::SetLen { fd, .. } => Row::on("ftruncate", fd, Yes),
            Self::Allocate { fd, .. } => Row::on("fallocate", fd, Yes),
            Self::Advise { fd, .. } => Row::on("fadvise64", fd, Yes),
            Self::Remove { .. } => Row::new("unlinkat", No),
            Self::Rename { .. } => Row::new("renameat2", No),
            Self::MakeDir { .. } => Row::new("mkdirat", No),
            Self::Symlink { .. } => Row::new("symlinkat", No),
            Self::Link { .. } => Row::new("linkat", No),
            Self::ReadLink { .. } => Row::new("readlinkat", No),
            Self::ReadDir { .. } => Row::new("getdents64", No),
            Self::SetMode { .. } => Row::new("fchmodat", No),
            Self::SetModeOf { fd, .. } => Row::on("fchmod", fd, No),
            Self::SetFlags { fd, .. } => Row::on("fcntl", fd, No),
            Self::Copy { .. } => Row::new("copy_file_range", No),
            Self::Send { .. } => Row::new("sendfile", No),
            Self::Seek { .. } => Row::new("lseek", No),
            Self::Lock { fd, .. } => Row::on("flock", fd, No),
        }
    }
}

impl FileCall {
    /// Makes the system call on this thread, and repeats it after EINTR. Blocks as long as the call
    /// does.
    ///
    /// # Errors
    /// The system's error.
    ///
    /// # Safety
    /// Memory that the call refers to must be valid. During the call, no other code may use memory
    /// that it writes. Its descriptors must be open, and the caller must have the right to use
    /// them.
    #[inline]
    pub unsafe fn call(&self) -> io::Result<u32> {
        // SAFETY: `call_once` and `call_again` have the contract of `call`, which the caller
        // guarantees.
        let answer = unsafe {
            match self.call_once() {
                Err(Errno::INTR) => self.call_again(),
                answer => answer,
            }
        };
        // The count fits: Linux transfers less than 2 GiB at once.
        Ok(answer? as u32)
    }

    /// Repeats the call until no signal interrupts it. This is a separate function, so that the
    /// first try is not part of a loop.
    ///
    /// # Safety
    /// The same as for [`call`](Self::call).
    #[cold]
    unsafe fn call_again(&self) -> Result<usize, Errno> {
        loop {
            // SAFETY: the caller guarantees the contract of `call_once`.
            match unsafe { self.call_once() } {
                Err(Errno::INTR) => {}
                answer => return answer,
            }
        }
    }

    /// Makes the call once. The most common calls bypass libc.
    ///
    /// # Safety
    /// The same as for [`call`](Self::call).
    #[inline]
    unsafe fn call_once(&self) -> Result<usize, Errno> {
        // SAFETY: the caller guarantees that memory is valid and descriptors are open.
        unsafe {
            match *self {
                Self::Read { fd, buffer, len, offset, nowait: false } => {
                    let memory =
                        slice::from_raw_parts_mut(buffer.cast::<MaybeUninit<u8>>(), len as usize);
                    let fd = borrow(fd);
                    let (read, _) = if offset == CURSOR_OFFSET {
                        rustix::io::read(fd, memory)?
                    } else {
                        rustix::io::pread(fd, memory, offset)?
                    };
                    Ok(read.len())
                }
                Self::Read { fd, buffer, len, offset, nowait: true } => {
                    let vector = IoVec { base: buffer, len: len as usize };
                    read_cached(fd, &vector, 1, offset)
                }
                Self::ReadVector { fd, vectors, count, offset, nowait: true } => {
                    read_cached(fd, vectors, count, offset)
                }
                Self::Write { fd, buffer, len, offset } => {
                    let bytes = slice::from_raw_parts(buffer, len as usize);
                    if offset == CURSOR_OFFSET {
                        rustix::io::write(borrow(fd), bytes)
                    } else {
                        rustix::io::pwrite(borrow(fd), bytes, offset)
                    }
                }
                Self::Open { at, how } => open(at, &*how),
                _ => self.call_rare(),
            }
        }
    }

    /// Makes the rarer calls. This is a separate function, so that the common ones need less stack.
    ///
    /// # Safety
    /// The same as for [`call`](Self::call).
    #[inline(never)]
    unsafe fn call_rare(&self) -> Result<usize, Errno> {
        // SAFETY: the arguments have the order and types of each system call, and the caller
        // guarantees that pointers are valid and descriptors are open. The offsets of a copy are
        // local and outlive its call.
        let answer = unsafe {
            match *self {
                Self::ReadVector { fd, vectors, count, offset, .. } => {
                    transfer([libc::SYS_readv, libc::SYS_preadv], fd, vectors, count, offset)
                }
                Self::WriteVector { fd, vectors, count, offset } => {
                    transfer([libc::SYS_writev, libc::SYS_pwritev], fd, vectors, count, offset)
                }
                Self::WriteDurable { fd, buffer, len, offset } => {
                    return write_durable(fd, slice::from_raw_parts(buffer, len as usize), offset);
                }
                Self::Sync { fd, data_only: false } => syscall(libc::SYS_fsync, fd),
                Self::Sync { fd, data_only: true } => syscall(libc::SYS_fdatasync, fd),
                Self::Stat { at, flags, stat } => {
                    super::stat::stat(at, flags, &mut *stat)?;
                    0
                }
                Self::SetLen { fd, len } => syscall(libc::SYS_ftruncate, fd, len),
                Self::Allocate { fd, mode, offset, len } => {
                    syscall(libc::SYS_fallocate, fd, mode, offset, len)
                }
                Self::Advise { fd, offset, len, advice } => {
                    syscall(libc::SYS_fadvise64, fd, offset, u64::from(len), advice)
                }
                Self::Remove { at, directory } => {
                    let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
                    syscall(libc::SYS_unlinkat, at.dir, at.path, flags)
                }
                Self::Rename { from, to, flags } => rename(from, to, flags),
                Self::MakeDir { at, mode } => syscall(libc::SYS_mkdirat, at.dir, at.path, mode),
                Self::Symlink { target, at } => {
                    syscall(libc::SYS_symlinkat, target, at.dir, at.path)
                }
                Self::Link { from, to, flags } => {
                    syscall(libc::SYS_linkat, from.dir, from.path, to.dir, to.path, flags)
                }
                Self::ReadLink { at, buffer, len } => {
                    syscall(libc::SYS_readlinkat, at.dir, at.path, buffer, len as usize)
                }
                Self::ReadDir { fd, buffer, len } => {
                    syscall(libc::SYS_getdents64, fd, buffer, len as usize)
                }
                Self::SetMode { at, mode } => syscall(libc::SYS_fchmodat, at.dir, at.path, mode),
                Self::SetModeOf { fd, mode } => syscall(libc::SYS_fchmod, fd, mode),
                Self::SetFlags { fd, flags } => syscall(libc::SYS_fcntl, fd, libc::F_SETFL, flags),
                Self::Copy { from, mut from_offset, to, mut to_offset, len } => {
                    let (there, here) =
                        (offset_pointer(&mut from_offset), offset_pointer(&mut to_offset));
                    syscall(libc::SYS_copy_file_range, from, there, to, here, len as usize, 0)
                }
                Self::Send { from, offset, to, len, signal } => {
                    return pages::send(borrow(from), offset, borrow(to), len as usize, signal);
                }
                Self::Seek { fd, offset, origin, position } => {
                    *position = seek(fd, offset, origin)?;
                    0
                }
                Self::Lock { fd, operation } => syscall(libc::SYS_flock, fd, operation),
                Self::Open { .. } | Self::Read { .. } | Self::Write { .. } => {
                    unreachable!("handled by `call_once`")
                }
            }
        };
        usize::try_from(answer).map_err(|_| last_error())
    }
}

/// Writes bytes so that they survive a power cut.
///
/// # Safety
/// The descriptor must be open, and the caller must have the right to use it.
unsafe fn write_durable(fd: RawFd, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
    let flags = ReadWriteFlags::DSYNC;
    // SAFETY: the caller guarantees that the descriptor is open.
    let fd = unsafe { borrow(fd) };
    match rustix::io::pwritev2(fd, &[IoSlice::new(bytes)], offset, flags) {
        // The file system, or a filter, does not support the flag or the call.
        Err(errno) if errno == Errno::OPNOTSUPP || may_be_refusal(errno) => {
            let count = rustix::io::pwrite(fd, bytes, offset)?;
            rustix::fs::fdatasync(fd)?;
            Ok(count)
        }
        answer => answer,
    }
}

/// Renames by `renameat` if that suffices, because older seccomp profiles refuse `renameat2`.
///
/// # Safety
/// The paths must be valid, and the directories open or `AT_FDCWD`.
unsafe fn rename(from: PathAt, to: PathAt, flags: u32) -> i64 {
    // SAFETY: the caller guarantees that directories and paths are valid.
    unsafe {
        match flags {
            0 => libc::renameat(from.dir, from.path, to.dir, to.path).into(),
            _ => syscall(libc::SYS_renameat2, from.dir, from.path, to.dir, to.path, flags),
        }
    }
}

/// Reads or writes vectors: with the first call at the cursor, with the second at an offset.
///
/// # Safety
/// The vectors and their memory must be valid and not used by other code, and the descriptor must
/// be open.
unsafe fn transfer(
    [at_cursor, at_offset]: [i64; 2],
    fd: RawFd,
    vectors: *const IoVec,
    count: u32,
    offset: u64,
) -> i64 {
    // SAFETY: the caller guarantees that vectors, memory and descriptor are valid.
    unsafe {
        match offset {
            CURSOR_OFFSET => syscall(at_cursor, fd, vectors, count as usize),
            // The call takes the offset as two longs; on a 64-bit system the first holds all of it.
            _ => syscall(at_offset, fd, vectors, count as usize, offset, 0usize),
        }
    }
}

/// Moves the cursor, and returns the new position.
///
/// # Safety
/// The descriptor must be open, and the caller must have the right to use it.
unsafe fn seek(fd: RawFd, offset: i64, origin: u32) -> Result<u64, Errno> {
    // SAFETY: the call uses no memory, and the caller guarantees that the descriptor is open.
    let reached = unsafe { syscall(libc::SYS_lseek, fd, offset, origin) };
    u64::try_from(reached).map_err(|_| last_error())
}

/// Returns a pointer to an offset, which the call updates; null for the cursor.
fn offset_pointer(offset: &mut u64) -> *mut u64 {
    if *offset == CURSOR_OFFSET { null_mut() } else { offset }
}

/// # Safety
/// The vectors and their memory must be valid and not used by other code, and the descriptor must
/// be open.
unsafe fn read_cached(
    fd: RawFd,
    vectors: *const IoVec,
    count: u32,
    offset: u64,
) -> Result<usize, Errno> {
    // The vectors stay a raw pointer: only the kernel writes to their memory, so no `&mut` to it
    // may exist here. SAFETY: the caller guarantees that vectors, memory and descriptor are valid.
    let read = unsafe {
        let (count, flags) = (count as usize, libc::RWF_NOWAIT);
        syscall(libc::SYS_preadv2, fd, vectors, count, offset, 0usize, flags)
    };
    usize::try_from(read).map_err(|_| last_error())
}

/// Opens without waiting for the other end of a named pipe, or for the carrier of a terminal. It
/// does wait for another process to release a lease on the file. The opened file is blocking,
/// unless `O_NONBLOCK` was requested.
///
/// # Safety
/// The path must be valid, and the directory open or `AT_FDCWD`.
unsafe fn open(at: PathAt, how: &OpenHow) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees that directory and path are valid.
    let (dir, path) = unsafe { (borrow(at.dir), CStr::from_ptr(at.path)) };
    let flags = OFlags::from_bits_retain(how.flags as u32);
    if !how.may_wait() {
        return Ok(open_with(dir, path, how, flags)?.into_raw_fd() as usize);
    }
    let opened = match open_with(dir, path, how, flags | OFlags::NONBLOCK) {
        // Another process has a lease on the file (`F_SETLEASE`). Wait until it gives up the lease.
        Err(Errno::AGAIN) if !how.is_cached_only() => open_with(dir, path, how, flags)?,
        opened => opened?,
    };
    rustix::fs::fcntl_setfl(&opened, flags)?;
    Ok(opened.into_raw_fd() as usize)
}

/// Opens by `openat` if that suffices, because it is cheaper than `openat2`.
fn open_with(
    dir: BorrowedFd<'_>,
    path: &CStr,
    how: &OpenHow,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let mode = Mode::from_bits_retain(how.mode as u32);
    if how.resolve == 0 {
        return rustix::fs::openat(dir, path, flags, mode);
    }
    let resolve = ResolveFlags::from_bits_retain(how.resolve);
    rustix::fs::openat2(dir, path, flags, mode, resolve)
}
