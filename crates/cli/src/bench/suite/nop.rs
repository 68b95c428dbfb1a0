//! The suite of NOP throughput.

use super::Run;
use super::plan::every;
use super::report::{Answers, Report};
use crate::bench::field::Field;
use crate::bench::nop::contenders;
use crate::bench::session::{Desk, Purpose, Session};
use annulus_lab::nop::{Burst, Entries, Report as Comparison, Rig, Settings, Speed, Terms};
use annulus_lab::record::Record;
use annulus_lab::suite::{Figure, Question};
use anyhow::Result;
use std::time::Duration;

pub(super) fn measure(run: &Run<'_>, desk: &Desk) -> Result<Report> {
    let mut answers = Answers::default();
    let field = contenders::field(&run.contenders(&mut answers), run.plan.cores.server)?;
    field.missing.iter().for_each(|why| answers.note(why.clone()));
    let slice = Duration::from_millis(if run.plan.quick { 30 } else { 50 });
    let cells = every(run.suite, |question| question.entries.map(Entries).into_iter().collect());
    let cost = |_: &Entries| slice * 6 / 5;
    let cells = run.plan.thin(cells, field.specs.len() + 1, cost, &mut answers);
    let mut rig = Rig::start(&field.specs, &cells, slice)?;
    let mut session = run.session(&field.names(), &cells);
    let nop = Nop { run, answers, settings: settings(run, &field, slice) };
    session.measure(desk, &mut rig, &nop);
    Ok(nop.report(&session))
}

/// What a report needs beside the slices.
struct Nop<'a> {
    run: &'a Run<'a>,
    /// What is known before anything is measured.
    answers: Answers,
    settings: Settings,
}

impl Purpose<Entries, Burst> for Nop<'_> {
    type Report = Report;

    fn report(&self, session: &Session<Entries, Burst>) -> Report {
        let (record, settings) = (session.record(), self.settings.clone());
        let environment = &self.run.environment;
        let comparison = Comparison::new(record, settings, environment, session.interrupted());
        let answers = self.answers.clone();
        self.run.conclude(answers, &comparison, |question, server| figure(record, question, server))
    }
}

fn figure(record: &Record<Entries, Burst>, question: &Question, server: &str) -> Option<f64> {
    let cell = record.cells().iter().position(|cell| Some(cell.0) == question.entries)?;
    let server = record.servers().iter().position(|name| name == server)?;
    match question.figure {
        Figure::Rate => record.median(Speed::Rate, server, cell),
        _ => None,
    }
}

fn settings(run: &Run<'_>, field: &Field, slice: Duration) -> Settings {
    let terms = Terms { seconds: slice.as_secs_f64(), core: run.plan.cores.server };
    field.settings(&format!("suite {}", run.name), run.plan.rounds(), run.plan.seed, terms)
}
