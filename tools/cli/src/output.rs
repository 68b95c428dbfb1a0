//! Output: results to a file, or to standard output as `-`; messages to standard error.
//!
//! No function panics: a stream may be closed, full, or a pipe without a reader.

use anyhow::{Context, Result};
use clap::builder::{MapValueParser, OsStringValueParser, TypedValueParser, ValueParserFactory};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

/// A place for results, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Stdout,
    File(PathBuf),
}

/// An open target, so that a wrong path is reported before the work, not afterwards.
#[derive(Debug)]
pub(crate) struct JsonFile {
    /// The path and the file; none for standard output.
    file: Option<(PathBuf, File)>,
}

impl Target {
    /// Opens the target; truncates a file.
    pub(crate) fn open(self) -> Result<JsonFile> {
        let Target::File(path) = self else { return Ok(JsonFile { file: None }) };
        let file = File::create(&path).with_context(|| {
            format!(
                "cannot write {}: choose another file, or - for standard output",
                path.display()
            )
        })?;
        Ok(JsonFile { file: Some((path, file)) })
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
    /// Whether this is standard output, where no other output may follow.
    pub(crate) fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    /// Writes what `write` writes.
    fn write_with(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let flushed = |mut writer: BufWriter<&mut dyn Write>| {
            write(&mut writer).and_then(|()| writer.flush())
        };
        match self.file {
            Some((path, mut file)) => flushed(BufWriter::new(&mut file))
                .with_context(|| format!("cannot write {}", path.display())),
            None => check_print(flushed(BufWriter::new(&mut Waiting(io::stdout().lock())))),
        }
    }
}

/// Writes a result: as text, if there is any, and as JSON if requested.
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

/// Writes a result: as text, if there is any, and by `write` if requested.
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

/// A standard stream that waits for space. The file may be non-blocking, because it is shared with a program that made it so.
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

// A write or a flush of the standard library that fails has taken none of these bytes, and keeps those that it has buffered.
impl<W: Write + AsFd> Write for Waiting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_done(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.until_done(Write::flush)
    }
}

/// Standard output is a pipe without a reader: the program ends without a message.
#[derive(Debug)]
pub(crate) struct StdoutClosed;

impl Display for StdoutClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is a pipe that is no longer read")
    }
}

impl std::error::Error for StdoutClosed {}

/// Writes to standard output.
///
/// # Errors
/// [`StdoutClosed`], or another error of writing.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = Waiting(io::stdout().lock());
    check_print(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Writes what clap says, with colors if the stream is a terminal: help to standard output, and mistakes to standard error.
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

/// Explains why standard output could not be written to.
pub(crate) fn check_print(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(StdoutClosed.into()),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes a line to standard error. A failure cannot be reported, and does not stop the program.
pub(crate) fn note(line: impl Display) {
    let _ = Waiting(io::stderr()).write_all(format!("{line}\n").as_bytes());
}
