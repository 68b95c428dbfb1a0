//! Calls on pipes, none of which blocks if the pipe is non-blocking. A simulated kernel has no pipes.
#![allow(unsafe_code)]

use crate::fd::Fd;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::pipe::PipeFlags;
use std::io::IoSlice;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

/// The effect, beside failing with `EPIPE`, of a write to a pipe without a reader, or of sending pages to a socket whose peer has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigPipe {
    /// Nothing: the process ignores SIGPIPE, as Rust programs do unless they are set otherwise.
    Ignored,
    /// It raises SIGPIPE, which ends the process unless it is held back, as the calls here do.
    Raised,
}

impl SigPipe {
    /// The effect of the signal in this process now.
    pub fn of_process() -> Self {
        if crate::process::ignores(libc::SIGPIPE) { Self::Ignored } else { Self::Raised }
    }

    /// Makes a call, again if a signal interrupts it, that may have this effect, which it then has not.
    pub(crate) fn avoid<T>(self, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        match self {
            Self::Ignored => rustix::io::retry_on_intr(call),
            Self::Raised => without_signal(|| rustix::io::retry_on_intr(&mut call)),
        }
    }
}

/// Makes a pipe, both ends close-on-exec and non-blocking: the end to read from and the end to write to.
///
/// # Errors
/// Out of descriptors or memory.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
}

/// Opens a named pipe, close-on-exec and non-blocking: it waits neither for the other end nor for a device.
///
/// # Errors
/// `NXIO` to write only, if no reader has it open; `NOENT`, `ACCES`, …
pub fn open(path: &Path, access: OFlags) -> Result<OwnedFd> {
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
}

/// Bytes that can be read now.
///
/// # Errors
/// If it is no pipe.
pub fn available(fd: Fd) -> Result<u64> {
    rustix::io::ioctl_fionread(Fd::borrow(fd))
}

/// Reads the bytes that are there; 0 at the end.
///
/// # Errors
/// `AGAIN` if nothing is there.
pub fn read(fd: Fd, buffer: &mut [u8]) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::read(Fd::borrow(fd), &mut *buffer))
}

/// Writes the bytes that there is space for.
///
/// # Errors
/// `AGAIN` if there is no space; `PIPE` without a reader.
pub fn write(fd: Fd, parts: &[IoSlice<'_>], signal: SigPipe) -> Result<usize> {
    signal.avoid(|| rustix::io::writev(Fd::borrow(fd), parts))
}

/// Makes a call with SIGPIPE held back on this thread, and takes the signal that the call has raised. One that was pending before
/// stays.
fn without_signal<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: the sets are initialised by the calls that come first, all pointers are to locals, and the mask is of this thread.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
        let (mut before, mut pending) = (set, set);
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPIPE);
        libc::sigpending(&raw mut pending);
        let was_pending = libc::sigismember(&raw const pending, libc::SIGPIPE) == 1;
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        let outcome = call();
        if matches!(outcome, Err(Errno::PIPE)) && !was_pending {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            while libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const now) == -1
                && Errno::from_io_error(&std::io::Error::last_os_error()) == Some(Errno::INTR)
            {
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        outcome
    }
}

/// Closes the pipe without giving the descriptor's number away: from now on it is one of `/dev/null`.
///
/// # Errors
/// If `/dev/null` cannot be opened; the pipe is then as before.
pub fn end(fd: Fd) -> Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: the descriptor is open and the caller's to use, which `Fd::from_raw` demands; it stays open, and is not closed here.
    let mut pipe = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd.raw()) });
    rustix::io::dup3(&null, &mut pipe, rustix::io::DupFlags::CLOEXEC)
}
