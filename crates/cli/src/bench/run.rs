//! Carrying a bench out: one at a time on a machine, with progress, an orderly stop, and a place for the results.

use crate::bench::results;
use crate::output::{self, Target, note};
use annulus_lab::bench::{Observer, Prepared, Report};
use annulus_lab::interrupt::{INTERRUPTED, Interrupt};
use annulus_lab::lock::Lock;
use annulus_lab::peer::Peers;
use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::env;
use std::fs;
use std::process::ExitCode;

/// What the first ctrl-C is answered with.
const STOPPING: &str = "annulus: stopping after this slice; once more stops at once";

/// What every bench takes.
#[derive(Args, Debug)]
pub(super) struct OutputArgs {
    /// Write everything as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    pub(super) json: Option<Target>,
    /// Decides the order of slices, what is sent, and the intervals
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
}

/// Takes the machine's lock, measures, and prints what came out.
pub(super) fn carry_out(
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

/// As [`carry_out`], with the tables that every bench has.
pub(super) fn compare(
    json: Option<Target>,
    prepare: impl FnOnce() -> Result<Prepared>,
) -> Result<ExitCode> {
    carry_out(json, prepare, results::of_report)
}

/// The peers of the directory `peers` here or above.
pub(super) fn peers() -> Option<Peers> {
    let peers = env::current_dir().ok().and_then(|here| Peers::find(&here))?;
    Some(peers.announcing(|name| note(format_args!("annulus: building peer {name}"))))
}

/// The only run on the machine, and a place for its results that can be written.
#[derive(Debug)]
pub(super) struct RunLock {
    _lock: Lock,
    interrupt: Interrupt,
    json: Option<Target>,
}

impl RunLock {
    /// Takes the machine's lock. A path that cannot be written shows here, before the work and not after it.
    pub(super) fn take(json: Option<Target>) -> Result<RunLock> {
        let lock = Lock::take()?;
        json.clone().map(Target::open).transpose()?;
        let interrupt = Interrupt::install(|| note(STOPPING)).context("cannot watch for ctrl-C")?;
        Ok(RunLock { _lock: lock, interrupt, json })
    }

    /// Measures, and saves on the way what `result` makes of the report so far.
    pub(super) fn measure<R: Serialize>(
        &self,
        prepared: Prepared,
        result: impl Fn(&Report) -> R,
    ) -> Result<Report> {
        let bar = bar(prepared.bench.planned());
        prepared.run(&mut Progress { lock: self, bar, result })
    }

    /// Writes the result: as text, and as JSON if that was asked for.
    pub(super) fn deliver(
        &self,
        result: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        let json = self.json.clone().map(Target::open).transpose()?;
        output::deliver(json, result, Some(text()))
    }

    /// The exit status of a run without a failure.
    pub(super) fn status(&self) -> ExitCode {
        ExitCode::from(if self.interrupt.is_asked() { INTERRUPTED } else { 0 })
    }
}

/// A run under way.
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

    /// That this fails is told at the end, when it matters.
    fn save(&mut self, report: &Report) {
        if let Some(Target::File(path)) = &self.lock.json {
            let result = (self.result)(report);
            drop(serde_json::to_vec_pretty(&result).map(|json| fs::write(path, json)));
        }
    }

    fn is_stopped(&self) -> bool {
        self.lock.interrupt.is_asked()
    }
}

impl<F> Drop for Progress<'_, F> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Progress on a terminal; nothing if standard error is none. It is drawn between slices only.
fn bar(slices: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(slices as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} slice {pos} of {len}, {eta} left");
    bar.with_style(style.expect("a template that is a constant"))
}
