//! Suites of echo servers: under connections that stay, under a connection a message, or under datagrams.

use super::Run;
use super::plan::{cell, cells, every};
use super::report::{Answers, Report};
use crate::bench::echo::catalogue;
use crate::bench::run::RunLock;
use annulus::DriverChoice;
use annulus_lab::bench::{Plan, Report as Comparison, Rounds};
use annulus_lab::echo::{Kind, Load, Setup, Transport};
use annulus_lab::proc::Memory;
use annulus_lab::stats::median;
use annulus_lab::suite::{Figure, Kind as Suites, Question};
use annulus_load::{Mode, limits};
use anyhow::Result;
use std::time::Duration;

/// What the documents call a MB.
const MEGABYTE: f64 = (1 << 20) as f64;
/// The seconds of a run in the document that tells how much it moved.
const RUN: f64 = 30.0;

/// How long the servers idle before their memory is read again: longer than ours keeps what it does not use.
const QUICK_IDLE: Duration = Duration::from_secs(12);
const IDLE: Duration = Duration::from_secs(60);

/// How long a slice runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(50);

/// By connections that stay, by a connection a message over four event loops as document 002 has them, or by datagrams.
fn load(run: &Run<'_>) -> Load {
    let driver = DriverChoice::Auto;
    Load {
        kind: match run.suite.kind {
            Suites::Connect => Kind::Connections { count: None, threads: 4, driver },
            Suites::Udp => Kind::Datagrams { segments: false, driver },
            _ => Kind::Streams(Mode::default()),
        },
        warm_up: WARM_UP,
        duration: Duration::from_millis(if run.plan.quick { 100 } else { 200 }),
        pipeline: 1,
        pin: Some(run.plan.cores.load),
        seed: run.plan.seed,
    }
}

pub(super) fn measure(run: &Run<'_>, lock: &RunLock) -> Result<Report> {
    let mut answers = Answers::default();
    let catalogue = catalogue();
    let transport = if run.suite.kind == Suites::Udp { Transport::Udp } else { Transport::Tcp };
    let mut servers = Vec::new();
    for name in every(run.suite, |question| question.servers.clone()) {
        let choice = catalogue.choose(&name).map_err(|why| first_part(&why));
        let served = choice.and_then(|choice| match transport.kind() {
            Some(kind) => catalogue.check(&choice, kind).map(|()| choice),
            None => Ok(choice),
        });
        served.map(|choice| servers.push(choice)).unwrap_or_else(|why| answers.note(why));
    }
    let of_memory = run.suite.questions().any(|question| question.figure.is_of_memory());
    let idle = if run.plan.quick { QUICK_IDLE } else { IDLE };
    let rounds = Rounds::fixed(run.plan.rounds());
    let mut setup = Setup {
        plan: Plan { name: format!("suite {}", run.name), rounds, seed: run.plan.seed },
        transport,
        catalogue,
        servers,
        cells: cells(run.suite, &mut answers),
        load: load(run),
        cores: run.plan.cores,
        idle: of_memory.then_some(idle),
        is_lenient: true,
    };
    let cells = std::mem::take(&mut setup.cells);
    let contenders = setup.servers.len() + 1;
    setup.cells = run.plan.thin(cells, contenders, |cell| setup.cost(cell), &mut answers);
    setup.check()?;
    let clients = setup.cells.iter().filter_map(|cell| cell.number("clients")).max();
    limits::reserve(2 * clients.unwrap_or_default() as usize)?;
    run.carry_out(lock, setup.prepare()?, answers, figure)
}

/// A figure of one server.
fn figure(report: &Comparison, question: &Question, server: &str) -> Option<f64> {
    if question.figure.is_of_memory() {
        return memory(report, question.figure, server);
    }
    let cell = cell(question)?;
    let value = |key| report.row(server, &cell)?.value(key);
    match question.figure {
        Figure::Rate => {
            let slices = report.samples.iter().filter(|slice| slice.contender == server);
            let slices = slices.filter(|slice| slice.cell == cell);
            let samples = slices.filter_map(|slice| slice.sample.as_ref());
            let rate = report.metrics.iter().find(|metric| metric.key == "rate")?;
            let rates: Vec<f64> = samples.filter_map(rate.of).collect();
            median(third(&rates, question.part))
        }
        Figure::Percent => {
            let first = &report.settings.contenders.first()?.name;
            Some(100.0 * value("rate")? / report.row(first, &cell)?.value("rate")?)
        }
        Figure::Average => value("mean_us"),
        Figure::P99 => value("p99_us"),
        Figure::AverageMs => value("mean_us").map(|us| us / 1e3),
        Figure::P99Ms => value("p99_us").map(|us| us / 1e3),
        Figure::MegabytesPerSecond => Some(value("rate")? * question.bytes? as f64 / MEGABYTE),
        Figure::Megabytes => Some(value("rate")? * question.bytes? as f64 * RUN / MEGABYTE),
        _ => None,
    }
}

/// In MB as `top` has them: 2^20 bytes.
fn memory(report: &Comparison, figure: Figure, server: &str) -> Option<f64> {
    let footprint = report.memory.iter().find(|footprint| footprint.contender == server)?;
    let bytes = |memory: Option<Memory>, of: fn(Memory) -> u64| Some(of(memory?) as f64 / MEGABYTE);
    match figure {
        Figure::VirtualMb => bytes(footprint.after, |memory| memory.virtual_bytes),
        Figure::ResidentMb => bytes(footprint.after, |memory| memory.resident_bytes),
        _ => bytes(footprint.idle, |memory| memory.resident_bytes),
    }
}

/// The first, second or third third of the rounds; all of them if none is asked for.
fn third(rates: &[f64], part: Option<usize>) -> &[f64] {
    let edge = |part: usize| rates.len() * part / 3;
    part.map_or(rates, |part| &rates[edge(part - 1)..edge(part)])
}

/// An unknown name without the list of those that are known.
fn first_part(why: &str) -> String {
    let part = why.split(": there are ").next().unwrap_or(why);
    if part == why { why.to_owned() } else { format!("{part} in this version") }
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
