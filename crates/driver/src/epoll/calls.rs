//! System calls whose results must be translated before an operation can report them.
#![allow(unsafe_code)]

use annulus_kernel::{Address, Fd, IoVec, Kernel, MsgHeader, SocketOption};
use rustix::event::PollFlags;
use rustix::io::{Errno, Result};
use std::{ptr, slice};

/// Returns 1 if the descriptor is ready or has failed, otherwise `EAGAIN`.
pub(super) fn check_ready(kernel: &dyn Kernel, fd: Fd, events: PollFlags) -> Result<u32> {
    if kernel.is_ready(fd, events)? { Ok(1) } else { Err(Errno::AGAIN) }
}

/// Returns true if a short receive means that the socket is empty. On a Unix stream it does not: a
/// receive there also ends after a passed descriptor, or before bytes from another sender.
#[cold]
pub(super) fn is_tcp(kernel: &dyn Kernel, fd: Fd) -> bool {
    kernel.option(fd, SocketOption::Protocol).is_ok_and(|protocol| protocol == SocketOption::TCP)
}

/// Sends the parts that a header refers to, with its control messages.
///
/// # Safety
/// The header and everything that it refers to must be readable.
pub(super) unsafe fn send_vector(
    kernel: &dyn Kernel,
    fd: Fd,
    header: *const MsgHeader,
) -> Result<usize> {
    // SAFETY: the caller guarantees that the header and everything it refers to are readable.
    unsafe {
        match parts(header) {
            [part] if (*header).control_len == 0 => kernel.send(fd, *part, ptr::null(), 0),
            _ => kernel.send_message(fd, header),
        }
    }
}

/// Returns the parts that a header refers to.
///
/// # Safety
/// The header and its vectors must be readable as long as the slice is in use.
pub(super) unsafe fn parts<'a>(header: *const MsgHeader) -> &'a [IoVec] {
    // SAFETY: the caller guarantees that the header and its vectors are readable.
    unsafe { slice::from_raw_parts((*header).vectors, (*header).vector_count) }
}

/// Connects a non-blocking socket. Returns `AGAIN` until the outcome is known; a later call reports
/// it.
///
/// # Safety
/// `len` bytes from `address` must be a readable socket address.
pub(super) unsafe fn connect(
    kernel: &dyn Kernel,
    fd: Fd,
    address: *const u8,
    len: u32,
) -> Result<u32> {
    // SAFETY: the caller guarantees that the address is readable.
    let address = Address::from_bytes(unsafe { slice::from_raw_parts(address, len as usize) });
    let outcome = kernel.connect(fd, &address).map_err(|error| Errno::from_io_error(&error));
    match outcome {
        Ok(()) => Ok(0),
        Err(Some(Errno::INPROGRESS | Errno::ALREADY)) => Err(Errno::AGAIN),
        Err(errno) => Err(errno.unwrap_or(Errno::IO)),
    }
}
