//! Measuring into a file, from the start or from where an earlier run was interrupted.

use std::path::Path;

use anyhow::Result;

use super::Results;
use super::header::{Header, Places};
use super::log::{Line, Log, now};
use crate::bench::{Observer, Outcome, Prepared, Record, Slice};
use crate::scratch::Scratch;
use crate::suite;
use crate::usage::UsageError;

/// Measures, and keeps every slice in the file at once. If there is such a file already, it is resumed: what is in it is
/// not measured again, and nothing if it is finished.
///
/// # Errors
/// If the file is of another definition or of another machine, or finished; if it cannot be read or written; and
/// as of [`Prepared::run`].
pub fn measure(
    prepared: Prepared,
    suite: Option<suite::Run>,
    path: &Path,
    observer: &mut dyn Observer,
) -> Result<Results> {
    let places = Places::new(prepared.scratch.as_ref().map(Scratch::path));
    let header = Header::new(&prepared, suite, &places);
    let (log, record, header) = if path.exists() {
        let results = Results::read(path)?;
        check(&results, &header)?;
        if results.is_finished() {
            return Ok(results);
        }
        (Log::resume(&results, places)?, results.record, results.header)
    } else {
        (Log::create(path, &header, places)?, Record::new(), header)
    };
    let mut keeping = Keeping { log, observer };
    let report = prepared.resume(record, &header.environment, &mut keeping)?;
    if !report.memory.is_empty() {
        keeping.log.append(&Line::Memory(report.memory))?;
    }
    if !keeping.observer.is_stopped() {
        keeping.log.append(&Line::Finished(now()))?;
    }
    Results::read(path)
}

/// Checks that a run can go on from these results.
fn check(results: &Results, header: &Header) -> Result<(), UsageError> {
    let path = results.path.display();
    match results.header.difference(header) {
        None => Ok(()),
        Some(difference) => Err(UsageError(format!(
            "{path} is of another run: {difference}; run it as then, or choose another --out"
        ))),
    }
}

/// Writes each slice to the log; everything else is left to another observer.
struct Keeping<'a> {
    log: Log,
    observer: &'a mut dyn Observer,
}

impl Observer for Keeping<'_> {
    fn progress(&mut self, done: usize, planned: usize) {
        self.observer.progress(done, planned);
    }

    fn keep(&mut self, slice: Slice, outcome: &Outcome) -> Result<()> {
        self.log.slice(slice, outcome)
    }

    fn is_stopped(&self) -> bool {
        self.observer.is_stopped()
    }
}
