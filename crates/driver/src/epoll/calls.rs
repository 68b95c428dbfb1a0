//! The system calls of operations. None of them blocks.
#![allow(unsafe_code)]

use annulus_kernel::{Fd, IoVec, Linux, MsgHeader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::IntoRawFd;
use rustix::io::{Errno, Result};
use rustix::net::{
    self, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketFlags, ipproto, sockopt,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::slice;

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
const ACCEPTED: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Repeats a call that was interrupted by a signal.
#[inline]
pub(super) fn again<T>(call: impl FnMut() -> Result<T>) -> Result<T> {
    rustix::io::retry_on_intr(call)
}

/// # Safety
/// `len` bytes from `buffer` must be writable, and no other code's.
#[inline]
pub(super) unsafe fn receive(fd: Fd, buffer: *mut u8, len: u32) -> Result<u32> {
    again(|| {
        // SAFETY: the memory is writable and exclusive, which this function demands; it need not be initialised.
        let memory =
            unsafe { slice::from_raw_parts_mut(buffer.cast::<MaybeUninit<u8>>(), len as usize) };
        let (_, count) = net::recv(Linux::borrow(fd), memory, RecvFlags::DONTWAIT)?;
        Ok(count as u32)
    })
}

/// 1 if a descriptor is readable, or has failed; else `EAGAIN`.
pub(super) fn is_readable(fd: Fd) -> Result<u32> {
    is_ready(fd, PollFlags::IN)
}

/// 1 if a descriptor is writable, or has failed; else `EAGAIN`.
pub(super) fn is_writable(fd: Fd) -> Result<u32> {
    is_ready(fd, PollFlags::OUT)
}

fn is_ready(fd: Fd, flags: PollFlags) -> Result<u32> {
    let mut polled = [PollFd::from_borrowed_fd(Linux::borrow(fd), flags)];
    let count = again(|| poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })))?;
    if count > 0 { Ok(1) } else { Err(Errno::AGAIN) }
}

/// Whether a short receive means that there is no more. Not on a Unix stream: there a receive also ends after a descriptor that
/// was passed, and before bytes of another sender.
#[cold]
pub(super) fn is_tcp(fd: Fd) -> bool {
    sockopt::socket_protocol(Linux::borrow(fd)) == Ok(Some(ipproto::TCP))
}

/// # Safety
/// The part must be readable.
#[inline]
pub(super) unsafe fn send(fd: Fd, part: IoVec) -> Result<usize> {
    // SAFETY: the part is readable, which this function demands.
    let bytes = unsafe { slice::from_raw_parts(part.base, part.len) };
    again(|| net::send(Linux::borrow(fd), bytes, SEND))
}

/// # Safety
/// Each part must be readable.
pub(super) unsafe fn send_all(fd: Fd, parts: &[IoVec]) -> Result<usize> {
    // SAFETY: each part is readable, which this function demands. An `IoSlice` has the layout of `struct iovec`, as `IoVec`.
    let slices = unsafe {
        if let [part] = parts {
            return send(fd, *part);
        }
        slice::from_raw_parts(parts.as_ptr().cast::<IoSlice<'_>>(), parts.len())
    };
    again(|| net::sendmsg(Linux::borrow(fd), slices, &mut SendAncillaryBuffer::default(), SEND))
}

/// The parts that a `struct msghdr` names.
///
/// # Safety
/// The header and its vectors must be readable as long as the slice is in use.
pub(super) unsafe fn parts<'a>(header: *const u8) -> &'a [IoVec] {
    // SAFETY: header and vectors are readable, which this function demands.
    unsafe {
        let header = &*header.cast::<MsgHeader>();
        slice::from_raw_parts(header.vectors, header.vector_count)
    }
}

/// The descriptor of a connection, non-blocking. The listener must be non-blocking too.
pub(super) fn accept(fd: Fd) -> Result<u32> {
    let socket = again(|| net::accept_with(Linux::borrow(fd), ACCEPTED))?;
    Ok(socket.into_raw_fd() as u32)
}

/// Connects a non-blocking socket. `AGAIN` until the outcome is known; calling again reports it.
///
/// # Safety
/// `len` bytes from `address` must be a readable socket address.
pub(super) unsafe fn connect(fd: Fd, address: *const u8, len: u32) -> Result<u32> {
    // SAFETY: the address is readable, which this function demands.
    let address = unsafe { SocketAddrAny::read(address.cast(), len) };
    match again(|| net::connect(Linux::borrow(fd), &address)) {
        Ok(()) | Err(Errno::ISCONN) => Ok(0),
        Err(Errno::INPROGRESS | Errno::ALREADY) => Err(Errno::AGAIN),
        Err(errno) => Err(errno),
    }
}
