//! `annulus bench echo`: which echo server needs less.

use super::servers::Catalogue;
use super::session::{Desk, Purpose, Rounds, Session};
use super::setup::{EchoArgs, Setup};
use super::table;
use annulus_lab::doubt::Doubt;
use annulus_lab::environment::Environment;
use annulus_lab::record::{Record, Sample};
use annulus_lab::report::{Report, ServerFacts, Settings};
use annulus_lab::rig::Rig;
use annulus_lab::schedule::Cell;
use annulus_lab::server::Spec;
use anyhow::{Result, bail, ensure};
use std::process::ExitCode;

pub(crate) fn run(args: EchoArgs) -> Result<ExitCode> {
    let setup = Setup::new(args, Catalogue::here())?;
    let desk = Desk::take(setup.json.clone())?;
    let specs = specs(&setup)?;
    let report = measure(&setup, &specs, &desk)?;
    desk.deliver(&report, || table::of_report(&report))?;
    if let Some(row) = report.failures().next() {
        let (server, cell, failed) = (&row.server, row.cell, row.failed);
        let why = row.error.as_deref().unwrap_or_default();
        bail!("{server} failed in {failed} slices at {cell}: {why}");
    }
    Ok(desk.status())
}

/// How to run each server; those that lack a tool are left out with a line that says so.
fn specs(setup: &Setup) -> Result<Vec<Spec>> {
    let mut specs = Vec::new();
    for choice in &setup.choices {
        match setup.catalogue.prepare(choice, setup.cores.server)? {
            Ok(spec) => specs.push(spec),
            Err(missing) => eprintln!("annulus: {missing}"),
        }
    }
    ensure!(!specs.is_empty(), "no server is left to measure");
    Ok(specs)
}

/// Starts the servers, visits them, and ends them.
fn measure(setup: &Setup, specs: &[Spec], desk: &Desk) -> Result<Report> {
    let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    let rounds = Rounds { least: setup.rounds, most: setup.rounds_max() };
    let comparison = Comparison {
        setup,
        settings: settings(setup, specs),
        environment: Environment::read(&setup.allowed),
    };
    let session = Session::new(&names, &setup.cells, rounds, setup.seed);
    let mut rig = Rig::start(specs, &setup.cells, setup.load)?;
    Ok(session.measure(desk, &mut rig, &comparison))
}

/// What a report needs beside the slices.
struct Comparison<'a> {
    setup: &'a Setup,
    settings: Settings,
    environment: Environment,
}

impl Comparison<'_> {
    fn doubts(&self, session: &Session<Cell, Sample>) -> Vec<Doubt> {
        let Setup { cores, precision, .. } = *self.setup;
        let shared = cores.are_shared().then_some(Doubt::SharedCore(cores));
        let wide = precision.and_then(|half| Doubt::of_precision(session.record(), half));
        shared.into_iter().chain(session.interrupted()).chain(wide).collect()
    }
}

impl Purpose<Cell, Sample> for Comparison<'_> {
    type Report = Report;

    fn report(&self, session: &Session<Cell, Sample>) -> Report {
        let doubts = self.doubts(session);
        Report::new(session.record(), &self.settings, &self.environment, &doubts)
    }

    fn wants_more(&self, record: &Record, cell: usize) -> bool {
        self.setup.precision.is_some_and(|half_width| !record.is_precise(cell, half_width))
    }
}

fn settings(setup: &Setup, specs: &[Spec]) -> Settings {
    Settings {
        bench: "echo".into(),
        servers: specs.iter().map(ServerFacts::of).collect(),
        rounds: setup.rounds,
        rounds_max: setup.rounds_max(),
        precision: setup.precision,
        seconds: setup.load.duration.as_secs_f64(),
        warm_up_seconds: setup.load.warm_up.as_secs_f64(),
        client: setup.load.client.to_string(),
        pipeline: setup.load.pipeline,
        server_core: setup.cores.server,
        load_core: setup.cores.load,
        seed: setup.seed,
    }
}
