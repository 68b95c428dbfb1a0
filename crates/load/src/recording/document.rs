//! Recordings as JSON: format `annulus-load`, version 1; the schema is `docs/load-recording.schema.json`.
//!
//! The figures of the summary are written for readers of the file, and are computed again when it is read. A key that is not
//! known is ignored, so that a later annulus can add some without a new version.

use super::{ClassSummary, Interval, Part, ReadError, Recording, RunInfo, Summary};
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::ser::{Formatter, Serializer};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// The name of the format.
pub const FORMAT: &str = "annulus-load";
/// The version of the format that is written, and the only one that is read.
pub const VERSION: u64 = 1;
/// The largest file that is read: 1 GiB. An hour by the second takes some 40 MB.
pub const MAX_BYTES: u64 = 1 << 30;

/// The largest time: some three thousand years.
const LONGEST: f64 = 1e11;

/// A recording as it is written.
#[derive(Serialize)]
struct Written<'a> {
    format: &'static str,
    version: u64,
    run: &'a RunInfo,
    interrupted: bool,
    seconds: f64,
    #[serde(flatten)]
    summary: Summary,
    errors: &'a BTreeMap<String, u64>,
    first_error: &'a Option<String>,
    cpu_seconds: f64,
    client_cpu_share: f64,
    doubts: &'a [String],
    parts: &'a [Part],
    classes: &'a [String],
    by_class: Vec<ClassSummary>,
    intervals: &'a [Interval],
}

/// What a file says that it is.
#[derive(Deserialize)]
struct Head {
    format: Option<String>,
    version: Option<u64>,
}

/// The part of a file that is not computed.
#[derive(Deserialize)]
struct Document {
    run: RunInfo,
    interrupted: bool,
    seconds: f64,
    errors: BTreeMap<String, u64>,
    first_error: Option<String>,
    cpu_seconds: f64,
    doubts: Vec<String>,
    #[serde(default)]
    parts: Vec<Part>,
    classes: Vec<String>,
    intervals: Vec<Interval>,
}

impl Recording {
    /// Writes it as JSON with a newline at the end: a line for each member and for each interval.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write(&self, mut writer: impl Write) -> io::Result<()> {
        let written = Written {
            format: FORMAT,
            version: VERSION,
            run: &self.run,
            interrupted: self.interrupted,
            seconds: self.seconds,
            summary: self.summary(),
            errors: &self.errors,
            first_error: &self.first_error,
            cpu_seconds: self.cpu_seconds,
            client_cpu_share: self.cpu_share(),
            doubts: &self.doubts,
            parts: &self.parts,
            classes: &self.classes,
            by_class: self.class_summaries(),
            intervals: &self.intervals,
        };
        written.serialize(&mut Serializer::with_formatter(&mut writer, Outline::default()))?;
        writer.write_all(b"\n")
    }

    /// Reads one that was written as JSON.
    ///
    /// # Errors
    /// If the reader fails, or has something else: see [`ReadError`].
    pub fn read(reader: impl Read) -> Result<Recording, ReadError> {
        let mut bytes = Vec::new();
        reader.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(ReadError::Io)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(ReadError::TooLarge);
        }
        let head =
            serde_json::from_slice::<Head>(&bytes).map_err(|error| explain_head(&bytes, error))?;
        match (head.format.as_deref(), head.version) {
            (Some(FORMAT), Some(VERSION)) => {}
            (Some(FORMAT), Some(version)) => return Err(ReadError::Version(version)),
            (Some(FORMAT), None) => return Err(ReadError::Invalid("it has no version".into())),
            _ => return Err(ReadError::NotOurs(format!("no \"format\": \"{FORMAT}\""))),
        }
        let document = serde_json::from_slice::<Document>(&bytes);
        document.map_err(|error| ReadError::Invalid(error.to_string()))?.check()
    }

    /// Reads the recording in a file.
    ///
    /// # Errors
    /// As [`Recording::read`]; a file that is too large is not read at all.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, ReadError> {
        let file = File::open(path).map_err(ReadError::Io)?;
        if file.metadata().is_ok_and(|metadata| metadata.len() > MAX_BYTES) {
            return Err(ReadError::TooLarge);
        }
        Recording::read(file)
    }
}

