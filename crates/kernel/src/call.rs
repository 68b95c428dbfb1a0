//! Errors that say which system call failed.

use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::io;

/// A failed system call, which [`named`] puts into an error.
#[derive(Debug)]
pub struct CallError {
    call: &'static str,
    error: io::Error,
}

impl CallError {
    /// Returns the errno.
    pub fn os_error(&self) -> Option<i32> {
        self.error.raw_os_error()
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.error)
    }
}

// `Display` includes the text of the cause, so `source` does not return the cause.
impl Error for CallError {}

/// Returns a function that adds the name of a call to its error. The new error has the same kind,
/// but its errno is in a [`CallError`], so use this for errors that are reported rather than
/// handled.
#[inline]
pub fn named<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> io::Error {
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), CallError { call, error })
    }
}

/// Returns the errno of a libc call that has just failed.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_error_shows_call_and_errno() {
        let error = named("bind")(Errno::ADDRINUSE);
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(error.to_string(), "bind: Address already in use (os error 98)");
    }
}
