//! Recordings as JSON: format `annulus-load`, version 1; the schema is
//! `docs/load-recording.schema.json`.
//!
//! The summary is written for readers of the file, and is computed again when the file is read.
//! Unknown keys are ignored, so a later annulus can add keys without a new version.

use super::{ClassSummary, Interval, Recording, Summary};
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// The name of the format.
pub const FORMAT_NAME: &str = "annulus-load";
/// The version of the format that is written, and the only one that can be read.
pub const FORMAT_VERSION: u64 = 1;
/// The largest file that can be read: 1 GiB. An hour with intervals of one second takes about 40
/// MB.
pub const MAX_RECORDING_BYTES: u64 = 1 << 30;

/// The longest valid time: about three thousand years.
const MAX_SECONDS: f64 = 1e11;

/// The reason why a file or text cannot be read as a recording. It has no source, because its text
/// includes the source's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Reading from the file or reader failed.
    #[error("{0}")]
    Io(io::Error),
    /// The recording has more than [`MAX_RECORDING_BYTES`] bytes.
    #[error("it has more than {} MiB, which is the limit: record with longer intervals (--interval)", MAX_RECORDING_BYTES >> 20)]
    TooLarge,
    /// The text is not a recording, for this reason.
    #[error("it is not a recording of annulus load, as `annulus load --json FILE` writes it ({0})")]
    NotOurs(String),
    /// The recording has this version of the format, which this annulus cannot read.
    #[error(
        "it is version {0} of the format {FORMAT_NAME}, but annulus {version} reads only version \
         {FORMAT_VERSION}: read it with the annulus that wrote it, or record again",
        version = env!("CARGO_PKG_VERSION")
    )]
    Version(u64),
    /// The recording ends too early.
    #[error("it is truncated: the disk was full, or the run was killed while writing it")]
    Cut,
    /// The text claims to be a recording, but contains this error.
    #[error("it is not a valid recording: {0}")]
    InvalidValue(String),
}

/// A recording as it is written: the figures for readers of the file come first.
#[derive(Serialize)]
struct WrittenRecording<'a> {
    format: &'static str,
    version: u64,
    #[serde(flatten)]
    summary: Summary,
    client_cpu_share: f64,
    by_class: Vec<ClassSummary>,
    #[serde(flatten)]
    recording: &'a Recording,
}

/// The format and version that a file claims to have.
#[derive(Deserialize)]
struct FormatHeader {
    format: Option<String>,
    version: Option<u64>,
}

impl Recording {
    /// Writes the recording as JSON with a newline at the end.
    ///
    /// # Errors
    /// Fails if the writer fails.
    pub fn write(&self, mut writer: impl Write) -> io::Result<()> {
        let written = WrittenRecording {
            format: FORMAT_NAME,
            version: FORMAT_VERSION,
            summary: self.summary(),
            client_cpu_share: self.cpu_share(),
            by_class: self.class_summaries(),
            recording: self,
        };
        serde_json::to_writer(&mut writer, &written)?;
        writer.write_all(b"\n")
    }

    /// Reads a recording from JSON.
    ///
    /// # Errors
    /// Fails if the reader fails, or if the text is not a valid recording: see [`ReadError`].
    pub fn read(reader: impl Read) -> Result<Recording, ReadError> {
        let mut bytes = Vec::new();
        reader.take(MAX_RECORDING_BYTES + 1).read_to_end(&mut bytes).map_err(ReadError::Io)?;
        if bytes.len() as u64 > MAX_RECORDING_BYTES {
            return Err(ReadError::TooLarge);
        }
        let head = serde_json::from_slice::<FormatHeader>(&bytes)
            .map_err(|error| explain_head(&bytes, error))?;
        match (head.format.as_deref(), head.version) {
            (Some(FORMAT_NAME), Some(FORMAT_VERSION)) => {}
            (Some(FORMAT_NAME), Some(version)) => return Err(ReadError::Version(version)),
            (Some(FORMAT_NAME), None) => {
                return Err(ReadError::InvalidValue("it has no version".into()));
            }
            _ => return Err(ReadError::NotOurs(format!("no \"format\": \"{FORMAT_NAME}\""))),
        }
        let recording = serde_json::from_slice::<Recording>(&bytes);
        let recording = recording.map_err(|error| ReadError::InvalidValue(error.to_string()))?;
        recording.check()?;
        Ok(recording)
    }

    /// Reads a recording from a file.
    ///
    /// # Errors
    /// Fails like [`Recording::read`]. A file that is too large is not read at all.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, ReadError> {
        let file = File::open(path).map_err(ReadError::Io)?;
        if file.metadata().is_ok_and(|metadata| metadata.len() > MAX_RECORDING_BYTES) {
            return Err(ReadError::TooLarge);
        }
        Recording::read(file)
    }

    /// Checks the values for what their types do not guarantee.
    ///
    /// # Errors
    /// Fails with [`ReadError::InvalidValue`] if a time is out of range, if the intervals do not
    /// follow each other, or if an interval has another number of classes than the recording.
    pub fn check(&self) -> Result<(), ReadError> {
        let Recording { classes, intervals, .. } = self;
        let wrong = |what: String| Err(ReadError::InvalidValue(what));
        if let Some((name, time)) =
            self.times().into_iter().find(|(_, time)| !(0.0..=MAX_SECONDS).contains(time))
        {
            return wrong(format!(
                "its {name} is {time} s, but a time must be from 0 to {MAX_SECONDS} s"
            ));
        }
        let mut end = 0.0;
        for (number, interval) in intervals.iter().enumerate() {
            let Interval { start, length, .. } = *interval;
            // Starts are multiples of the length, to the precision of a float.
            if length <= 0.0 || start < end - length / 2.0 || interval.end() > MAX_SECONDS {
                return wrong(format!(
                    "interval {number} of {length} s starts at {start} s, but the one before ends \
                     at {end} s"
                ));
            }
            if !interval.classes.is_empty() && interval.classes.len() != classes.len() {
                let count = interval.classes.len();
                return wrong(format!(
                    "interval {number} has {count} classes instead of {}",
                    classes.len()
                ));
            }
            end = interval.end();
        }
        Ok(())
    }

    /// Returns the times that do not belong to an interval, with their names.
    fn times(&self) -> [(&'static str, f64); 5] {
        let run = &self.run;
        [
            ("measured time", self.seconds),
            ("CPU time", self.cpu_seconds),
            ("start", run.started),
            ("interval", run.interval),
            ("planned time", run.duration),
        ]
    }
}

/// Explains why the format and version cannot be read.
fn explain_head(bytes: &[u8], error: serde_json::Error) -> ReadError {
    let is_json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    // If the text ends within a number, such as `1.`, the parser does not report the end of input.
    let is_cut = error.classify() == Category::Eof
        || bytes.last().is_some_and(|byte| b".eE+-".contains(byte));
    match is_cut {
        true if is_json => ReadError::Cut,
        true if bytes.is_empty() => ReadError::NotOurs("it is empty".into()),
        _ => ReadError::NotOurs(error.to_string()),
    }
}
