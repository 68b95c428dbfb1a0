//! Calls on sockets that do not wait. One that a signal interrupts is made again.
#![allow(unsafe_code)]

use crate::fd::Fd;
use crate::vectors::{IoVec, MessageSlot, MsgHeader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::IntoRawFd;
use rustix::io::{Errno, Result, retry_on_intr as again};
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::{ptr, slice};

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
const SEND_BITS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
const RECEIVE_MESSAGE: i32 = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC;
const ACCEPTED: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// The result of a system call.
fn answer(value: isize) -> Result<usize> {
    usize::try_from(value).map_err(|_| {
        let errno = std::io::Error::last_os_error().raw_os_error();
        Errno::from_raw_os_error(errno.unwrap_or_default())
    })
}

/// # Safety
/// As [`Kernel::receive`](crate::Kernel::receive).
#[inline]
pub(super) unsafe fn receive(fd: Fd, buffer: *mut u8, len: u32) -> Result<u32> {
    again(|| {
        // SAFETY: the memory is writable and exclusive, which this function demands; it need not be initialised.
        let memory =
            unsafe { slice::from_raw_parts_mut(buffer.cast::<MaybeUninit<u8>>(), len as usize) };
        let (_, count) = net::recv(fd.borrow(), memory, RecvFlags::DONTWAIT)?;
        Ok(count as u32)
    })
}

/// # Safety
/// As [`Kernel::receive_message`](crate::Kernel::receive_message).
pub(super) unsafe fn receive_message(fd: Fd, header: *mut MsgHeader) -> Result<u32> {
    let receive = || {
        // SAFETY: the memory is writable and exclusive, which this function demands.
        answer(unsafe { libc::recvmsg(fd.raw(), header.cast(), RECEIVE_MESSAGE) })
    };
    Ok(again(receive)? as u32)
}

/// # Safety
/// As [`Kernel::receive_messages`](crate::Kernel::receive_messages).
pub(super) unsafe fn receive_messages(fd: Fd, slots: &mut [MessageSlot]) -> Result<usize> {
    let (first, count) = (slots.as_mut_ptr().cast(), slots.len() as u32);
    // The flags are of another type in musl.
    again(|| {
        let timeout = ptr::null_mut();
        // SAFETY: the slots name memory that is writable and exclusive, which this function demands.
        let received =
            unsafe { libc::recvmmsg(fd.raw(), first, count, RECEIVE_MESSAGE as _, timeout) };
        answer(received as isize)
    })
}

/// # Safety
/// As [`Kernel::send`](crate::Kernel::send).
#[inline]
pub(super) unsafe fn send(fd: Fd, bytes: IoVec, to: *const u8, to_len: u16) -> Result<usize> {
    // SAFETY: bytes and address are readable, which this function demands.
    unsafe {
        if to.is_null() {
            let bytes = slice::from_raw_parts(bytes.base, bytes.len);
            return again(|| net::send(fd.borrow(), bytes, SEND));
        }
        let (start, to) = (bytes.base.cast(), to.cast());
        again(|| answer(libc::sendto(fd.raw(), start, bytes.len, SEND_BITS, to, to_len.into())))
    }
}

/// # Safety
/// As [`Kernel::send_message`](crate::Kernel::send_message).
pub(super) unsafe fn send_message(fd: Fd, header: *const MsgHeader) -> Result<usize> {
    // SAFETY: the header and all that it names are readable, which this function demands.
    again(|| answer(unsafe { libc::sendmsg(fd.raw(), header.cast(), SEND_BITS) }))
}

pub(super) fn accept(fd: Fd) -> Result<RawFd> {
    Ok(again(|| net::accept_with(fd.borrow(), ACCEPTED))?.into_raw_fd())
}

pub(super) fn is_ready(fd: Fd, events: PollFlags) -> Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(fd.borrow(), events)];
    Ok(again(|| poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })))? > 0)
}

const _: () = assert!(
    size_of::<MsgHeader>() == size_of::<libc::msghdr>()
        && size_of::<MessageSlot>() == size_of::<libc::mmsghdr>()
);
