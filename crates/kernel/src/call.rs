//! Errors that name the system call that failed.

use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::io;

/// A system call that failed: what [`named`] puts into an error.
#[derive(Debug)]
pub struct CallError {
    call: &'static str,
    error: io::Error,
}

impl CallError {
    /// The system's number of the error.
    pub fn os_error(&self) -> Option<i32> {
        self.error.raw_os_error()
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.error)
    }
}

// The text includes the text of the cause, which is therefore not the source.
impl Error for CallError {}

/// Adds the name of the call to its error. The kind stays, and the errno is in a [`CallError`]: for errors that are reported, not for those
/// that code handles.
#[inline]
pub fn named<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> io::Error {
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), CallError { call, error })
    }
}

/// The error of a system call of libc that has just failed.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_call_and_the_errno() {
        let error = named("bind")(Errno::ADDRINUSE);
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(error.to_string(), "bind: Address already in use (os error 98)");
    }
}
