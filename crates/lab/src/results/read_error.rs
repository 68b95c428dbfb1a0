//! Why a file of results cannot be read.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::header::VERSION;

/// A failure to read a file of results. Its text names the file, the line, what is wrong, and what to do.
#[derive(Debug)]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub reason: Reason,
}

/// What is wrong with a file of results.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reason {
    /// It cannot be read at all.
    Io(io::Error),
    /// Its first line is missing or cut: the run was killed as it started.
    Empty,
    /// Its first line is not that of a file of results.
    Other,
    /// It is in another version of the format.
    Version {
        /// That version.
        version: u64,
        /// The version of annulus that wrote it; empty if the file does not say.
        annulus: String,
    },
    /// A line is not as it must be.
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.reason {
            Reason::Io(error) => write!(f, "cannot read {path}: {error}"),
            Reason::Empty => write!(
                f,
                "{path}: line 1 is missing or cut, so nothing was measured: remove the file"
            ),
            Reason::Other => write!(
                f,
                "{path}: line 1 is not that of a file of results: name a .jsonl file that `annulus lab run` has written"
            ),
            Reason::Version { version, annulus } => {
                let by = if annulus.is_empty() { "" } else { " " };
                write!(
                    f,
                    "{path}: line 1: version {version} of the format, and this annulus reads version {VERSION}: use \
                     the annulus{by}{annulus} that wrote it, or measure again"
                )
            }
            Reason::Line { line, why } => write!(
                f,
                "{path}: line {line}: {why}: restore the file, or remove it and measure again"
            ),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            Reason::Io(error) => Some(error),
            _ => None,
        }
    }
}
