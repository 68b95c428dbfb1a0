//! Why a file is not read as a recording.

use super::document::{FORMAT, MAX_BYTES, VERSION};
use std::io;

/// Why a file or text is not read as a recording. It has no source, since its text includes the source's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It cannot be read at all.
    #[error("{0}")]
    Io(io::Error),
    /// It has more than [`MAX_BYTES`] bytes.
    #[error("it has more than {} MiB, the most that is read: record with longer intervals (--interval)", MAX_BYTES >> 20)]
    TooLarge,
    /// It is not a recording; the text says what was found.
    #[error("it is no recording of annulus load, which `annulus load --json FILE` writes ({0})")]
    NotOurs(String),
    /// It is a recording in another version of the format, which is named.
    #[error(
        "it is version {0} of the format {FORMAT}, and this is annulus {version}, which reads version {VERSION}: \
         read it with the annulus that wrote it, or record again",
        version = env!("CARGO_PKG_VERSION")
    )]
    Version(u64),
    /// It ends too early.
    #[error("it ends in the middle: the disk was full, or the run was killed while it was written")]
    Cut,
    /// It says that it is a recording, but has an error, which the text names.
    #[error("it is no valid recording: {0}")]
    Invalid(String),
}
