//! A comparison of file I/O as it is written to a file.

use std::fmt;

use serde::Serialize;

use super::{Burst, Cost, Latency, Paths};
use crate::doubt::Doubt;
use crate::environment::Environment;
use crate::record::{Outcome, Record};
use crate::report::ServerFacts;
use crate::schedule::Visit;
use crate::stats::{Ratio, median};
use crate::verdict::control_failed;

/// How a run was set up.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// What was measured: `file`.
    pub bench: String,
    /// The contenders, without the control.
    pub contenders: Vec<ServerFacts>,
    /// Those that were asked for and could not be had, each with what it lacks.
    pub missing: Vec<String>,
    /// The file system that was worked on, such as `ext4`.
    pub file_system: String,
    /// What carries the tasks: `uring` or `epoll`.
    pub driver: String,
    /// Where tasks make their calls.
    pub policy: String,
    /// Rounds asked for.
    pub rounds: usize,
    /// The core of all of them.
    pub core: usize,
    /// The seed of the order and of the intervals.
    pub seed: u64,
}

/// Everything a run has to say: `C` is what a cell is.
#[derive(Clone, Debug, Serialize)]
pub struct Report<C> {
    /// How it was set up.
    pub settings: Settings,
    /// Where and when.
    pub environment: Environment,
    /// A row for every contender in every cell, as multiples of the first.
    pub cells: Vec<Row<C>>,
    /// The same for the control, which is a copy of the first.
    pub controls: Vec<Row<C>>,
    /// What takes something away from it all.
    pub doubts: Vec<String>,
    /// Every slice, round by round.
    pub rounds: Vec<SliceRow<C>>,
}

impl<C: Clone + fmt::Display> Report<C> {
    /// Sums up what was measured so far; `interrupted` before the doubts that the figures raise.
    pub fn new(
        record: &Record<C, Burst>,
        settings: Settings,
        environment: &Environment,
        interrupted: Option<Doubt<C>>,
    ) -> Report<C> {
        let rows = |contender| {
            let cells = 0..record.cells().len();
            cells.map(move |cell| Row::of(record, contender, cell)).filter(Row::was_visited)
        };
        let controls: Vec<Row<C>> = rows(record.control()).collect();
        let doubts = interrupted.into_iter().chain(strayed(&controls));
        Report {
            settings,
            environment: environment.clone(),
            cells: (0..record.control()).flat_map(rows).collect(),
            doubts: doubts.map(|doubt| doubt.to_string()).collect(),
            controls,
            rounds: record.slices().iter().map(|(&v, o)| SliceRow::of(record, v, o)).collect(),
        }
    }

    /// The rows, the control's among them, in which slices failed.
    pub fn failures(&self) -> impl Iterator<Item = &Row<C>> {
        self.cells.iter().chain(&self.controls).filter(|row| row.failed > 0)
    }
}

/// Where the control came out otherwise than the contender it is a copy of.
fn strayed<C: Clone + fmt::Display>(controls: &[Row<C>]) -> Option<Doubt<C>> {
    let differs = |ratio: Option<Ratio>| ratio.is_some_and(control_failed);
    let strayed = controls.iter().filter(|row| differs(row.cpu_ratio) || differs(row.real_ratio));
    let cells: Vec<C> = strayed.map(|row| row.cell.clone()).collect();
    (!cells.is_empty()).then_some(Doubt::ControlFailed(cells))
}

/// One contender in one cell: medians over the rounds. What was never measured is `null`.
#[derive(Clone, Debug, Serialize)]
pub struct Row<C> {
    /// The contender.
    pub contender: String,
    /// The cell.
    pub cell: C,
    /// Seconds of CPU time that a slice took.
    pub cpu_seconds: Option<f64>,
    /// Seconds that a slice took.
    pub real_seconds: Option<f64>,
    /// Seconds of CPU time an operation.
    pub cpu_each: Option<f64>,
    /// Operations a second.
    pub operations_per_second: Option<f64>,
    /// Megabytes a second, written and read together.
    pub megabytes_per_second: Option<f64>,
    /// CPU time an operation as a multiple of the first contender's, within the rounds.
    pub cpu_ratio: Option<Ratio>,
    /// Time an operation as a multiple of the first contender's, within the rounds.
    pub real_ratio: Option<Ratio>,
    /// Where the calls of all slices were made.
    pub paths: Paths,
    /// How long operations took, where each was timed.
    pub latency: Option<Latency>,
    /// Slices that are believed.
    pub slices: usize,
    /// Slices that are not.
    pub failed: usize,
    /// The first reason why not.
    pub error: Option<String>,
}

