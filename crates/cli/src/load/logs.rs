//! Logs that are written while a run lasts: a row or a histogram for each interval.
//!
//! A log that cannot be written does not stop the run: the loss is said at once and counted, and is a failure at the end.

use crate::output::{LogFile, Target, note};
use annulus_load::recording::{CsvLog, HdrLog, Interval};
use anyhow::{Context, Result, anyhow};
use std::io;

/// What a log of intervals is.
enum Format {
    Csv(CsvLog<LogFile>),
    /// Its head has the start of the run, and is written with the first interval.
    HdrWithoutHead(LogFile),
    Hdr(HdrLog<LogFile>),
}

/// A log, and what it lacks.
struct Log {
    name: String,
    /// None after a head that could not be written.
    format: Option<Format>,
    intervals: u64,
    lost: u64,
    error: Option<io::Error>,
}

/// The logs of a run.
#[derive(Default)]
pub(super) struct Logs {
    logs: Vec<Log>,
    /// When measuring began, in seconds since the epoch.
    started: f64,
    /// The command line.
    command: String,
}

impl Logs {
    /// Opens the logs that were asked for, of a run with these classes of requests.
    ///
    /// # Errors
    /// If one cannot be written from the start.
    pub(super) fn open(
        csv: Option<Target>,
        hdr: Option<Target>,
        classes: &[String],
    ) -> Result<Logs> {
        let mut logs = Vec::new();
        if let Some(target) = csv {
            let file = target.open_log()?;
            let name = file.name();
            let log = CsvLog::with_classes(file, classes);
            let log = log.with_context(|| format!("cannot write {name}"))?;
            logs.push(Log::new(name, Format::Csv(log)));
        }
        if let Some(target) = hdr {
            let file = target.open_log()?;
            logs.push(Log::new(file.name(), Format::HdrWithoutHead(file)));
        }
        Ok(Logs { logs, command: command().join(" "), ..Logs::default() })
    }

    /// Measuring begins, at this time since the epoch.
    pub(super) fn start(&mut self, started: f64) {
        self.started = started;
    }

    /// Adds an interval to each.
    pub(super) fn write(&mut self, interval: &Interval) {
        let comments = [self.command.replace('\n', " "), "values in ns".to_owned()];
        for log in &mut self.logs {
            log.write(interval, self.started, &comments);
        }
    }

    /// Fails if a log lacks something.
    pub(super) fn finish(self) -> Result<()> {
        let lacking = self.logs.into_iter().find(|log| log.lost > 0);
        let Some(Log { name, intervals, lost, error, .. }) = lacking else { return Ok(()) };
        let error = error.map_or_else(|| anyhow!("unknown"), anyhow::Error::from);
        Err(error.context(format!("{name} lacks {lost} of {intervals} intervals")))
    }
}

impl Log {
    fn new(name: String, format: Format) -> Log {
        Log { name, format: Some(format), intervals: 0, lost: 0, error: None }
    }

    fn write(&mut self, interval: &Interval, started: f64, comments: &[String]) {
        self.intervals += 1;
        let written = match self.format.take() {
            Some(Format::Csv(mut log)) => {
                let written = log.write(interval);
                let written = log.get_mut().settle(written);
                self.format = Some(Format::Csv(log));
                written
            }
            Some(Format::HdrWithoutHead(file)) => {
                HdrLog::new(file, started, comments).and_then(|log| self.write_hdr(log, interval))
            }
            Some(Format::Hdr(log)) => self.write_hdr(log, interval),
            None => Err(io::Error::other("its head could not be written")),
        };
        let Err(error) = written else { return };
        self.lost += 1;
        if self.error.is_none() {
            note(format_args!("annulus: cannot write {}: {error}; the run goes on", self.name));
            self.error = Some(error);
        }
    }

    fn write_hdr(&mut self, mut log: HdrLog<LogFile>, interval: &Interval) -> io::Result<()> {
        let written = log.write(interval);
        let written = log.get_mut().settle(written);
        self.format = Some(Format::Hdr(log));
        written
    }
}

/// The command line.
pub(super) fn command() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}
