//! Suites of echo servers: under connections that stay, under a connection a message, or under datagrams.

use super::Run;
use super::plan::{cell, cells, servers};
use super::report::{Answers, Report};
use crate::bench::session::{Desk, Purpose, Session};
use annulus::DriverChoice;
use annulus_lab::doubt::Doubt;
use annulus_lab::proc::Memory;
use annulus_lab::record::{Metric, Record, Sample};
use annulus_lab::report::{Report as Comparison, Row, ServerFacts, Settings};
use annulus_lab::rig::{Letters, Load, Rig, Visits, Work};
use annulus_lab::schedule::Cell;
use annulus_lab::server::Spec;
use annulus_lab::stats::median;
use annulus_lab::suite::{Figure, Question};
use annulus_load::{Mode, limits};
use anyhow::Result;
use std::time::Duration;

/// What a connection and a byte take, about: for the length of a quick run only.
const CONNECTION: Duration = Duration::from_micros(100);
const BYTES_A_MICROSECOND: usize = 500;

/// What the documents call a MB.
const MEGABYTE: f64 = (1 << 20) as f64;
/// The seconds of a run in the document that tells how much it moved.
const RUN: f64 = 30.0;

/// How long the servers idle before their memory is read again: longer than ours keeps what it does not use.
const QUICK_IDLE: Duration = Duration::from_secs(12);
const IDLE: Duration = Duration::from_secs(60);

/// How long a visit runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(50);

/// How long a visit is measured.
fn slice(run: &Run<'_>) -> Duration {
    Duration::from_millis(if run.plan.quick { 100 } else { 200 })
}

/// By connections that stay, as most documents measure.
pub(super) fn measure(run: &Run<'_>, desk: &Desk) -> Result<Report> {
    let load = Load {
        warm_up: WARM_UP,
        duration: slice(run),
        pin: Some(run.plan.cores.load),
        seed: run.plan.seed,
        client: Mode::default(),
        pipeline: 1,
    };
    by(Work::Loop(load), run, desk)
}

/// By a connection a message, all at once, over four event loops as document 002 has them.
pub(super) fn measure_visits(run: &Run<'_>, desk: &Desk) -> Result<Report> {
    let visits = Visits {
        connections: None,
        threads: 4,
        pin: Some(run.plan.cores.load),
        seed: run.plan.seed,
        driver: DriverChoice::Auto,
    };
    by(Work::Visits(visits), run, desk)
}

/// By datagrams, one under way at each client.
pub(super) fn measure_letters(run: &Run<'_>, desk: &Desk) -> Result<Report> {
    let letters = Letters {
        warm_up: WARM_UP,
        duration: slice(run),
        window: 1,
        segments: false,
        pin: Some(run.plan.cores.load),
        seed: run.plan.seed,
        driver: DriverChoice::Auto,
    };
    by(Work::Letters(letters), run, desk)
}

fn by(work: Work, run: &Run<'_>, desk: &Desk) -> Result<Report> {
    let mut answers = Answers::default();
    let specs = servers(run.suite, run.plan, &mut answers)?;
    if specs.is_empty() {
        return Ok(run.report(answers));
    }
    let cells = cells(run.suite, &mut answers);
    let cells = run.plan.thin(cells, specs.len() + 1, |cell| cost(work, cell), &mut answers);
    limits::reserve(2 * cells.iter().map(|cell| cell.clients).max().unwrap_or_default())?;
    let mut rig = Rig::start(&specs, &cells, work)?;
    let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    let mut session = run.session(&names, &cells);
    let settings = settings(run, &specs, work);
    let mut echo = Echo { run, answers, settings, memory: None };
    session.measure(desk, &mut rig, &echo);
    if run.suite.questions().any(|question| question.figure.is_of_memory()) {
        echo.memory = Some(memory(&rig, run.plan.quick, desk));
    }
    Ok(echo.report(&session))
}

/// What a visit to a cell takes, about.
fn cost(work: Work, cell: &Cell) -> Duration {
    let connections = CONNECTION * cell.clients as u32;
    match work {
        Work::Loop(load) => load.warm_up + load.duration + connections,
        Work::Letters(letters) => letters.warm_up + letters.duration + connections,
        Work::Visits(_) => {
            let micros = cell.clients * cell.bytes / BYTES_A_MICROSECOND;
            connections + Duration::from_micros(micros as u64)
        }
    }
}

