//! The calls as plain system calls.
#![allow(unsafe_code)]

use super::{FileCall, FileStat, OpenHow, PathAt};
use crate::fd::borrow;
use crate::vectors::IoVec;
use libc::{c_long, syscall};
use rustix::fd::{BorrowedFd, IntoRawFd};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::ffi::CStr;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{OwnedFd, RawFd};
use std::ptr::null_mut;
use std::{io, slice};

/// The cursor, where an offset is asked for.
const CURSOR: u64 = u64::MAX;

impl FileCall {
    /// Makes the system call on this thread, which waits for as long as the call does. EINTR is tried again.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Safety
    /// What the call points to must be valid for it, and no other code may touch what it writes meanwhile. Its descriptors must be
    /// open, and the caller's to use.
    #[inline]
    pub unsafe fn call(&self) -> io::Result<u32> {
        // SAFETY: the caller's promise, passed on.
        match unsafe { self.once() } {
            // No call here moves more than `u32` can hold: lengths are `u32`.
            Ok(answer) => Ok(answer as u32),
            // SAFETY: as above.
            Err(Errno::INTR) => unsafe { self.again() },
            Err(errno) => Err(errno.into()),
        }
    }

    /// Apart, so that the first time is no round of a loop.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    #[cold]
    unsafe fn again(&self) -> io::Result<u32> {
        loop {
            // SAFETY: the caller's promise, passed on.
            match unsafe { self.once() } {
                Err(Errno::INTR) => {}
                answer => return Ok(answer? as u32),
            }
        }
    }

