//! A comparison of NOP throughput as it is written to a file.

use serde::Serialize;

use super::{Burst, Entries, Speed};
use crate::doubt::Doubt;
use crate::environment::Environment;
use crate::record::{Outcome, Record};
use crate::report::ServerFacts;
use crate::schedule::Visit;
use crate::stats::Ratio;
use crate::verdict::control_failed;

/// How a run was set up.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// What was measured: `nop`.
    pub bench: String,
    /// The contenders, without the control.
    pub contenders: Vec<ServerFacts>,
    /// Those that were asked for and could not be had, each with what it lacks.
    pub missing: Vec<String>,
    /// The contender that all others are multiples of.
    pub against: String,
    /// Rounds asked for.
    pub rounds: usize,
    /// The measured seconds of a slice.
    pub seconds: f64,
    /// The core of all of them.
    pub core: usize,
    /// The seed of the order and of the intervals.
    pub seed: u64,
}

/// Everything a run has to say.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How it was set up.
    pub settings: Settings,
    /// Where and when.
    pub environment: Environment,
    /// A row for every contender at every queue size.
    pub cells: Vec<Row>,
    /// The same for the control, as a multiple of the first contender, whose copy it is.
    pub controls: Vec<Row>,
    /// What takes something away from it all.
    pub doubts: Vec<String>,
    /// Every slice, round by round.
    pub rounds: Vec<SliceRow>,
}

impl Report {
    /// Sums up what was measured so far; `interrupted` before the doubts that the figures raise.
    pub fn new(
        record: &Record<Entries, Burst>,
        settings: Settings,
        environment: &Environment,
        interrupted: Option<Doubt<Entries>>,
    ) -> Report {
        let against = record.servers().iter().position(|name| *name == settings.against);
        let rows = |contender, against| {
            let cells = 0..record.cells().len();
            cells.map(move |cell| Row::of(record, contender, against, cell))
        };
        let controls: Vec<Row> = rows(record.control(), 0).collect();
        let doubts = interrupted.into_iter().chain(strayed(&controls));
        Report {
            environment: environment.clone(),
            cells: (0..record.control()).flat_map(|c| rows(c, against.unwrap_or(0))).collect(),
            doubts: doubts.map(|doubt| doubt.to_string()).collect(),
            controls,
            rounds: record.slices().iter().map(|(&v, o)| SliceRow::of(record, v, o)).collect(),
            settings,
        }
    }

    /// The rows, the control's among them, in which slices failed.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.cells.iter().chain(&self.controls).filter(|row| row.failed > 0)
    }
}

/// Where the control came out otherwise than the contender it is a copy of.
fn strayed(controls: &[Row]) -> Option<Doubt<Entries>> {
    let strayed = controls.iter().filter(|row| row.ratio.is_some_and(control_failed));
    let cells: Vec<Entries> = strayed.map(|row| row.entries).collect();
    (!cells.is_empty()).then_some(Doubt::ControlFailed(cells))
}

/// One contender at one queue size: medians over the rounds. What was never measured is `null`.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The contender.
    pub contender: String,
    /// Entries of the queue.
    pub entries: Entries,
    /// Operations a second.
    pub operations_per_second: Option<f64>,
    /// The best round's: noise on a shared machine only ever slows.
    pub best_operations_per_second: Option<f64>,
    /// CPU time an operation.
    pub cpu_ns_per_operation: Option<f64>,
    /// Operations a second of CPU time as a multiple of the other's, within the rounds.
    pub ratio: Option<Ratio>,
    /// Slices that are believed.
    pub slices: usize,
    /// Slices that are not.
    pub failed: usize,
    /// The first reason why not.
    pub error: Option<String>,
}

impl Row {
    fn of(record: &Record<Entries, Burst>, contender: usize, against: usize, cell: usize) -> Row {
        let rates = record.values(Speed::Rate, contender, cell);
        let errors: Vec<&String> = record
            .slices_of(contender, cell)
            .filter_map(|(_, outcome)| outcome.as_ref().err())
            .collect();
        Row {
            contender: record.servers()[contender].clone(),
            entries: record.cells()[cell],
            operations_per_second: record.median(Speed::Rate, contender, cell),
            slices: rates.len(),
            best_operations_per_second: rates.into_iter().reduce(f64::max),
            cpu_ns_per_operation: record.median(Speed::PerCpu, contender, cell).map(|r| 1e9 / r),
            ratio: record.ratio(Speed::PerCpu, contender, against, cell),
            failed: errors.len(),
            error: errors.first().map(|&error| error.clone()),
        }
    }
}

/// One slice.
#[derive(Clone, Debug, Serialize)]
pub struct SliceRow {
    /// Its round, from 0.
    pub round: usize,
    /// Its contender.
    pub contender: String,
    /// Entries of the queue.
    pub entries: Entries,
    /// What was measured.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// Why it is not believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl SliceRow {
    fn of(record: &Record<Entries, Burst>, visit: Visit, outcome: &Outcome<Burst>) -> SliceRow {
        SliceRow {
            round: visit.round,
            contender: record.servers()[visit.server].clone(),
            entries: record.cells()[visit.cell],
            burst: outcome.as_ref().ok().copied(),
            error: outcome.as_ref().err().cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(rate: f64) -> Outcome<Burst> {
        Ok(Burst { operations: (rate * 2.0) as u64, seconds: 2.0, cpu_seconds: 1.0 })
    }

    fn report(rounds: usize, outcome: impl Fn(usize) -> Outcome<Burst>) -> Report {
        let names = ["ring", "liburing"].map(String::from);
        let mut record = Record::new(&names, &[Entries(64)], 1);
        for round in 0..rounds {
            (0..3)
                .for_each(|server| record.keep(Visit { round, server, cell: 0 }, outcome(server)));
        }
        let settings = Settings {
            bench: "nop".into(),
            contenders: Vec::new(),
            missing: Vec::new(),
            against: "liburing".into(),
            rounds,
            seconds: 2.0,
            core: 0,
            seed: 1,
        };
        Report::new(&record, settings, &Environment::read(&[0]), None)
    }

    #[test]
    fn each_is_a_multiple_of_the_one_named_and_the_control_of_the_first() {
        let report = report(6, |contender| burst([300.0, 200.0, 300.0][contender]));
        let ratios: Vec<f64> = report.cells.iter().map(|row| row.ratio.unwrap().median).collect();
        assert_eq!(ratios, [1.5, 1.0]);
        assert_eq!(report.controls[0].ratio.unwrap().median, 1.0);
        assert_eq!(report.cells[0].operations_per_second, Some(300.0));
        assert_eq!(report.cells[1].cpu_ns_per_operation, Some(1e9 / 400.0));
        assert!(report.doubts.is_empty() && report.failures().next().is_none());
        assert_eq!(serde_json::to_value(&report).unwrap()["cells"][0]["entries"], 64);
    }

    #[test]
    fn a_control_that_strays_is_a_doubt() {
        let report = report(6, |contender| burst([300.0, 200.0, 330.0][contender]));
        assert!(report.doubts[0].contains("did not come out the same at 64 entries"), "{report:?}");
    }

    #[test]
    fn a_failure_is_told_and_not_drawn_as_zero() {
        let report = report(1, |contender| match contender {
            1 => Err("no ring".into()),
            _ => burst(1.0),
        });
        let failed: Vec<_> = report.failures().collect();
        assert_eq!((failed.len(), failed[0].error.as_deref()), (1, Some("no ring")));
        assert_eq!(failed[0].operations_per_second, None);
    }
}