/// Why these bytes have no head.
fn explain_head(bytes: &[u8], error: serde_json::Error) -> ReadError {
    let is_json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let is_cut = error.classify() == Category::Eof || ends_in_number(bytes, &error);
    match is_cut {
        true if is_json => ReadError::Cut,
        true if bytes.is_empty() => ReadError::NotOurs("it is empty".into()),
        _ => ReadError::NotOurs(error.to_string()),
    }
}

/// Whether the error is at the end, in a number such as `1.`, which is no number yet.
fn ends_in_number(bytes: &[u8], error: &serde_json::Error) -> bool {
    let mut lines = bytes.split(|&byte| byte == b'\n').rev();
    let last = lines.next().unwrap_or_default();
    error.line() == lines.count() + 1
        && error.column() >= last.len()
        && last.last().is_some_and(|byte| b"0123456789.eE+-".contains(byte))
}

impl Document {
    /// Checks what the types do not say.
    fn check(self) -> Result<Recording, ReadError> {
        let Document { classes, intervals, .. } = &self;
        let wrong = |what: String| Err(ReadError::Invalid(what));
        if let Some((name, time)) = self.times().find(|(_, time)| !(0.0..=LONGEST).contains(time)) {
            return wrong(format!("its {name} is {time} s: a time is 0 to {LONGEST} s"));
        }
        let mut end = 0.0;
        for (number, interval) in intervals.iter().enumerate() {
            let Interval { start, length, .. } = *interval;
            // Starts are multiples of the length, to the precision of a float.
            if length <= 0.0 || start < end - length / 2.0 || interval.end() > LONGEST {
                return wrong(format!(
                    "interval {number} of {length} s begins at {start} s, after {end} s"
                ));
            }
            if !interval.classes.is_empty() && interval.classes.len() != classes.len() {
                let count = interval.classes.len();
                return wrong(format!(
                    "interval {number} has {count} of {} classes",
                    classes.len()
                ));
            }
            end = interval.end();
        }
        Ok(self.into())
    }

    /// The times outside of intervals, with their names.
    fn times(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let parts = self.parts.iter().flat_map(|part| {
            [
                ("part's seconds", part.seconds),
                ("part's shift", part.shift),
                ("part's start", part.run.started),
            ]
        });
        let run = &self.run;
        let own = [
            ("measured time", self.seconds),
            ("CPU time", self.cpu_seconds),
            ("start", run.started),
            ("interval", run.interval),
            ("planned time", run.duration),
        ];
        own.into_iter().chain(parts)
    }
}

impl From<Document> for Recording {
    fn from(document: Document) -> Recording {
        Recording {
            run: document.run,
            interrupted: document.interrupted,
            seconds: document.seconds,
            errors: document.errors,
            first_error: document.first_error,
            cpu_seconds: document.cpu_seconds,
            doubts: document.doubts,
            parts: document.parts,
            classes: document.classes,
            intervals: document.intervals,
        }
    }
}

/// A line for each member of the outer two levels; what lies deeper stays in one line.
#[derive(Default)]
struct Outline {
    depth: usize,
    has_value: bool,
}

/// Levels with lines of their own.
const LINED: usize = 2;

impl Outline {
    fn begin<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_value = false;
        writer.write_all(bracket)
    }

    fn end<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        let is_lined = self.depth <= LINED && self.has_value;
        self.depth -= 1;
        if is_lined {
            self.new_line(writer)?;
        }
        self.has_value = true;
        writer.write_all(bracket)
    }

    fn next<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        if self.depth <= LINED { self.new_line(writer) } else { Ok(()) }
    }

    fn new_line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"  "))
    }
}

