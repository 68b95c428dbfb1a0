//! Where results go: a file, or standard output as `-`.

use anyhow::{Context, Result};
use serde::Serialize;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

/// What was written on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Stdout,
    File(PathBuf),
}

/// A target that is open, so that a wrong path shows before the work and not after it.
#[derive(Debug)]
pub(crate) struct Sheet {
    target: Target,
    file: Option<File>,
}

impl Target {
    /// Opens it, emptying a file.
    pub(crate) fn open(self) -> Result<Sheet> {
        let file = match &self {
            Target::Stdout => None,
            Target::File(path) => Some(File::create(path).with_context(|| {
                format!(
                    "cannot write {}: choose another file, or - for standard output",
                    path.display()
                )
            })?),
        };
        Ok(Sheet { target: self, file })
    }
}

impl FromStr for Target {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Target, Infallible> {
        Ok(if text == "-" { Target::Stdout } else { Target::File(text.into()) })
    }
}

impl Sheet {
    /// Whether this is standard output, which then has room for nothing else.
    fn is_stdout(&self) -> bool {
        self.target == Target::Stdout
    }

    /// Writes `value` as JSON, indented, with a line end.
    fn write_json(mut self, value: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()).context("cannot write the JSON file"),
            None => print(&text),
        }
    }
}

/// Hands a result over: as text, if there is any, and as JSON where that was asked for.
pub(crate) fn deliver(
    sheet: Option<Sheet>,
    result: &impl Serialize,
    text: Option<String>,
) -> Result<()> {
    let occupied = sheet.as_ref().is_some_and(Sheet::is_stdout);
    if let Some(text) = text.filter(|_| !occupied) {
        print(&text)?;
    }
    sheet.map_or(Ok(()), |sheet| sheet.write_json(result))
}

/// Writes to standard output; a reader that has gone is an error, not a panic.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}
