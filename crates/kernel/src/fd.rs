//! A descriptor of a kernel, real or simulated.
#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};

/// A descriptor that its holder may use.
///
/// A number alone proves nothing: it may be a descriptor of other code, and a closed number is
/// reused. So creating an `Fd` from a number is unsafe, and the code that creates one is
/// responsible for every use of it and of its copies, including the close. In return, the calls of
/// [`Kernel`](crate::Kernel) that take an `Fd` are safe.
///
/// ```
/// use annulus_kernel::{Domain, Fd, Kernel, Linux, SocketType};
///
/// let number = Linux.socket(Domain::Inet, SocketType::Stream, true)?;
/// // SAFETY: the socket is new, no other code has its number, and it is closed once, below.
/// let fd = unsafe { Fd::from_raw(number) };
/// Linux.listen(fd, 8)?;
/// Linux.close(fd);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Safe code cannot close or change descriptors that other code has opened:
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
    /// No descriptor. A ring entry with this value fails with EBADF; a direct call panics or fails.
    pub const NONE: Self = Self(-1);

    /// Creates an `Fd` from a number.
    ///
    /// # Safety
    /// The number must be an open descriptor that the caller may use. It must belong to the kernel
    /// that this value and its copies are used with. Once one of them has been closed, or the
    /// number has been given to another owner, none of them may be used.
    #[inline]
    pub const unsafe fn from_raw(number: RawFd) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[inline]
    pub const fn raw(self) -> RawFd {
        self.0
    }

    /// Borrows the descriptor, on Linux, for a call of rustix. Panics for [`NONE`](Self::NONE).
    #[inline]
    pub(crate) fn borrow<'a>(self) -> BorrowedFd<'a> {
        // SAFETY: the caller of `from_raw` guarantees that an `Fd` is open whenever it is used.
        unsafe { borrow(self.0) }
    }
}

impl fmt::Display for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Borrows a descriptor, or `AT_FDCWD`, for rustix. Panics on -1.
///
/// # Safety
/// The descriptor must stay open as long as the result is used.
#[inline]
pub(crate) unsafe fn borrow<'a>(number: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the caller guarantees that the descriptor stays open.
    unsafe { BorrowedFd::borrow_raw(number) }
}
