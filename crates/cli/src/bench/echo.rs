//! `annulus bench echo`: which echo server needs less.

use super::servers::Catalogue;
use super::setup::{EchoArgs, Setup};
use super::table;
use crate::output::{self, Target};
use annulus_lab::doubt::Doubt;
use annulus_lab::environment::Environment;
use annulus_lab::interrupt::{INTERRUPTED, Interrupt};
use annulus_lab::lock::Lock;
use annulus_lab::record::{Outcome, Record};
use annulus_lab::report::{Report, ServerFacts, Settings};
use annulus_lab::rig::Rig;
use annulus_lab::schedule::{Keep, Schedule, Visit};
use annulus_lab::server::Spec;
use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs;
use std::ops::ControlFlow;
use std::process::ExitCode;

/// How many times a run saves what it has on its way.
const SAVES: usize = 10;

/// What the first ctrl-C is answered with.
const STOPPING: &str = "annulus: stopping after this slice; once more stops at once";

pub(crate) fn run(args: EchoArgs) -> Result<ExitCode> {
    let setup = Setup::new(args, Catalogue::here())?;
    let _lock = Lock::take()?;
    // A path that can't be written shows before the work and not after it.
    setup.json.clone().map(Target::open).transpose()?;
    let interrupt =
        Interrupt::install(|| eprintln!("{STOPPING}")).context("cannot watch for ctrl-C")?;
    let specs = specs(&setup)?;
    let mut session = Session::new(&setup, &specs, interrupt);
    session.measure(&specs)?;
    session.finish()
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

/// A run under way: what is measured, and where it is kept.
struct Session<'a> {
    setup: &'a Setup,
    schedule: Schedule,
    settings: Settings,
    environment: Environment,
    record: Record,
    interrupt: Interrupt,
    bar: ProgressBar,
}

impl<'a> Session<'a> {
    fn new(setup: &'a Setup, specs: &[Spec], interrupt: Interrupt) -> Session<'a> {
        let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        let record = Record::new(&names, &setup.cells, setup.seed);
        let schedule = Schedule {
            servers: record.servers().len(),
            cells: setup.cells.len(),
            rounds: setup.rounds,
            most: setup.rounds_max(),
            seed: setup.seed,
        };
        Session {
            schedule,
            settings: settings(setup, specs),
            environment: Environment::read(&setup.allowed),
            bar: bar(schedule.slices()),
            setup,
            record,
            interrupt,
        }
    }

    /// Starts the servers, visits them, and ends them.
    fn measure(&mut self, specs: &[Spec]) -> Result<()> {
        let mut rig = Rig::start(specs, &self.setup.cells, self.setup.load)?;
        // However it ends, what there is will be reported.
        let schedule = self.schedule;
        let _ = schedule.run(&mut rig, self);
        self.bar.finish_and_clear();
        Ok(())
    }

    /// A run that is killed leaves what it had. That this fails is told at the end, when it matters.
    fn save_on_the_way(&self) {
        if let Some(Target::File(path)) = &self.setup.json {
            let saved = serde_json::to_vec_pretty(&self.report()).map(|json| fs::write(path, json));
            drop(saved);
        }
    }

    /// Reports what was measured; the exit status says whether all of it was, without a failure.
    fn finish(self) -> Result<ExitCode> {
        let report = self.report();
        match self.setup.json.clone() {
            Some(Target::Stdout) => Target::Stdout.open()?.write_json(&report)?,
            json => {
                output::print(&table::of_report(&report))?;
                json.map(|file| file.open()?.write_json(&report)).transpose()?;
            }
        }
        if let Some(row) = report.failures().next() {
            let (server, cell, failed) = (&row.server, row.cell, row.failed);
            let why = row.error.as_deref().unwrap_or_default();
            bail!("{server} failed in {failed} slices at {cell}: {why}");
        }
        let status = if self.interrupt.is_asked() { INTERRUPTED } else { 0 };
        Ok(ExitCode::from(status))
    }

    fn report(&self) -> Report {
        Report::new(&self.record, &self.settings, &self.environment, &self.doubts())
    }

    fn doubts(&self) -> Vec<Doubt> {
        let (done, planned) = (self.record.slices().len(), self.schedule.slices());
        let cores = self.setup.cores;
        let shared = cores.are_shared().then_some(Doubt::SharedCore(cores));
        let interrupted = (done < planned).then_some(Doubt::Interrupted { done, planned });
        let wide = self.setup.precision.and_then(|half| Doubt::of_precision(&self.record, half));
        shared.into_iter().chain(interrupted).chain(wide).collect()
    }
}

impl Keep for Session<'_> {
    fn keep(&mut self, visit: Visit, outcome: Outcome) -> ControlFlow<()> {
        self.record.keep(visit, outcome);
        let done = self.record.slices().len();
        // Rounds beyond those planned make the way longer.
        self.bar.set_length(done.max(self.schedule.slices()) as u64);
        self.bar.inc(1);
        if done.is_multiple_of(self.schedule.slices().div_ceil(SAVES)) {
            self.save_on_the_way();
        }
        if self.interrupt.is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn wants_more(&self, cell: usize) -> bool {
        self.setup.precision.is_some_and(|half_width| !self.record.is_precise(cell, half_width))
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

/// Progress on a terminal; nothing where standard error is none. It is drawn between slices only.
fn bar(slices: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(slices as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} slice {pos} of {len}, {eta} left");
    bar.with_style(style.expect("a template that is a constant"))
}
