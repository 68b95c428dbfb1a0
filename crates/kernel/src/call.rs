//! Errors that name the system call that failed.

use std::error::Error;
use std::fmt;
use std::io;

/// A system call that failed.
#[derive(Debug)]
struct Failed {
    call: &'static str,
    error: io::Error,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.error)
    }
}

// The text includes that of the cause, which is therefore not the source.
impl Error for Failed {}

/// Adds the name of the call to its error. The kind stays, but the errno is only in the text: for errors that are reported, not for
/// those that code handles.
#[inline]
pub fn named<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> io::Error {
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), Failed { call, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn the_text_has_the_call_and_the_errno() {
        let error = named("bind")(Errno::ADDRINUSE);
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(error.to_string(), "bind: Address already in use (os error 98)");
    }
}
