//! `annulus bench bulk`: how many datagrams get from one sender to one receiver.

mod contenders;
mod setup;
mod table;
mod work;

pub(crate) use setup::BulkArgs;

use super::session::{Desk, Purpose, Rounds, Session};
use crate::bench::field::Field;
use annulus_lab::bulk::{Flow, Report, Rig, Settings, Terms, Transfer};
use annulus_lab::cores::Cores;
use annulus_lab::doubt::Doubt;
use annulus_lab::environment::Environment;
use anyhow::{Result, bail};
use setup::Setup;
use std::process::ExitCode;

pub(crate) fn run(args: BulkArgs) -> Result<ExitCode> {
    if let Some(style) = args.contender {
        return work::answer_all(style, &args).map(|()| ExitCode::SUCCESS);
    }
    let setup = Setup::new(args)?;
    let desk = Desk::take(setup.json.clone())?;
    let field = contenders::field(&setup.contenders, setup.cores)?;
    let report = measure(&setup, &field, &desk)?;
    desk.deliver(&report, || table::of_report(&report))?;
    if let Some(row) = report.failures().next() {
        let (contender, flow, failed) = (&row.contender, row.cell, row.failed);
        let why = row.error.as_deref().unwrap_or_default();
        bail!("{contender} failed in {failed} slices at {flow}: {why}");
    }
    Ok(desk.status())
}

fn measure(setup: &Setup, field: &Field, desk: &Desk) -> Result<Report> {
    let environment = Environment::read();
    let comparison = Comparison { setup, settings: settings(setup, field), environment };
    let rounds = Rounds { least: setup.rounds, most: setup.rounds };
    let mut session = Session::new(&field.names(), &setup.cells, rounds, setup.seed);
    let mut rig = Rig::start(&field.specs, &setup.cells, setup.slice)?;
    session.measure(desk, &mut rig, &comparison);
    Ok(comparison.report(&session))
}

/// What a report needs beside the slices.
struct Comparison<'a> {
    setup: &'a Setup,
    settings: Settings,
    environment: Environment,
}

impl Purpose<Flow, Transfer> for Comparison<'_> {
    type Report = Report;

    fn report(&self, session: &Session<Flow, Transfer>) -> Report {
        let cores = self.setup.cores;
        let shared = cores.are_shared().then_some(Doubt::SharedCore(cores));
        let doubts = shared.into_iter().chain(session.interrupted());
        Report::new(session.record(), self.settings.clone(), &self.environment, doubts)
    }
}

fn settings(setup: &Setup, field: &Field) -> Settings {
    let Cores { load: sender_core, server: receiver_core } = setup.cores;
    let terms = Terms { seconds: setup.slice.as_secs_f64(), sender_core, receiver_core };
    field.settings("bulk", setup.rounds, setup.seed, terms)
}
