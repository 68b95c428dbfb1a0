//! Kernel TLS as arguments of `setsockopt(2)`.
#![allow(unsafe_code)]

use crate::tls::TlsKeys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Makes a connected TCP socket one that can be given keys.
pub(super) fn begin(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_TCP, libc::TCP_ULP, b"tls")
}

/// Gives it the keys for sending.
pub(super) fn send_keys(fd: BorrowedFd<'_>, keys: &TlsKeys) -> io::Result<()> {
    set(fd, libc::SOL_TLS, libc::TLS_TX, keys.as_bytes())
}

fn set(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: the call reads `len` bytes, which are borrowed for it.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
