//! Output: results go to a file or (as `-`) to standard output, messages to standard error.
//! Nothing here panics when a stream is closed, full, or a pipe without a reader.

use annulus_lab::UsageError;
use anyhow::{Context, Result};
use clap::builder::{MapValueParser, OsStringValueParser, TypedValueParser, ValueParserFactory};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Where to write results, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Stdout,
    File(PathBuf),
}

/// An opened target. It is opened before the work starts, so that a bad path is reported early. A
/// file keeps its old contents until the results are written.
#[derive(Debug)]
pub(crate) struct JsonFile {
    /// `None` for standard output.
    file: Option<OpenedFile>,
}

#[derive(Debug)]
struct OpenedFile {
    path: PathBuf,
    file: File,
    /// Whether dropping this removes the file: it did not exist before, and has no results yet.
    removes_on_drop: bool,
}

impl Target {
    /// Opens the target, and creates a missing file.
    pub(crate) fn open(self) -> Result<JsonFile, UsageError> {
        let Target::File(path) = self else { return Ok(JsonFile { file: None }) };
        let (file, is_new) = open_or_create(&path).map_err(|error| {
            UsageError(format!(
                "cannot write {}: choose another file, or - for standard output: {error}",
                path.display()
            ))
        })?;
        Ok(JsonFile { file: Some(OpenedFile { path, file, removes_on_drop: is_new }) })
    }
}

/// Opens a file to write to it, without truncating it. Returns true with a file that did not exist.
fn open_or_create(path: &Path) -> io::Result<(File, bool)> {
    match File::options().write(true).create_new(true).open(path) {
        // The path may be a dangling link, whose target must be created.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let opened = File::options().write(true).create(true).truncate(false).open(path);
            opened.map(|file| (file, false))
        }
        created => created.map(|file| (file, true)),
    }
}

impl OpenedFile {
    /// Replaces the contents of a regular file. Anything else is written to as it is.
    fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        write(&mut self.file)?;
        self.removes_on_drop = false;
        Ok(())
    }
}

impl Drop for OpenedFile {
    fn drop(&mut self) {
        if self.removes_on_drop {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl ValueParserFactory for Target {
    type Parser = MapValueParser<OsStringValueParser, fn(OsString) -> Target>;

    fn value_parser() -> Self::Parser {
        let target =
            |text| if text == "-" { Target::Stdout } else { Target::File(PathBuf::from(text)) };
        OsStringValueParser::new().map(target)
    }
}

impl JsonFile {
    /// Returns true if this is standard output, which must then carry nothing else.
    pub(crate) fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    /// Calls `write` with a buffered writer and flushes it.
    fn write_with(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let flushed = |mut writer: BufWriter<&mut dyn Write>| {
            write(&mut writer).and_then(|()| writer.flush())
        };
        match self.file {
            Some(mut opened) => opened
                .write(|file| flushed(BufWriter::new(file)))
                .with_context(|| format!("cannot write {}", opened.path.display())),
            None => check_print(flushed(BufWriter::new(&mut Waiting(io::stdout().lock())))),
        }
    }
}

/// Prints the text, if any, and writes the result as JSON if requested. The text is left out when
/// the JSON goes to standard output.
pub(crate) fn deliver(
    json: Option<JsonFile>,
    result: &impl Serialize,
    text: Option<String>,
) -> Result<()> {
    let write = |writer: &mut dyn Write| {
        serde_json::to_writer_pretty(&mut *writer, result)?;
        writer.write_all(b"\n")
    };
    deliver_with(json, write, text)
}

/// Like [`deliver`], for a comparison, whose exit status 1 means that something is worse: a failure
/// has the exit status of a usage error.
pub(crate) fn deliver_comparison(
    json: Option<JsonFile>,
    result: &impl Serialize,
    text: String,
) -> Result<()> {
    deliver(json, result, Some(text)).map_err(|error| match error.is::<StdoutClosed>() {
        true => error,
        false => UsageError(format!("{error:#}")).into(),
    })
}

/// Like [`deliver`], but `write` writes the result.
pub(crate) fn deliver_with(
    json: Option<JsonFile>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    text: Option<String>,
) -> Result<()> {
    let occupied = json.as_ref().is_some_and(JsonFile::is_stdout);
    if let Some(text) = text.filter(|_| !occupied) {
        print(&text)?;
    }
    json.map_or(Ok(()), |json| json.write_with(write))
}

/// A standard stream that waits for space. Another program that shares the stream may have made it
/// non-blocking.
struct Waiting<W>(W);

impl<W: Write + AsFd> Waiting<W> {
    fn until_done<T>(&mut self, mut call: impl FnMut(&mut W) -> io::Result<T>) -> io::Result<T> {
        loop {
            match call(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            match poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

// If a write or flush of the standard library fails, none of these bytes have been written, and the
// bytes in its buffer are kept. So repeating the call loses and duplicates nothing.
impl<W: Write + AsFd> Write for Waiting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_done(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.until_done(Write::flush)
    }
}

/// The error for a standard output that is a pipe without a reader: the program ends without a
/// message.
#[derive(Debug)]
pub(crate) struct StdoutClosed;

impl Display for StdoutClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is a pipe without a reader")
    }
}

impl std::error::Error for StdoutClosed {}

/// Writes to standard output.
///
/// # Errors
/// [`StdoutClosed`], or any other write error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = Waiting(io::stdout().lock());
    check_print(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Writes clap's output, with colours if the stream is a terminal: help to standard output, errors
/// to standard error.
pub(crate) fn print_clap(said: &clap::Error) -> io::Result<()> {
    let colored = |is_terminal: bool| is_terminal && std::env::var_os("NO_COLOR").is_none();
    let text = |colors: bool| match colors {
        true => said.render().ansi().to_string(),
        false => said.render().to_string(),
    };
    if said.use_stderr() {
        let mut stderr = Waiting(io::stderr());
        return stderr.write_all(text(colored(stderr.0.is_terminal())).as_bytes());
    }
    let mut stdout = Waiting(io::stdout().lock());
    stdout.write_all(text(colored(stdout.0.is_terminal())).as_bytes())?;
    stdout.flush()
}

/// Converts the result of a write to standard output: a broken pipe becomes [`StdoutClosed`].
pub(crate) fn check_print(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(StdoutClosed.into()),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes a line to standard error. Failures are ignored, because they cannot be reported.
pub(crate) fn note(line: impl Display) {
    let _ = Waiting(io::stderr()).write_all(format!("{line}\n").as_bytes());
}
