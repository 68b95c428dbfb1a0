//! Errors with a text that says more.

use std::error::Error;
use std::fmt;
use std::io;

/// An error with another text, which has that of the error.
pub(crate) struct WithText {
    text: String,
    error: io::Error,
}

/// The same error with another text: of the same kind, and [`os_error`](crate::io::os_error) finds its number.
#[cold]
pub(crate) fn with_text(error: io::Error, text: String) -> io::Error {
    io::Error::new(error.kind(), WithText { text, error })
}

impl WithText {
    /// The error as it was.
    pub(crate) fn error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for WithText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The text, as `main` prints it of an error.
impl fmt::Debug for WithText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

// The text includes that of the cause, which is therefore not the source.
impl Error for WithText {}
