//! Why a file is not read as a recording.

use super::document::{FORMAT, MAX_BYTES, VERSION};
use std::fmt;
use std::io;

/// Why something is not read as a recording.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// It cannot be read at all.
    Io(io::Error),
    /// It has more than [`MAX_BYTES`] bytes.
    TooLarge,
    /// It is something else, and what.
    NotOurs(String),
    /// It is a recording in another version of the format, which is named.
    Version(u64),
    /// It ends too early.
    Cut,
    /// It says that it is a recording, and this is wrong with it.
    Invalid(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => error.fmt(f),
            ReadError::TooLarge => write!(
                f,
                "it has more than {} MiB, the most that is read: record with longer intervals (--interval)",
                MAX_BYTES >> 20
            ),
            ReadError::NotOurs(what) => write!(
                f,
                "it is no recording of annulus load, which `annulus load --json FILE` writes ({what})"
            ),
            ReadError::Version(found) => write!(
                f,
                "it is version {found} of the format {FORMAT}, and this is annulus {}, which reads version {VERSION}: \
                 read it with the annulus that wrote it, or record again",
                env!("CARGO_PKG_VERSION")
            ),
            ReadError::Cut => f.write_str(
                "it ends in the middle: the disk was full, or the run was killed while it was written",
            ),
            ReadError::Invalid(what) => write!(f, "it is no valid recording: {what}"),
        }
    }
}

/// Without a source: the text has it.
impl std::error::Error for ReadError {}
