//! A run under way, whatever it measures: progress, being asked to stop, and what is saved on the way.

pub(super) use super::run::RunLock as Desk;
use crate::output::Target;
use annulus_lab::doubt::Doubt;
use annulus_lab::record::{Outcome, Record};
use annulus_lab::schedule::{Keep, Measure, Schedule, Visit};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::fs;
use std::ops::ControlFlow;

/// How many times a run saves what it has on its way.
const SAVES: usize = 10;

impl Desk {
    /// Whether a signal asked to stop.
    fn is_interrupted(&self) -> bool {
        self.interrupt.is_asked()
    }

    /// A run that is killed leaves what it had. That this fails is told at the end, when it matters.
    fn save_on_the_way<R: Serialize>(&self, report: impl FnOnce() -> R) {
        if let Some(Target::File(path)) = &self.json {
            let saved = serde_json::to_vec_pretty(&report()).map(|json| fs::write(path, json));
            drop(saved);
        }
    }
}

/// What a session is for.
pub(super) trait Purpose<C, S> {
    type Report: Serialize;

    /// Sums up what was measured so far.
    fn report(&self, session: &Session<C, S>) -> Self::Report;

    /// Whether a cell that has had its rounds should get another.
    fn wants_more(&self, _record: &Record<C, S>, _cell: usize) -> bool {
        false
    }
}

/// Rounds that every cell gets, and those that one gets at most, where it wants more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    pub(super) least: usize,
    pub(super) most: usize,
}

/// What is measured, and what came of it so far.
#[derive(Debug)]
pub(super) struct Session<C, S> {
    schedule: Schedule,
    record: Record<C, S>,
    bar: ProgressBar,
}

impl<C: Clone, S> Session<C, S> {
    /// Every server of these names, and the first a second time, in every cell.
    pub(super) fn new(names: &[String], cells: &[C], rounds: Rounds, seed: u64) -> Session<C, S> {
        let record = Record::new(names, cells, seed);
        let servers = record.servers().len();
        let Rounds { least, most } = rounds;
        let schedule = Schedule { servers, cells: cells.len(), rounds: least, most, seed };
        Session { schedule, record, bar: bar(schedule.slices()) }
    }

    /// Visits them all, until somebody asks to stop. However that ends, what there is can be reported.
    pub(super) fn measure(
        &mut self,
        desk: &Desk,
        rig: &mut impl Measure<S>,
        purpose: &impl Purpose<C, S>,
    ) {
        let schedule = self.schedule;
        let _ = schedule.run(rig, &mut Keeper { session: self, desk, purpose });
        self.bar.finish_and_clear();
    }

    pub(super) fn record(&self) -> &Record<C, S> {
        &self.record
    }

    /// The doubt about a run that was broken off.
    pub(super) fn interrupted<D>(&self) -> Option<Doubt<D>> {
        let (done, planned) = (self.record.slices().len(), self.schedule.slices());
        (done < planned).then_some(Doubt::Interrupted { done, planned })
    }
}

/// Keeps each outcome, and saves now and then.
struct Keeper<'a, C, S, P> {
    session: &'a mut Session<C, S>,
    desk: &'a Desk,
    purpose: &'a P,
}

impl<C: Clone, S, P: Purpose<C, S>> Keep<S> for Keeper<'_, C, S, P> {
    fn keep(&mut self, visit: Visit, outcome: Outcome<S>) -> ControlFlow<()> {
        let Session { schedule, record, bar } = &mut *self.session;
        record.keep(visit, outcome);
        let done = record.slices().len();
        // Rounds beyond those planned make the way longer.
        bar.set_length(done.max(schedule.slices()) as u64);
        bar.inc(1);
        if done.is_multiple_of(schedule.slices().div_ceil(SAVES)) {
            self.desk.save_on_the_way(|| self.purpose.report(self.session));
        }
        if self.desk.is_interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn wants_more(&self, cell: usize) -> bool {
        self.purpose.wants_more(&self.session.record, cell)
    }
}

/// Progress on a terminal; nothing where standard error is none. It is drawn between slices only.
fn bar(slices: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(slices as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} slice {pos} of {len}, {eta} left");
    bar.with_style(style.expect("a template that is a constant"))
}