    /// The commonest calls first, without libc's way there.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    #[inline]
    unsafe fn once(&self) -> Result<usize, Errno> {
        // SAFETY: the caller promises that what it points to is valid, and that its descriptors are open.
        unsafe {
            match *self {
                Self::Read { fd, buffer, len, offset, nowait: false } => {
                    let room =
                        slice::from_raw_parts_mut(buffer.cast::<MaybeUninit<u8>>(), len as usize);
                    let fd = borrow(fd);
                    let (read, _) = if offset == CURSOR {
                        rustix::io::read(fd, room)?
                    } else {
                        rustix::io::pread(fd, room, offset)?
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
                    if offset == CURSOR {
                        rustix::io::write(borrow(fd), bytes)
                    } else {
                        rustix::io::pwrite(borrow(fd), bytes, offset)
                    }
                }
                Self::Open { at, how } => open(at, &*how),
                _ => self.seldom(),
            }
        }
    }

    /// Those that are not made for every few bytes; apart, so that they cost the others no room on the stack.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    #[inline(never)]
    unsafe fn seldom(&self) -> Result<usize, Errno> {
        match *self {
            Self::Send { from, offset, to, len } => {
                // SAFETY: the caller promises that both are open.
                let (from, to) = unsafe { (borrow(from), borrow(to)) };
                send(from, offset, to, len as usize)
            }
            Self::Seek { fd, offset, whence, position } => {
                // SAFETY: a seek names no memory; where it puts the answer, the caller vouches for.
                unsafe {
                    let reached = syscall(libc::SYS_lseek, fd, offset, whence);
                    *position = u64::try_from(reached).map_err(|_| last_error())?;
                }
                Ok(0)
            }
            _ => {
                // SAFETY: the caller's promise, passed on.
                let answer = unsafe { self.system_call() };
                usize::try_from(answer).map_err(|_| last_error())
            }
        }
    }

    /// # Safety
    /// As [`call`](Self::call).
    unsafe fn system_call(&self) -> c_long {
        match *self {
            Self::Copy { from, from_offset, to, to_offset, len } => {
                let (mut from_offset, mut to_offset) = (from_offset, to_offset);
                let (there, here) = (place(&mut from_offset), place(&mut to_offset));
                // SAFETY: the offsets outlive the call.
                unsafe {
                    syscall(libc::SYS_copy_file_range, from, there, to, here, len as usize, 0)
                }
            }
            // SAFETY: the caller's promise, passed on.
            _ => unsafe { self.plain_call() },
        }
    }

    /// The calls whose arguments stand as they are.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    unsafe fn plain_call(&self) -> c_long {
        // SAFETY: numbers and pointers as each call's page has them; for the pointers the caller vouches.
        unsafe {
            match *self {
                // A 64-bit system takes the offset's high half from the low word's own.
                Self::ReadVector { fd, vectors, count, offset, .. } => {
                    syscall(libc::SYS_preadv2, fd, vectors, count as usize, offset, 0usize, 0)
                }
                Self::WriteVector { fd, vectors, count, offset } => {
                    syscall(libc::SYS_pwritev2, fd, vectors, count as usize, offset, 0usize, 0)
                }
                Self::Sync { fd, data_only: false } => syscall(libc::SYS_fsync, fd),
                Self::Sync { fd, data_only: true } => syscall(libc::SYS_fdatasync, fd),
                Self::Stat { at, flags, stat } => {
                    syscall(libc::SYS_statx, at.dir, at.path, flags, FileStat::WANTED, stat)
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
                Self::Rename { from, to, flags } => {
                    syscall(libc::SYS_renameat2, from.dir, from.path, to.dir, to.path, flags)
                }
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
                Self::Lock { fd, operation } => syscall(libc::SYS_flock, fd, operation),
                Self::Open { .. }
                | Self::Read { .. }
                | Self::Write { .. }
                | Self::Send { .. }
                | Self::Seek { .. }
                | Self::Copy { .. } => {
                    unreachable!("handled before")
                }
            }
        }
    }
}

/// Where a call finds an offset, and leaves the next one; nowhere, where it is the cursor.
fn place(offset: &mut u64) -> *mut u64 {
    if *offset == CURSOR { null_mut() } else { offset }
}

/// # Safety
/// The vectors and their memory must be valid, and no other code's; the descriptor open.
unsafe fn read_cached(
    fd: RawFd,
    vectors: *const IoVec,
    count: u32,
    offset: u64,
) -> Result<usize, Errno> {
    // SAFETY: an `IoSliceMut` is promised to be an iovec; the kernel writes to the memory and reads none of it.
    let vectors = unsafe {
        slice::from_raw_parts_mut(vectors.cast_mut().cast::<IoSliceMut<'_>>(), count as usize)
    };
    // SAFETY: the caller's promise.
    let fd = unsafe { borrow(fd) };
    rustix::io::preadv2(fd, vectors, offset, ReadWriteFlags::NOWAIT)
}

/// Opens without waiting for the other end of a named pipe, or for a line's carrier. What was opened waits again, unless it
/// was asked not to.
///
/// # Safety
/// The path must be valid; the directory open, or `AT_FDCWD`.
unsafe fn open(at: PathAt, how: &OpenHow) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let (dir, path) = unsafe { (borrow(at.dir), CStr::from_ptr(at.path)) };
    let flags = OFlags::from_bits_retain(how.flags as u32);
    if !how.may_wait() {
        return Ok(open_with(dir, path, how, flags)?.into_raw_fd() as usize);
    }
    let opened = match open_with(dir, path, how, flags | OFlags::NONBLOCK) {
        // Somebody must give his lease on the file back first.
        Err(Errno::AGAIN) if how.resolve == 0 => open_with(dir, path, how, flags)?,
        opened => opened?,
    };
    rustix::fs::fcntl_setfl(&opened, flags)?;
    Ok(opened.into_raw_fd() as usize)
}

/// The older call takes less where it suffices: it has fewer arguments to fetch.
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

/// Sends pages of a file. `sendfile` waits for room as long as the socket itself says so: that is changed for the call.
fn send(from: BorrowedFd<'_>, offset: u64, to: BorrowedFd<'_>, len: usize) -> Result<usize, Errno> {
    let flags = rustix::fs::fcntl_getfl(to)?;
    let waits = !flags.contains(OFlags::NONBLOCK);
    if waits {
        rustix::fs::fcntl_setfl(to, flags | OFlags::NONBLOCK)?;
    }
    let mut at = offset;
    let sent = without_sigpipe(|| rustix::fs::sendfile(to, from, Some(&mut at), len));
    if waits {
        rustix::fs::fcntl_setfl(to, flags)?;
    }
    sent
}

/// Makes a call that knows no `MSG_NOSIGNAL`: where the peer has gone, its error is all that is seen of it.
fn without_sigpipe<T>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    // SAFETY: the sets are initialised before they are read, and outlive the calls; this thread's mask is put back.
    unsafe {
        let (mut pipe, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
        let outcome = call();
        if matches!(outcome, Err(Errno::PIPE)) && libc::sigismember(&before, libc::SIGPIPE) == 0 {
            // Takes the signal that the call has raised, if it was not ignored anyway.
            libc::sigtimedwait(&pipe, null_mut(), &libc::timespec { tv_sec: 0, tv_nsec: 0 });
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
        outcome
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
