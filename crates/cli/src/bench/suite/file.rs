//! The suite of file I/O.

use super::Run;
use super::plan::every;
use super::report::{Answers, Report};
use crate::bench::file::contenders::{Conditions, Field};
use crate::bench::file::room;
use crate::bench::session::{Desk, Purpose, Session};
use annulus::fs::Policy;
use annulus::{DriverChoice, Runtime};
use annulus_lab::contest::Rig;
use annulus_lab::file::{Burst, Cost, Cycles, Report as Comparison, Settings};
use annulus_lab::record::Record;
use annulus_lab::report::ServerFacts;
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
    let field = Field::prepare(&run.contenders(&mut answers), conditions(run), scratch.path())?;
    field.missing.iter().for_each(|why| answers.note(why.clone()));
    let cells = run.plan.thin(cells, field.specs.len() + 1, cost, &mut answers);
    let settings = settings(run, &field, &dir)?;
    answers.note(format!("on {}; TMPDIR names another place", settings.file_system));
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
        let (first, doubts) = (&record.servers()[0], session.interrupted());
        let comparison = Comparison::new(record, settings, first, environment, doubts);
        let mut answers = self.answers.clone();
        answers.fill(self.run.suite, |question, server| figure(record, question, server));
        let failures = comparison.failures();
        let failures =
            failures.map(|row| (format!("{} at {}", row.contender, row.cell), row.error.clone()));
        answers.take(&comparison.doubts, failures, &comparison);
        self.run.report(answers)
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
    let Conditions { driver, policy, core, .. } = conditions(run);
    Ok(Settings {
        bench: format!("suite {}", run.name),
        contenders: field.specs.iter().map(ServerFacts::of).collect(),
        missing: field.missing.clone(),
        file_system: room::file_system(dir)?,
        driver: Runtime::builder().driver(driver).build()?.driver().kind.to_string(),
        policy: policy.to_string(),
        rounds: run.plan.rounds(),
        core,
        seed: run.plan.seed,
    })
}
