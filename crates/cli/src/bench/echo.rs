//! `annulus bench echo`: which echo server needs less.

use super::servers::{self, Catalogue};
use super::session::{Desk, Purpose, Rounds, Session};
use super::setup::{EchoArgs, Setup, Transport};
use super::table;
use annulus_lab::doubt::Doubt;
use annulus_lab::environment::Environment;
use annulus_lab::proc::Memory;
use annulus_lab::record::{Record, Sample, control_name};
use annulus_lab::report::{Footprint, Report, ServerFacts, Settings};
use annulus_lab::rig::Rig;
use annulus_lab::schedule::Cell;
use annulus_lab::server::Spec;
use anyhow::{Result, bail, ensure};
use std::process::ExitCode;
use std::time::Duration;

pub(crate) fn run(args: EchoArgs, transport: Transport) -> Result<ExitCode> {
    let setup = Setup::new(args, transport, Catalogue::here())?;
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
            Ok(spec) if setup.is_udp() => specs.push(servers::over_udp(spec)),
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
    let mut session = Session::new(&names, &setup.cells, rounds, setup.seed);
    let mut rig = Rig::start(specs, &setup.cells, setup.work)?;
    let before = rig.memory();
    session.measure(desk, &mut rig, &comparison);
    let mut report = comparison.report(&session);
    report.memory = footprints(&report, before, &rig, setup.idle, desk);
    Ok(report)
}

/// What every server held before, after, and when it had been left alone for a while.
fn footprints(
    report: &Report,
    before: Vec<Option<Memory>>,
    rig: &Rig,
    idle: Option<Duration>,
    desk: &Desk,
) -> Vec<Footprint> {
    let after = rig.memory();
    let idle = idle.map(|time| {
        desk.rest(time);
        rig.memory()
    });
    let names = report.settings.servers.iter().map(|server| server.name.clone());
    let names = names.chain(report.settings.servers.first().map(|s| control_name(&s.name)));
    let footprint = |(place, server): (usize, String)| Footprint {
        server,
        before: before[place],
        after: after[place],
        idle: idle.as_ref().and_then(|idle| idle[place]),
    };
    names.enumerate().map(footprint).collect()
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
        let wide = precision
            .and_then(|half| Doubt::of_precision(session.record(), self.setup.figure(), half));
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
        let figure = self.setup.figure();
        self.setup.precision.is_some_and(|half_width| !record.is_precise(figure, cell, half_width))
    }
}

fn settings(setup: &Setup, specs: &[Spec]) -> Settings {
    let bench = if setup.is_udp() { "udp" } else { "echo" };
    Settings {
        servers: specs.iter().map(ServerFacts::of).collect(),
        rounds: setup.rounds,
        rounds_max: setup.rounds_max(),
        precision: setup.precision,
        server_core: setup.cores.server,
        load_core: setup.cores.load,
        seed: setup.seed,
        ..Settings::of(bench.into(), setup.work)
    }
}
