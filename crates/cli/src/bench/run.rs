//! Running a bench: one at a time on a machine, with progress, an orderly stop, and results.

use crate::bench::results;
use crate::output::{self, Target, note};
use annulus_lab::bench::{Observer, Prepared, Report};
use annulus_lab::interrupt::Interrupt;
use annulus_lab::lock::Lock;
use annulus_lab::peer::Peers;
use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::env;
use std::fs;
use std::process::ExitCode;

/// Printed at the first ctrl-C.
const STOPPING: &str = "annulus: stopping after this slice; once more stops at once";

/// Options of every bench.
#[derive(Args, Debug)]
pub(crate) struct OutputArgs {
    /// Write everything as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Target>,
    /// The seed of the order of slices and of the payload
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Takes the machine's lock, measures, and prints the report.
pub(crate) fn carry_out(
    json: Option<Target>,
    prepare: impl FnOnce() -> Result<Prepared>,
    text: impl FnOnce(&Report) -> String,
) -> Result<ExitCode> {
    let lock = RunLock::take(json)?;
    let prepared = prepare()?;
    prepared.bench.contenders.missing.iter().for_each(|why| note(format_args!("annulus: {why}")));
    let report = lock.measure(prepared, Report::clone)?;
    lock.deliver(&report, || text(&report))?;
    match report.failures().next() {
        Some(failure) => bail!(failure),
        None => Ok(lock.status()),
    }
}

/// As [`carry_out`], with the usual tables.
pub(crate) fn compare(
    json: Option<Target>,
    prepare: impl FnOnce() -> Result<Prepared>,
) -> Result<ExitCode> {
    carry_out(json, prepare, results::of_report)
}

/// The peers of the directory `peers` here or above.
pub(crate) fn peers() -> Option<Peers> {
    let peers = env::current_dir().ok().and_then(|here| Peers::find(&here))?;
    Some(peers.announcing(|name| note(format_args!("annulus: building peer {name}"))))
}

/// A run that holds the machine's lock and has a writable place for its results.
#[derive(Debug)]
pub(crate) struct RunLock {
    _lock: Lock,
    interrupt: Interrupt,
    json: Option<Target>,
}

impl RunLock {
    /// Takes the machine's lock. An unwritable path is reported before the measurement.
    pub(crate) fn take(json: Option<Target>) -> Result<RunLock> {
        let lock = Lock::take()?;
        json.clone().map(Target::open).transpose()?;
        let interrupt = Interrupt::install(|| note(STOPPING)).context("cannot watch for ctrl-C")?;
        Ok(RunLock { _lock: lock, interrupt, json })
    }

    /// Measures; meanwhile saves the results so far, as converted by `result`.
    pub(crate) fn measure<R: Serialize>(
        &self,
        prepared: Prepared,
        result: impl Fn(&Report) -> R,
    ) -> Result<Report> {
        let bar = bar(prepared.bench.planned());
        prepared.run(&mut Progress { lock: self, bar, result })
    }

    /// Writes the result: as text, and as JSON if requested.
    pub(crate) fn deliver(
        &self,
        result: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        let json = self.json.clone().map(Target::open).transpose()?;
        output::deliver(json, result, Some(text()))
    }

    /// Whether a signal has come.
    pub(crate) fn is_stopped(&self) -> bool {
        self.interrupt.is_asked()
    }

    /// The exit status of a run without failures.
    pub(crate) fn status(&self) -> ExitCode {
        self.interrupt.status().map_or(ExitCode::SUCCESS, ExitCode::from)
    }
}

/// The progress of a run.
struct Progress<'a, F> {
    lock: &'a RunLock,
    bar: ProgressBar,
    result: F,
}

impl<R: Serialize, F: Fn(&Report) -> R> Observer for Progress<'_, F> {
    fn progress(&mut self, done: usize, planned: usize) {
        self.bar.set_length(planned as u64);
        self.bar.set_position(done as u64);
        if done == planned {
            self.bar.finish_and_clear();
        }
    }

    /// A failure to save is reported at the end.
    fn save(&mut self, report: &dyn Fn() -> Report) {
        if let Some(Target::File(path)) = &self.lock.json {
            let result = (self.result)(&report());
            drop(serde_json::to_vec_pretty(&result).map(|json| fs::write(path, json)));
        }
    }

    fn is_stopped(&self) -> bool {
        self.lock.is_stopped()
    }
}

impl<F> Drop for Progress<'_, F> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A progress bar on a terminal; hidden if standard error is none. It is drawn between slices only.
fn bar(slices: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(slices as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} slice {pos} of {len}, {eta} left");
    bar.with_style(style.expect("a template that is a constant"))
}
