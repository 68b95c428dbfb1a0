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
use annulus_lab::scratch::Scratch;
use annulus_lab::server::Spec;
use annulus_load::Place;
use anyhow::{Context, Result, bail, ensure};
use std::process::ExitCode;
use std::time::Duration;

pub(crate) fn run(args: EchoArgs, transport: Transport) -> Result<ExitCode> {
    let setup = Setup::new(args, transport, Catalogue::here())?;
    let desk = Desk::take(setup.json.clone())?;
    let field = Field::prepare(&setup)?;
    let report = measure(&setup, &field, &desk)?;
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

/// The servers of a comparison, each at an address of its own.
struct Field {
    servers: Vec<Spec>,
    /// The first one again.
    control: Spec,
    /// Where their paths are, if that is what they listen at.
    _scratch: Option<Scratch>,
}

impl Field {
    fn prepare(setup: &Setup) -> Result<Field> {
        let mut servers = specs(setup)?;
        let scratch = (setup.transport == Transport::Unix).then(paths).transpose()?;
        servers.push(servers[0].named(control_name(&servers[0].name)));
        let place = |(number, spec): (usize, Spec)| match (setup.transport, &scratch) {
            (Transport::Udp, _) => servers::over_udp(spec),
            (_, Some(scratch)) => {
                let address = Place::Unix(scratch.path().join(number.to_string())).to_string();
                servers::elsewhere(spec, &address, &address)
            }
            (_, None) => spec,
        };
        let mut servers: Vec<Spec> = servers.into_iter().enumerate().map(place).collect();
        let control = servers.pop().expect("it was put there");
        Ok(Field { servers, control, _scratch: scratch })
    }

    fn all(&self) -> Vec<Spec> {
        self.servers.iter().chain([&self.control]).cloned().collect()
    }
}

/// A folder for the paths that servers listen at.
fn paths() -> Result<Scratch> {
    let folder = std::env::temp_dir();
    Scratch::within(&folder).with_context(|| {
        format!("cannot make a folder in {}: set TMPDIR elsewhere", folder.display())
    })
}

/// Starts the servers, visits them, and ends them.
fn measure(setup: &Setup, field: &Field, desk: &Desk) -> Result<Report> {
    let specs = &field.servers;
    let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    let rounds = Rounds { least: setup.rounds, most: setup.rounds_max() };
    let comparison =
        Comparison { setup, settings: settings(setup, specs), environment: Environment::read() };
    let mut session = Session::new(&names, &setup.cells, rounds, setup.seed);
    let mut rig = Rig::start_all(&field.all(), &setup.cells, setup.work)?;
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
    Settings {
        servers: specs.iter().map(ServerFacts::of).collect(),
        rounds: setup.rounds,
        rounds_max: setup.rounds_max(),
        precision: setup.precision,
        server_core: setup.cores.server,
        load_core: setup.cores.load,
        seed: setup.seed,
        ..Settings::of(setup.transport.bench().into(), setup.work)
    }
}
