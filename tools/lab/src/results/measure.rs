//! Measures into a file, from the start or from where an earlier run was interrupted.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::Results;
use super::header::{DirectoryPlaceholders, Header, difference, without_port};
use super::log::{Line, Log};
use crate::bench::{Bench, Observer, Outcome, Prepared, Record, Slice};
use crate::describe::{Load, Setup};
use crate::environment::now;
use crate::process::Spec;
use crate::scratch::Scratch;
use crate::suite;
use crate::usage_error::UsageError;

/// Measures, and writes every slice to the file as soon as it is measured. If the file exists, the
/// run is resumed: slices in the file are not measured again, and if the run is finished, its
/// results are returned.
///
/// # Errors
/// If the file belongs to another definition or another machine, is unfinished and compressed, or
/// cannot be read or written; and the errors of [`Prepared::resume`].
pub fn measure(
    prepared: Prepared,
    suite: Option<suite::SuiteRun>,
    path: &Path,
    observer: &mut dyn Observer,
) -> Result<Results> {
    let places = DirectoryPlaceholders::new(prepared.scratch.as_ref().map(Scratch::path));
    let header = Header::new(&prepared, suite, &places);
    let (log, record, header) = if path.exists() {
        let results = Results::read(path)?;
        refuse(&results, results.header.difference(&header))?;
        if results.is_finished() {
            return Ok(results);
        }
        if path.extension().is_some_and(|extension| extension == "gz") {
            let path = path.display();
            let text =
                format!("{path} is compressed and unfinished: decompress it to resume the run");
            return Err(UsageError(text).into());
        }
        (Log::resume(&results, places)?, results.record, results.header)
    } else {
        (Log::create(path, &header, places)?, Record::new(), header)
    };
    let mut keeping = LoggingObserver { log, observer };
    let report = prepared.resume(record, &header.environment, &mut keeping)?;
    if !report.memory.is_empty() {
        keeping.log.append(&Line::Memory(report.memory))?;
    }
    if !keeping.observer.is_stopped() {
        keeping.log.append(&Line::Finished(now()))?;
    }
    Results::read(path)
}

impl Results {
    /// Checks that these are results of this comparison, as far as that is known before anything is
    /// built or started.
    ///
    /// # Errors
    /// If they are not; the error contains the first difference with both values.
    pub fn check_same_run(&self, setup: &Setup) -> Result<(), UsageError> {
        let Bench { plan, contenders, cells, terms, parameters, sweep, .. } = &self.header.bench;
        // `specs` lacks the contenders that were missing when the run began.
        let specs = &contenders.specs;
        let mut setup = setup.clone();
        let is_there = |load: &&Load| contenders.missing.is_empty() || cells.contains(&load.cell);
        let loads: Vec<Load> = setup.loads.iter().filter(is_there).cloned().collect();
        setup.leave_out(&contenders.absent, &loads);
        let places = DirectoryPlaceholders::new(None);
        let lines = setup.contenders.iter().map(|one| {
            let spec = specs.iter().find(|spec| spec.name == one.name);
            let command = spec.map(Spec::command).unwrap_or_default();
            let program = command.get(one.words("").len() - 1 - one.arguments().len());
            let words = one.words(program.map_or("", String::as_str));
            words.iter().map(|word| places.shortened(&without_port(word))).collect::<Vec<_>>()
        });
        let asked = json!({
            "bench": setup.plan(),
            "sweep": setup.sweep,
            "contenders": setup.names(),
            "commands": lines.collect::<Vec<_>>(),
            "cells": loads.iter().map(|load| &load.cell).collect::<Vec<_>>(),
            "terms": setup.shown.terms,
            "loads": loads.iter().map(|load| places.shortened(&load.client.words().join(" ")))
                .filter(|command| !command.is_empty()).collect::<Vec<_>>(),
        });
        let kept = json!({
            "bench": plan,
            "sweep": sweep,
            "contenders": specs.iter().map(|spec| &spec.name).collect::<Vec<_>>(),
            "commands": specs.iter().map(Spec::command).collect::<Vec<_>>(),
            "cells": cells,
            "terms": terms,
            "loads": parameters.get("loads").unwrap_or(&json!([])),
        });
        refuse(self, difference("", &kept, &asked))
    }
}

/// Refuses results that differ from the requested run.
fn refuse(results: &Results, difference: Option<String>) -> Result<(), UsageError> {
    let path = results.path.display();
    let error = |difference| {
        UsageError(format!(
            "{path} has the results of another run: {difference}; repeat that run, or choose another --out"
        ))
    };
    difference.map_or(Ok(()), |difference| Err(error(difference)))
}

/// Writes each slice to the log, and passes everything else to another observer.
struct LoggingObserver<'a> {
    log: Log,
    observer: &'a mut dyn Observer,
}

impl Observer for LoggingObserver<'_> {
    fn progress(&mut self, done: usize, planned: usize) {
        self.observer.progress(done, planned);
    }

    fn answer(&mut self, so_far: String) {
        self.observer.answer(so_far);
    }

    fn keep(&mut self, slice: Slice, outcome: &Outcome) -> Result<()> {
        self.log.slice(slice, outcome)
    }

    fn is_stopped(&self) -> bool {
        self.observer.is_stopped()
    }
}
