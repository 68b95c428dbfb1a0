//! The log of HdrHistogram that is written while a run lasts: histograms for each interval.
//!
//! A log that cannot be written does not stop the run: the loss is said at once and counted, and is a failure at the end.

use crate::output::{LogFile, Target, note};
use annulus_load::recording::{HdrLog, Interval};
use anyhow::{Result, anyhow};
use std::io;

/// The output of the log, before and after its head is written.
enum Format {
    /// The head has the start of the run, and is written with the first interval.
    WithoutHead(LogFile),
    Begun(HdrLog<LogFile>),
}

/// The log, and what it lacks.
struct Log {
    name: String,
    /// The output; none after a head that could not be written.
    format: Option<Format>,
    intervals: u64,
    lost: u64,
    error: Option<io::Error>,
}

/// The log of a run, if one was asked for.
#[derive(Default)]
pub(super) struct Logs {
    log: Option<Log>,
    /// When measuring began, in seconds since the epoch.
    started: f64,
    /// The command line.
    command: String,
}

impl Logs {
    /// Opens the log that was asked for.
    ///
    /// # Errors
    /// If it cannot be written from the start.
    pub(super) fn open(hdr: Option<Target>) -> Result<Logs> {
        let log = hdr.map(|target| target.open_log().map(Log::new)).transpose()?;
        Ok(Logs { log, command: command().join(" "), ..Logs::default() })
    }

    /// Measuring begins, at this time since the epoch.
    pub(super) fn start(&mut self, started: f64) {
        self.started = started;
    }

    /// Adds an interval.
    pub(super) fn write(&mut self, interval: &Interval) {
        let comments = [self.command.replace('\n', " "), "values in ns".to_owned()];
        if let Some(log) = &mut self.log {
            log.write(interval, self.started, &comments);
        }
    }

    /// Fails if the log lacks something.
    pub(super) fn finish(self) -> Result<()> {
        let lacking = self.log.filter(|log| log.lost > 0);
        let Some(Log { name, intervals, lost, error, .. }) = lacking else { return Ok(()) };
        let error = error.map_or_else(|| anyhow!("unknown"), anyhow::Error::from);
        Err(error.context(format!("{name} lacks {lost} of {intervals} intervals")))
    }
}

impl Log {
    fn new(file: LogFile) -> Log {
        let (name, format) = (file.name(), Some(Format::WithoutHead(file)));
        Log { name, format, intervals: 0, lost: 0, error: None }
    }

    fn write(&mut self, interval: &Interval, started: f64, comments: &[String]) {
        self.intervals += 1;
        let log = match self.format.take() {
            Some(Format::WithoutHead(file)) => HdrLog::new(file, started, comments),
            Some(Format::Begun(log)) => Ok(log),
            None => Err(io::Error::other("its head could not be written")),
        };
        let Err(error) = log.and_then(|log| self.add(log, interval)) else { return };
        self.lost += 1;
        if self.error.is_none() {
            note(format_args!("annulus: cannot write {}: {error}; the run goes on", self.name));
            self.error = Some(error);
        }
    }

    fn add(&mut self, mut log: HdrLog<LogFile>, interval: &Interval) -> io::Result<()> {
        let written = log.write(interval);
        let written = log.get_mut().settle(written);
        self.format = Some(Format::Begun(log));
        written
    }
}

/// The command line.
pub(super) fn command() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}
