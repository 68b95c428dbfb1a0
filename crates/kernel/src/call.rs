//! Errors of system calls that tell which call failed.

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

// Its text has all that the cause has, which is therefore no source.
impl Error for Failed {}

/// Makes the error of a system call one that names the call. Its kind stays; its number is in the text alone, so this is
/// for errors that are reported, not for those that are acted upon.
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
    fn the_call_and_the_number_are_in_the_text() {
        let error = named("bind")(Errno::ADDRINUSE);
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(error.to_string(), "bind: Address already in use (os error 98)");
    }
}
