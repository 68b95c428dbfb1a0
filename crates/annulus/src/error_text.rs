//! Errors with a more detailed message.

use std::error::Error;
use std::fmt;
use std::io;

/// An error with a message of our own, which includes the original one.
pub(crate) struct WithText {
    text: String,
    error: io::Error,
}

/// Replaces the message of an error. The kind stays the same, and [`os_error`](crate::io::os_error)
/// still finds the error number.
#[cold]
pub(crate) fn with_text(error: io::Error, text: String) -> io::Error {
    io::Error::new(error.kind(), WithText { text, error })
}

impl WithText {
    /// Returns the original error.
    pub(crate) fn error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for WithText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Shows the text, because `main` prints errors with `Debug`.
impl fmt::Debug for WithText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

// No `source`: the text already includes the message of the cause.
impl Error for WithText {}