impl Formatter for Outline {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.next(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.next(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(if self.depth <= LINED { b": " } else { b":" })
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{ClassInterval, Latencies};

    fn recording() -> Recording {
        let class = |sent| ClassInterval { sent, ..ClassInterval::default() };
        let interval = |start, length| Interval {
            sent: 3,
            answered: 2,
            outcomes: BTreeMap::from([("2xx".into(), 2)]),
            response: Latencies::from_iter([5, 1_000_000]),
            classes: vec![class(1), class(2)],
            ..Interval::new(start, length)
        };
        let run = RunInfo { command: vec!["annulus".into(), "load".into()], ..RunInfo::default() };
        Recording {
            seconds: 1.5,
            errors: BTreeMap::from([("reset".into(), 1)]),
            first_error: Some("client 3: reset".into()),
            cpu_seconds: 0.75,
            doubts: vec!["a \"doubt\"\n".into()],
            classes: vec!["read".into(), "write".into()],
            intervals: vec![interval(0.0, 1.0), interval(1.0, 0.5)],
            ..Recording::new(run)
        }
    }

    fn text() -> String {
        let mut text = Vec::new();
        recording().write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn what_was_written_is_read() {
        let text = text();
        assert_eq!(Recording::read(text.as_bytes()).unwrap(), recording());
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["responses"], &value["client_cpu_share"]), (&4.into(), &0.5.into()));
    }

    #[test]
    fn each_interval_is_a_line() {
        let text = text();
        let intervals = text.lines().filter(|line| line.starts_with("    {\"start\":")).count();
        assert_eq!(intervals, 2, "{text}");
        assert!(
            text.starts_with("{\n  \"format\": \"annulus-load\",\n  \"version\": 1,\n"),
            "{text}"
        );
        assert!(text.contains("\n  \"parts\": [],\n") && text.ends_with("\n  ]\n}\n"), "{text}");
    }

    #[test]
    fn a_recording_that_is_cut_anywhere_is_refused_as_such() {
        let text = text();
        for end in 1..text.trim_end().len() {
            let error = Recording::read(&text.as_bytes()[..end]).unwrap_err();
            assert!(matches!(error, ReadError::Cut), "{end}: {error}");
        }
    }

    #[track_caller]
    fn refused(text: &str, part: &str) {
        let error = Recording::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part), "{part} is not in: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }

    #[test]
    fn what_is_no_recording_of_this_version_is_refused() {
        let text = text();
        refused("", "it is empty");
        refused("start,length\n1,2\n", "no recording of annulus load");
        refused("[1, 2]", "no recording of annulus load");
        refused("{}", "no \"format\"");
        refused(
            "{\"format\": \"annulus-bench\", \"version\": 1}",
            "no \"format\": \"annulus-load\"",
        );
        refused(
            &text.replace("\"version\": 1", "\"version\": 2"),
            "version 2 of the format annulus-load",
        );
        refused(&text.replace("  \"version\": 1,\n", ""), "no version");
        refused(&(text.clone() + "x"), "trailing characters");
    }

    #[test]
    fn wrong_values_are_refused_with_their_place() {
        let text = text();
        refused(&text.replace("\"seconds\": 1.5", "\"seconds\": -1"), "its measured time is -1 s");
        refused(&text.replace("\"seconds\": 1.5", "\"seconds\": 1e999"), "out of range");
        refused(
            &text.replace("\"start\":1.0", "\"start\":0.0"),
            "interval 1 of 0.5 s begins at 0 s",
        );
        refused(&text.replace("\"length\":0.5", "\"length\":0"), "interval 1 of 0 s");
        refused(&text.replace("[5,1]", "[5,-1]"), "-1");
        refused(&text.replace("\"sent\":3", "\"send\":3"), "missing field `sent`");
        refused(&text.replace("    \"read\",\n", ""), "interval 0 has 2 of 1 classes");
    }

    /// Reads zeros without an end.
    #[test]
    fn a_file_that_is_too_large_is_refused_without_being_read() {
        let path = std::env::temp_dir().join(format!("annulus-large-{}.json", std::process::id()));
        File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        let error = Recording::open(&path).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(error, ReadError::TooLarge), "{error}");
        assert!(error.to_string().contains("more than 1024 MiB"), "{error}");
    }
}
