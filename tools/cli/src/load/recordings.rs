//! Recordings that are named on the command line.

use crate::output::Target;
use crate::usage::UsageError;
use annulus_load::recording::Recording;
use anyhow::{Result, anyhow};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The recording in a file.
pub(super) fn open(path: &Path) -> Result<Recording> {
    Recording::open(path).map_err(|error| anyhow!("cannot read {}: {error}", path.display()))
}

/// Refuses to write over one of the files that are read.
pub(super) fn check_distinct<'a>(
    output: &Target,
    inputs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), UsageError> {
    let Target::File(output) = output else { return Ok(()) };
    // A file whose metadata cannot be read is not there yet, or is reported when it is read.
    let file = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    let Some(written) = file(output) else { return Ok(()) };
    let is_same = |input: &&PathBuf| file(input) == Some(written);
    match inputs.into_iter().find(is_same) {
        Some(_) => Err(UsageError(format!(
            "{} is a recording that is read: write to another file",
            output.display()
        ))),
        None => Ok(()),
    }
}
