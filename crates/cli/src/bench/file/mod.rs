//! `annulus bench file`: what it costs to open, write, read and close files, in threads and in tasks.

pub(super) mod contenders;
pub(super) mod room;
mod setup;
mod table;
mod work;
mod worker;

pub(crate) use setup::FileArgs;

use super::session::{Desk, Purpose, Rounds, Session};
use crate::usage::Misuse;
use annulus::Runtime;
use annulus_lab::contest::Rig;
use annulus_lab::environment::Environment;
use annulus_lab::file::{Burst, Cycles, Report, Settings};
use annulus_lab::record::Record;
use annulus_lab::report::ServerFacts;
use annulus_lab::schedule::{Measure, Visit};
use annulus_lab::scratch::Scratch;
use anyhow::{Context, Result, bail};
use contenders::{Conditions, Field};
use setup::Setup;
use std::process::ExitCode;
use std::time::Duration;

pub(crate) fn run(args: FileArgs) -> Result<ExitCode> {
    if let Some(style) = args.contender {
        let folder = args.dir.as_deref().ok_or_else(|| Misuse("--contender needs --dir".into()))?;
        return work::answer_all(style, folder, args.driver, args.policy)
            .map(|()| ExitCode::SUCCESS);
    }
    let setup = Setup::new(args)?;
    // What cannot be is told even while another measurement holds the lock.
    let scratch = scratch(&setup)?;
    let desk = Desk::take(setup.json.clone())?;
    let report = measure(&setup, scratch, &desk)?;
    desk.deliver(&report, || table::of_report(&report, setup.cell))?;
    if let Some(row) = report.failures().next() {
        let why = row.error.as_deref().unwrap_or_default();
        bail!("{} failed in {} slices: {why}", row.contender, row.failed);
    }
    Ok(desk.status())
}

fn scratch(setup: &Setup) -> Result<Scratch> {
    let cannot = |error| {
        let dir = setup.dir.display();
        Misuse(format!("--dir {dir}: cannot make a folder there: {error}; choose another"))
    };
    Ok(Scratch::within(&setup.dir).map_err(cannot)?)
}

fn measure(setup: &Setup, scratch: Scratch, desk: &Desk) -> Result<Report<Cycles>> {
    let field = Field::prepare(&setup.contenders, setup.conditions, scratch.path())?;
    let comparison = Comparison {
        settings: settings(setup, &field)?,
        environment: Environment::read(&setup.allowed),
    };
    let report = match setup.contenders.len() {
        1 => look(setup, &field, &comparison)?,
        _ => compare(setup, &field, desk, &comparison)?,
    };
    let left = scratch.path().display().to_string();
    scratch.remove().with_context(|| format!("cannot remove {left}: remove it by hand"))?;
    Ok(report)
}

/// All of them in turn, round after round.
fn compare(
    setup: &Setup,
    field: &Field,
    desk: &Desk,
    comparison: &Comparison,
) -> Result<Report<Cycles>> {
    let rounds = Rounds { least: setup.rounds, most: setup.rounds };
    let mut session = Session::new(&field.names(), &[setup.cell], rounds, setup.seed);
    let mut rig = Rig::start(&field.specs, &[setup.cell], Duration::ZERO)?;
    session.measure(desk, &mut rig, comparison);
    Ok(comparison.report(&session))
}

/// One of them alone, and no control.
fn look(setup: &Setup, field: &Field, comparison: &Comparison) -> Result<Report<Cycles>> {
    let mut record = Record::new(&field.names(), &[setup.cell], setup.seed);
    let mut rig = Rig::without_control(&field.specs, &[setup.cell], Duration::ZERO)?;
    for round in 0..setup.rounds {
        let visit = Visit { round, server: 0, cell: 0 };
        record.keep(visit, rig.measure(visit));
    }
    let Comparison { settings, environment } = comparison;
    Ok(Report::new(&record, settings.clone(), environment, None))
}

/// What a report needs beside the slices.
struct Comparison {
    settings: Settings,
    environment: Environment,
}

impl Purpose<Cycles, Burst> for Comparison {
    type Report = Report<Cycles>;

    fn report(&self, session: &Session<Cycles, Burst>) -> Report<Cycles> {
        let settings = self.settings.clone();
        Report::new(session.record(), settings, &self.environment, session.interrupted())
    }
}

fn settings(setup: &Setup, field: &Field) -> Result<Settings> {
    let Conditions { driver, policy, core } = setup.conditions;
    Ok(Settings {
        bench: "file".into(),
        contenders: field.specs.iter().map(ServerFacts::of).collect(),
        missing: field.missing.clone(),
        file_system: room::file_system(&setup.dir)?,
        driver: Runtime::builder().driver(driver).build()?.driver().kind.to_string(),
        policy: policy.to_string(),
        rounds: setup.rounds,
        core,
        seed: setup.seed,
    })
}
