//! A descriptor of a kernel, real or simulated.
#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};

/// A descriptor: its number, and the promise that the number may be used.
///
/// A number alone proves nothing: it may be a descriptor of other code, and once closed it is given out again. So making an `Fd`
/// of a number is unsafe, and whoever makes one answers for every use of it and of its copies, the closing included. In return
/// the calls of [`Kernel`](crate::Kernel) that take an `Fd` are safe.
///
/// ```
/// use annulus_kernel::{Domain, Fd, Kernel, Linux, SocketType};
///
/// let number = Linux.socket(Domain::Inet, SocketType::Stream, true)?;
/// // SAFETY: the socket was made just now, no other code has its number, and it is closed once, below.
/// let fd = unsafe { Fd::from_raw(number) };
/// Linux.listen(fd, 8)?;
/// Linux.close(fd);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Without `unsafe` there is no way to close, or to change, what other code has opened:
///
/// ```compile_fail,E0308
/// #![forbid(unsafe_code)]
/// use annulus_kernel::{Kernel, Linux};
/// use std::os::fd::AsRawFd;
///
/// let file = std::fs::File::open("/dev/null")?;
/// Linux.close(file.as_raw_fd());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// ```compile_fail,E0133
/// use annulus_kernel::{Fd, Kernel, Linux};
/// use std::os::fd::AsRawFd;
///
/// let file = std::fs::File::open("/dev/null")?;
/// Linux.close(Fd::from_raw(file.as_raw_fd()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Fd(RawFd);

impl Fd {
    /// No descriptor. Entries of a ring that need one answer EBADF to it; a plain call on it panics.
    pub const NONE: Self = Self(-1);

    /// A descriptor by its number.
    ///
    /// # Safety
    /// The number must be a descriptor of the kernel that this value and its copies are used with, open, and the caller's to
    /// use. After one of them was closed, or its number was handed to an owner outside, none of them may be used any more.
    #[inline]
    pub const unsafe fn from_raw(number: RawFd) -> Self {
        Self(number)
    }

    /// Its number.
    #[inline]
    pub const fn raw(self) -> RawFd {
        self.0
    }
}

impl fmt::Display for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Lends a descriptor, or `AT_FDCWD`, to one system call. Panics on -1.
///
/// # Safety
/// It must be open until that call is over.
#[inline]
pub(crate) unsafe fn borrow<'a>(number: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the caller's promise, passed on.
    unsafe { BorrowedFd::borrow_raw(number) }
}
