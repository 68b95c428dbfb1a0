//! The suite of file I/O.

use super::Run;
use super::plan::every;
use super::report::{Answers, Report};
use crate::bench::field::Field;
use crate::bench::file::contenders::{self, Conditions};
use crate::bench::file::room;
use crate::bench::session::{Desk, Purpose, Session};
use annulus::DriverChoice;
use annulus::fs::Policy;
use annulus_lab::contest::Rig;
use annulus_lab::file::{Burst, Cost, Cycles, Report as Comparison, Settings};
use annulus_lab::record::Record;
use annulus_lab::scratch::Scratch;
use annulus_lab::suite::{Figure, Question};
use anyhow::{Context, Result};
use std::env;
use std::path::Path;
use std::time::Duration;

/// About what a cycle takes, and a byte of it: for knowing how much fits a quick run.
const CYCLE: Duration = Duration::from_micros(5);
const BYTES_A_SECOND: f64 = 2e9;

pub(super) fn measure(run: &Run<'_>, desk: &Desk) -> Result<Report> {
    let mut answers = Answers::default();
    let dir = env::temp_dir();
    let cells = every(run.suite, |question| cell(question).into_iter().collect());
    cells.iter().try_for_each(|cell| room::check_cycles(*cell, &dir))?;
    let scratch = Scratch::within(&dir).context("cannot make a folder: set TMPDIR elsewhere")?;
    let field = contenders::field(&run.contenders(&mut answers), conditions(run), scratch.path())?;
    field.missing.iter().for_each(|why| answers.note(why.clone()));
    let cells = run.plan.thin(cells, field.specs.len() + 1, cost, &mut answers);
    let settings = settings(run, &field, &dir)?;
    answers.note(format!("on {}; TMPDIR names another place", settings.terms.file_system));
    let mut rig = Rig::start(&field.specs, &cells, Duration::ZERO)?;
    let mut session = run.session(&field.names(), &cells);
    let files = Files { run, answers, settings };
    session.measure(desk, &mut rig, &files);
    drop(rig);
    scratch.remove().context("cannot remove the files")?;
    Ok(files.report(&session))
}

fn conditions(run: &Run<'_>) -> Conditions {
    let (driver, policy) = (DriverChoice::Auto, Policy::default());
    Conditions { driver, policy, core: run.plan.cores.server, land: None }
}

fn cell(question: &Question) -> Option<Cycles> {
    let (workers, bytes) = (question.clients? as u64, question.bytes? as u64);
    Some(Cycles { workers, cycles: question.cycles?, bytes })
}

fn cost(cell: &Cycles) -> Duration {
    let cycles = (cell.workers * cell.cycles) as f64;
    CYCLE.mul_f64(cycles) + Duration::from_secs_f64(cycles * cell.bytes as f64 / BYTES_A_SECOND)
}

/// What a report needs beside the slices.
struct Files<'a> {
    run: &'a Run<'a>,
    /// What is known before anything is measured.
    answers: Answers,
    settings: Settings,
}

impl Purpose<Cycles, Burst> for Files<'_> {
    type Report = Report;

    fn report(&self, session: &Session<Cycles, Burst>) -> Report {
        let (record, settings) = (session.record(), self.settings.clone());
        let environment = &self.run.environment;
        let comparison = Comparison::new(record, settings, environment, session.interrupted());
        let answers = self.answers.clone();
        self.run.conclude(answers, &comparison, |question, server| figure(record, question, server))
    }
}

fn figure(record: &Record<Cycles, Burst>, question: &Question, server: &str) -> Option<f64> {
    let cell = record.cells().iter().position(|known| Some(*known) == cell(question))?;
    let server = record.servers().iter().position(|name| name == server)?;
    match question.figure {
        Figure::CpuSeconds => record.median(Cost::Cpu, server, cell),
        Figure::RealSeconds => record.median(Cost::Real, server, cell),
        _ => None,
    }
}

fn settings(run: &Run<'_>, field: &Field, dir: &Path) -> Result<Settings> {
    let terms = conditions(run).terms(dir)?;
    Ok(field.settings(&format!("suite {}", run.name), run.plan.rounds(), run.plan.seed, terms))
}
