//! Calls on pipes, which do not block if the pipe is non-blocking. A simulated kernel has no pipes.
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

/// The effect, besides an `EPIPE` error, of a write to a pipe without a reader, or of sending pages
/// to a socket whose peer has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigPipe {
    /// Nothing: the process ignores SIGPIPE, as Rust programs do by default.
    Ignored,
    /// The process does not ignore SIGPIPE, so the kernel raises it. The calls here keep the signal
    /// from the process.
    Raised,
}

impl SigPipe {
    /// Returns what SIGPIPE currently does in this process.
    pub fn of_process() -> Self {
        if crate::process::ignores(libc::SIGPIPE) { Self::Ignored } else { Self::Raised }
    }

    /// Makes a call that may raise SIGPIPE, but keeps that signal from the process. Repeats the
    /// call if another signal interrupts it.
    pub(crate) fn avoid<T>(self, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        match self {
            Self::Ignored => rustix::io::retry_on_intr(call),
            Self::Raised => without_signal(|| rustix::io::retry_on_intr(&mut call)),
        }
    }
}

/// Creates a pipe whose ends are close-on-exec and non-blocking. Returns the read end and the write
/// end.
///
/// # Errors
/// Fails if the process is out of descriptors or memory.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
}

/// Opens a named pipe, close-on-exec and non-blocking. The call waits neither for the other end nor
/// for a device.
///
/// # Errors
/// `NXIO` if opened only for writing while no reader has it open; `NOENT`, `ACCES`, …
pub fn open(path: &Path, access: OFlags) -> Result<OwnedFd> {
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
}

/// Returns the number of bytes that can be read now.
///
/// # Errors
/// Fails if the file does not support the call.
pub fn available(fd: Fd) -> Result<u64> {
    rustix::io::ioctl_fionread(Fd::borrow(fd))
}

/// Reads the bytes that are available. Returns 0 at the end.
///
/// # Errors
/// `AGAIN` if no bytes are available.
pub fn read(fd: Fd, buffer: &mut [u8]) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::read(Fd::borrow(fd), &mut *buffer))
}

/// Writes as many bytes as there is space for.
///
/// # Errors
/// `AGAIN` if there is no space; `PIPE` if there is no reader.
pub fn write(fd: Fd, parts: &[IoSlice<'_>], signal: SigPipe) -> Result<usize> {
    signal.avoid(|| rustix::io::writev(Fd::borrow(fd), parts))
}

/// Makes a call with SIGPIPE blocked on this thread, and consumes the signal if the call raises it.
/// A signal that was pending before stays pending.
fn without_signal<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: zeroed sets are initialised, all pointers are to locals, and the mask is this
    // thread's own.
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

/// Closes the pipe but keeps the descriptor's number, which refers to `/dev/null` from now on.
///
/// # Errors
/// Fails if `/dev/null` cannot be opened. The pipe then stays open.
pub fn end(fd: Fd) -> Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: the caller of `Fd::from_raw` guarantees that the descriptor is open and may be used.
    // It stays open: `ManuallyDrop` does not close it.
    let mut pipe = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd.raw()) });
    rustix::io::dup3(&null, &mut pipe, rustix::io::DupFlags::CLOEXEC)
}