impl<C: Clone> Row<C> {
    fn of(record: &Record<C, Burst>, contender: usize, cell: usize) -> Row<C> {
        let outcomes = || record.slices_of(contender, cell).map(|(_, outcome)| outcome);
        let bursts: Vec<&Burst> = outcomes().filter_map(|outcome| outcome.as_ref().ok()).collect();
        let errors: Vec<&String> =
            outcomes().filter_map(|outcome| outcome.as_ref().err()).collect();
        let median = |cost| record.median(cost, contender, cell);
        let each = median(Cost::RealEach);
        let bytes_each = bursts.first().map(|burst| burst.bytes as f64 / burst.operations as f64);
        Row {
            contender: record.servers()[contender].clone(),
            cell: record.cells()[cell].clone(),
            cpu_seconds: median(Cost::Cpu),
            real_seconds: median(Cost::Real),
            cpu_each: median(Cost::CpuEach),
            operations_per_second: each.map(f64::recip),
            megabytes_per_second: each.zip(bytes_each).map(|(each, bytes)| bytes / each / 1e6),
            cpu_ratio: record.ratio(Cost::CpuEach, contender, 0, cell),
            real_ratio: record.ratio(Cost::RealEach, contender, 0, cell),
            paths: bursts.iter().fold(Paths::default(), |sum, burst| sum.and(burst.paths)),
            latency: typical(&bursts),
            slices: bursts.len(),
            failed: errors.len(),
            error: errors.first().map(|&error| error.clone()),
        }
    }

    fn was_visited(&self) -> bool {
        self.slices + self.failed > 0
    }
}

/// The median slice's, figure by figure.
fn typical(bursts: &[&Burst]) -> Option<Latency> {
    let all: Vec<Latency> = bursts.iter().filter_map(|burst| burst.latency).collect();
    let middle = |figure: fn(&Latency) -> f64| median(&all.iter().map(figure).collect::<Vec<_>>());
    Some(Latency {
        p50: middle(|l| l.p50)?,
        p99: middle(|l| l.p99)?,
        p99_9: middle(|l| l.p99_9)?,
        max: middle(|l| l.max)?,
    })
}

/// One slice.
#[derive(Clone, Debug, Serialize)]
pub struct SliceRow<C> {
    /// Its round, from 0.
    pub round: usize,
    /// Its contender.
    pub contender: String,
    /// Its cell.
    pub cell: C,
    /// What was measured.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// Why it is not believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl<C: Clone> SliceRow<C> {
    fn of(record: &Record<C, Burst>, visit: Visit, outcome: &Outcome<Burst>) -> SliceRow<C> {
        SliceRow {
            round: visit.round,
            contender: record.servers()[visit.server].clone(),
            cell: record.cells()[visit.cell].clone(),
            burst: outcome.as_ref().ok().copied(),
            error: outcome.as_ref().err().cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cycles;
    use super::*;

    const CELL: Cycles = Cycles { workers: 2, cycles: 50, bytes: 10 };

    fn burst(ns: u64) -> Outcome<Burst> {
        let paths = Paths { inline: 400, ..Paths::default() };
        Ok(Burst { operations: 100, bytes: 2000, ns, cpu_ns: ns / 2, paths, latency: None })
    }

    fn report(rounds: usize, outcome: impl Fn(usize) -> Outcome<Burst>) -> Report<Cycles> {
        let mut record = Record::new(&["threads", "tasks"].map(String::from), &[CELL], 1);
        for round in 0..rounds {
            (0..3)
                .for_each(|server| record.keep(Visit { round, server, cell: 0 }, outcome(server)));
        }
        let settings = Settings {
            bench: "file".into(),
            contenders: Vec::new(),
            missing: Vec::new(),
            file_system: "ext4".into(),
            driver: "uring".into(),
            policy: "adaptive".into(),
            rounds,
            core: 0,
            seed: 1,
        };
        Report::new(&record, settings, &Environment::read(&[0]), None)
    }

    #[test]
    fn tasks_are_multiples_of_threads_and_so_is_the_control() {
        let report = report(6, |server| burst([1_000_000, 500_000, 1_000_000][server]));
        let [threads, tasks] = &report.cells[..] else { panic!("{:?}", report.cells) };
        assert_eq!((threads.cpu_seconds, threads.real_seconds), (Some(0.0005), Some(0.001)));
        assert_eq!(tasks.real_ratio.map(|ratio| ratio.median), Some(0.5));
        assert_eq!(tasks.paths.inline, 2400);
        let rate = tasks.operations_per_second.expect("measured");
        assert!((rate - 200_000.0).abs() < 1e-6, "{rate}");
        assert!((tasks.megabytes_per_second.expect("measured") - 4.0).abs() < 1e-9);
        assert!(report.doubts.is_empty() && report.controls.len() == 1);
    }

    #[test]
    fn a_control_that_strays_and_a_failed_slice_are_told() {
        let strayed = report(6, |server| burst([1_000_000, 500_000, 1_200_000][server]));
        assert!(strayed.doubts[0].contains("2 workers × 50 cycles × 10 bytes"));
        let failing = |server| if server == 1 { Err("disk full".into()) } else { burst(1000) };
        let failed = report(6, failing);
        let row = failed.failures().next().expect("one failed");
        assert_eq!((row.failed, row.error.as_deref()), (6, Some("disk full")));
        assert_eq!(row.cpu_seconds, None);
    }

    #[test]
    fn who_was_never_visited_has_no_row() {
        let report = report(0, |_| burst(1));
        assert!(report.cells.is_empty() && report.controls.is_empty());
    }
}
