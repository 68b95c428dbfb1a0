//! Datagrams with control messages, as arguments of `sendmsg(2)`.
#![allow(unsafe_code)]

use crate::vectors::{IoVec, MsgHeader};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub(super) fn send(fd: BorrowedFd<'_>, to: &[u8], control: &[u8], bytes: &[u8]) -> io::Result<()> {
    let vector = IoVec { base: bytes.as_ptr(), len: bytes.len() };
    let header = MsgHeader {
        name: to.as_ptr(),
        name_len: to.len() as u32,
        vectors: &raw const vector,
        vector_count: 1,
        control: control.as_ptr(),
        control_len: control.len(),
        flags: 0,
    };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `MsgHeader` has the layout of `struct msghdr`; what it names is borrowed for the call, which only reads it.
    match unsafe { libc::sendmsg(fd.as_raw_fd(), (&raw const header).cast(), flags) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
