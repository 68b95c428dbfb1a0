//! `annulus bench nop`: how many operations a second a ring gets through.

pub(super) mod contenders;
mod setup;
mod table;
mod work;

pub(crate) use setup::NopArgs;

use super::session::{Desk, Purpose, Rounds, Session};
use crate::bench::field::Field;
use annulus_lab::environment::Environment;
use annulus_lab::nop::{Burst, Entries, Report, Rig, Settings, Terms};
use anyhow::{Result, bail};
use setup::Setup;
use std::process::ExitCode;

pub(crate) fn run(args: NopArgs) -> Result<ExitCode> {
    if let Some(style) = args.contender {
        return work::answer_all(style).map(|()| ExitCode::SUCCESS);
    }
    let setup = Setup::new(args)?;
    let desk = Desk::take(setup.json.clone())?;
    let field = contenders::field(&setup.contenders, setup.core)?;
    let report = measure(&setup, &field, &desk)?;
    desk.deliver(&report, || table::of_report(&report))?;
    if let Some(row) = report.failures().next() {
        let (contender, entries, failed) = (&row.contender, row.cell, row.failed);
        let why = row.error.as_deref().unwrap_or_default();
        bail!("{contender} failed in {failed} slices at {entries}: {why}");
    }
    Ok(desk.status())
}

fn measure(setup: &Setup, field: &Field, desk: &Desk) -> Result<Report> {
    let settings = settings(setup, field);
    let comparison = Comparison { settings, environment: Environment::read(&setup.allowed) };
    let rounds = Rounds { least: setup.rounds, most: setup.rounds };
    let mut session = Session::new(&field.names(), &setup.cells, rounds, setup.seed);
    let mut rig = Rig::start(&field.specs, &setup.cells, setup.slice)?;
    session.measure(desk, &mut rig, &comparison);
    Ok(comparison.report(&session))
}

/// What a report needs beside the slices.
struct Comparison {
    settings: Settings,
    environment: Environment,
}

impl Purpose<Entries, Burst> for Comparison {
    type Report = Report;

    fn report(&self, session: &Session<Entries, Burst>) -> Report {
        let settings = self.settings.clone();
        Report::new(session.record(), settings, &self.environment, session.interrupted())
    }
}

fn settings(setup: &Setup, field: &Field) -> Settings {
    let terms = Terms { seconds: setup.slice.as_secs_f64(), core: setup.core };
    field.settings("nop", setup.rounds, setup.seed, terms)
}