/// Each server's memory at once, and after idling.
fn memory(rig: &Rig, quick: bool, desk: &Desk) -> [Vec<Option<Memory>>; 2] {
    let now = rig.memory();
    desk.rest(if quick { QUICK_IDLE } else { IDLE });
    [now, rig.memory()]
}

/// What a report needs beside the slices.
struct Echo<'a> {
    run: &'a Run<'a>,
    /// What is known before anything is measured.
    answers: Answers,
    settings: Settings,
    /// Each server's after everything, and after idling.
    memory: Option<[Vec<Option<Memory>>; 2]>,
}

impl Purpose<Cell, Sample> for Echo<'_> {
    type Report = Report;

    fn report(&self, session: &Session<Cell, Sample>) -> Report {
        let cores = self.run.plan.cores;
        let shared = cores.are_shared().then_some(Doubt::SharedCore(cores));
        let doubts: Vec<Doubt> = shared.into_iter().chain(session.interrupted()).collect();
        let record = session.record();
        let comparison = Comparison::new(record, &self.settings, &self.run.environment, &doubts);
        let mut answers = self.answers.clone();
        answers.fill(self.run.suite, |question, server| self.figure(record, question, server));
        let failures = comparison.failures();
        let failures =
            failures.map(|row| (format!("{} at {}", row.server, row.cell), row.error.clone()));
        answers.take(&comparison.doubts, failures, &comparison);
        for row in comparison.cells.iter().filter(|row| row.lost > 0) {
            let Row { server, cell, lost, .. } = row;
            answers.note(format!("{server} at {cell}: {lost} datagrams were lost"));
        }
        self.run.report(answers)
    }
}

impl Echo<'_> {
    /// A cell's figure of one server.
    fn figure(&self, record: &Record, question: &Question, server: &str) -> Option<f64> {
        let server = record.servers().iter().position(|name| name == server)?;
        if question.figure.is_of_memory() {
            return self.memory(question.figure, server);
        }
        let asked = cell(question)?;
        let cell = record.cells().iter().position(|cell| *cell == asked)?;
        let all = |metric| record.median(metric, server, cell);
        match question.figure {
            Figure::Rate => {
                median(third(&record.values(Metric::Rate, server, cell), question.part))
            }
            Figure::Percent => {
                Some(100.0 * all(Metric::Rate)? / record.median(Metric::Rate, 0, cell)?)
            }
            Figure::Average => all(Metric::Mean),
            Figure::P99 => all(Metric::P99),
            Figure::AverageMs => all(Metric::Mean).map(|us| us / 1e3),
            Figure::P99Ms => all(Metric::P99).map(|us| us / 1e3),
            Figure::MegabytesPerSecond => Some(all(Metric::Rate)? * asked.bytes as f64 / MEGABYTE),
            Figure::Megabytes => Some(all(Metric::Rate)? * asked.bytes as f64 * RUN / MEGABYTE),
            _ => None,
        }
    }

    /// In MB as `top` has them: 2^20 bytes.
    fn memory(&self, figure: Figure, server: usize) -> Option<f64> {
        let [now, idle] = self.memory.as_ref()?;
        let bytes = match figure {
            Figure::VirtualMb => now[server]?.virtual_bytes,
            Figure::ResidentMb => now[server]?.resident_bytes,
            _ => idle[server]?.resident_bytes,
        };
        Some(bytes as f64 / MEGABYTE)
    }
}

/// The first, second or third third of the rounds; all of them where none is asked for.
fn third(rates: &[f64], part: Option<usize>) -> &[f64] {
    let edge = |part: usize| rates.len() * part / 3;
    part.map_or(rates, |part| &rates[edge(part - 1)..edge(part)])
}

fn settings(run: &Run<'_>, specs: &[Spec], work: Work) -> Settings {
    Settings {
        servers: specs.iter().map(ServerFacts::of).collect(),
        rounds: run.plan.rounds(),
        rounds_max: run.plan.rounds(),
        server_core: run.plan.cores.server,
        load_core: run.plan.cores.load,
        seed: run.plan.seed,
        ..Settings::of(format!("suite {}", run.name), work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirds_are_consecutive_and_take_every_round() {
        let rates: Vec<f64> = (0..7).map(f64::from).collect();
        let parts = [1, 2, 3].map(|part| third(&rates, Some(part)).to_vec());
        assert_eq!(parts.concat(), rates);
        assert_eq!(parts.map(|part| part.len()), [2, 2, 3]);
        assert_eq!(third(&rates, None), rates);
    }
}
