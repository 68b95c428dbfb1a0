//! Writes a results file line by line. Each line is in the file before the next slice starts.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Results;
use super::header::{DirectoryPlaceholders, Header};
use crate::bench::{Footprint, Outcome, Sample, Slice};
use crate::environment::now;

/// A line after the first.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    /// A slice with its result.
    Slice(SliceLine),
    /// The run was resumed at this time, in UTC.
    Resumed(String),
    /// The memory of the contenders. The last such line counts.
    Memory(Vec<Footprint>),
    /// The run was finished at this time, in UTC.
    Finished(String),
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SliceLine {
    #[serde(flatten)]
    pub(super) slice: Slice,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sample: Option<Sample>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl SliceLine {
    /// Returns the result; `None` unless the line has either a sample or an error.
    pub(super) fn outcome(self) -> Option<Outcome> {
        match (self.sample, self.error) {
            (Some(sample), None) => Some(Ok(sample)),
            (None, Some(error)) => Some(Err(error)),
            _ => None,
        }
    }
}

/// The results file of a run that is being measured.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    places: DirectoryPlaceholders,
}

impl Log {
    /// Creates the file with its header.
    pub(super) fn create(
        path: &Path,
        header: &Header,
        places: DirectoryPlaceholders,
    ) -> Result<Log> {
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        let file = made.and_then(|()| File::options().write(true).create_new(true).open(path));
        let file = file.with_context(|| {
            format!("cannot create {}: choose another directory with --out", path.display())
        })?;
        let mut log = Log { path: path.into(), file, places };
        log.append(header)?;
        Ok(log)
    }

    /// Opens the file of an unfinished run, removes a truncated last line, and notes that the run
    /// is resumed.
    pub(super) fn resume(results: &Results, places: DirectoryPlaceholders) -> Result<Log> {
        let mut log = Log::at(&results.path, places)?;
        let cut = log.file.set_len(results.whole);
        cut.with_context(|| format!("cannot write to {}", log.path.display()))?;
        log.append(&Line::Resumed(now()))?;
        Ok(log)
    }

    /// Opens a file to append to it.
    pub(super) fn at(path: &Path, places: DirectoryPlaceholders) -> Result<Log> {
        let file = File::options().append(true).open(path);
        let file = file.with_context(|| format!("cannot write to {}", path.display()))?;
        Ok(Log { path: path.to_owned(), file, places })
    }

    /// Appends a slice.
    pub(super) fn slice(&mut self, slice: Slice, outcome: &Outcome) -> Result<()> {
        let (sample, error) = (outcome.as_ref().ok().cloned(), outcome.as_ref().err().cloned());
        self.append(&Line::Slice(SliceLine { slice, sample, error }))
    }

    /// Appends a line with one write, so that a line is truncated only if the disk is full or the
    /// machine fails.
    pub(super) fn append(&mut self, line: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(line).context("cannot write a result as JSON")?;
        let mut text = self.places.shortened(&text);
        text.push('\n');
        self.file.write_all(text.as_bytes()).with_context(|| {
            let path = self.path.display();
            format!("cannot write {path}, whose results so far are kept: free space, and pass its directory as --out to resume")
        })
    }
}
