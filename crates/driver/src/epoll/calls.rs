//! The system calls of operations that need more than the kernel's answer.
#![allow(unsafe_code)]

use annulus_kernel::{Address, Fd, IoVec, Kernel, MsgHeader, SocketOption};
use rustix::event::PollFlags;
use rustix::io::{Errno, Result};
use std::{ptr, slice};

/// 1 if a descriptor is ready, or has failed; else `EAGAIN`.
pub(super) fn is_ready(kernel: &dyn Kernel, fd: Fd, events: PollFlags) -> Result<u32> {
    if kernel.is_ready(fd, events)? { Ok(1) } else { Err(Errno::AGAIN) }
}

/// Whether a short receive means that there is no more. Not on a Unix stream: there a receive also ends after a descriptor that
/// was passed, and before bytes of another sender.
#[cold]
pub(super) fn is_tcp(kernel: &dyn Kernel, fd: Fd) -> bool {
    kernel.option(fd, SocketOption::Protocol).is_ok_and(|protocol| protocol == SocketOption::TCP)
}

/// Sends the parts that a header names, with its control messages.
///
/// # Safety
/// The header and all that it names must be readable.
pub(super) unsafe fn send_vector(
    kernel: &dyn Kernel,
    fd: Fd,
    header: *const MsgHeader,
) -> Result<usize> {
    // SAFETY: the header and all that it names are readable, which this function demands.
    unsafe {
        match parts(header) {
            [part] if (*header).control_len == 0 => kernel.send(fd, *part, ptr::null(), 0),
            _ => kernel.send_message(fd, header),
        }
    }
}

/// The parts that a header names.
///
/// # Safety
/// The header and its vectors must be readable as long as the slice is in use.
pub(super) unsafe fn parts<'a>(header: *const MsgHeader) -> &'a [IoVec] {
    // SAFETY: header and vectors are readable, which this function demands.
    unsafe { slice::from_raw_parts((*header).vectors, (*header).vector_count) }
}

/// Connects a non-blocking socket. `AGAIN` until the outcome is known; calling again reports it.
///
/// # Safety
/// `len` bytes from `address` must be a readable socket address.
pub(super) unsafe fn connect(
    kernel: &dyn Kernel,
    fd: Fd,
    address: *const u8,
    len: u32,
) -> Result<u32> {
    // SAFETY: the address is readable, which this function demands.
    let address = Address::from_bytes(unsafe { slice::from_raw_parts(address, len as usize) });
    let outcome = kernel.connect(fd, &address).map_err(|error| Errno::from_io_error(&error));
    match outcome {
        Ok(()) | Err(Some(Errno::ISCONN)) => Ok(0),
        Err(Some(Errno::INPROGRESS | Errno::ALREADY)) => Err(Errno::AGAIN),
        Err(errno) => Err(errno.unwrap_or(Errno::IO)),
    }
}
