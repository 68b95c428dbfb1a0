//! A comparison of bulk transfers as it is written to a file.

use serde::Serialize;

use super::{Flow, Speed, Transfer};
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
    /// What was measured: `bulk`.
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
    /// The core of the senders.
    pub sender_core: usize,
    /// The core of the receivers.
    pub receiver_core: usize,
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
    /// A row for every contender in every cell.
    pub cells: Vec<Row>,
    /// The same for the control, as a multiple of the first contender, whose copy it is.
    pub controls: Vec<Row>,
    /// What takes something away from it all.
    pub doubts: Vec<String>,
    /// Every slice, round by round.
    pub rounds: Vec<SliceRow>,
}

impl Report {
    /// Sums up what was measured so far; the doubts that are given before those that the figures raise.
    pub fn new(
        record: &Record<Flow, Transfer>,
        settings: Settings,
        environment: &Environment,
        doubts: impl IntoIterator<Item = Doubt<Flow>>,
    ) -> Report {
        let against = record.servers().iter().position(|name| *name == settings.against);
        let rows = |contender, against| {
            let cells = 0..record.cells().len();
            cells.map(move |cell| Row::of(record, contender, against, cell))
        };
        let controls: Vec<Row> = rows(record.control(), 0).collect();
        let doubts = doubts.into_iter().chain(strayed(&controls));
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
fn strayed(controls: &[Row]) -> Option<Doubt<Flow>> {
    let strayed = controls.iter().filter(|row| row.ratio.is_some_and(control_failed));
    let cells: Vec<Flow> = strayed.map(|row| row.flow).collect();
    (!cells.is_empty()).then_some(Doubt::ControlFailed(cells))
}

/// One contender in one cell: medians over the rounds. What was never measured is `null`.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The contender.
    pub contender: String,
    /// What flowed.
    #[serde(flatten)]
    pub flow: Flow,
    /// Datagrams received a second.
    pub datagrams_per_second: Option<f64>,
    /// Their bytes, in millions a second.
    pub megabytes_per_second: Option<f64>,
    /// CPU time of the sender for each that was received.
    pub sender_cpu_us: Option<f64>,
    /// CPU time of the receiver for each that was received.
    pub receiver_cpu_us: Option<f64>,
    /// Datagrams received a second of CPU time as a multiple of the other's, within the rounds.
    pub ratio: Option<Ratio>,
    /// Datagrams that never came, in all slices.
    pub lost: u64,
    /// Slices that are believed.
    pub slices: usize,
    /// Slices that are not.
    pub failed: usize,
    /// The first reason why not.
    pub error: Option<String>,
}

impl Row {
    fn of(record: &Record<Flow, Transfer>, contender: usize, against: usize, cell: usize) -> Row {
        let outcomes = || record.slices_of(contender, cell).map(|(_, outcome)| outcome);
        let transfers = || outcomes().filter_map(|outcome| outcome.as_ref().ok());
        let errors = || outcomes().filter_map(|outcome| outcome.as_ref().err());
        let median = |speed| record.median(speed, contender, cell);
        let (rate, flow) = (median(Speed::Rate), record.cells()[cell]);
        Row {
            contender: record.servers()[contender].clone(),
            flow,
            datagrams_per_second: rate,
            megabytes_per_second: rate.map(|rate| rate * flow.bytes as f64 / 1e6),
            sender_cpu_us: median(Speed::Sender),
            receiver_cpu_us: median(Speed::Receiver),
            ratio: record.ratio(Speed::PerCpu, contender, against, cell),
            lost: transfers().map(|transfer| transfer.lost).sum(),
            slices: transfers().count(),
            failed: errors().count(),
            error: errors().next().cloned(),
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
    /// What flowed.
    #[serde(flatten)]
    pub flow: Flow,
    /// What was measured.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Transfer>,
    /// Why it is not believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl SliceRow {
    fn of(record: &Record<Flow, Transfer>, visit: Visit, outcome: &Outcome<Transfer>) -> SliceRow {
        SliceRow {
            round: visit.round,
            contender: record.servers()[visit.server].clone(),
            flow: record.cells()[visit.cell],
            transfer: outcome.as_ref().ok().copied(),
            error: outcome.as_ref().err().cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(rate: f64) -> Outcome<Transfer> {
        Ok(Transfer {
            received: rate as u64,
            lost: 2,
            seconds: 1.0,
            sender_cpu_seconds: 0.5,
            receiver_cpu_seconds: 1.0,
        })
    }

    fn report(outcome: impl Fn(usize) -> Outcome<Transfer>) -> Report {
        let names = ["uring", "c"].map(String::from);
        let mut record = Record::new(&names, &[Flow::of(1200)], 1);
        for round in 0..6 {
            (0..3)
                .for_each(|server| record.keep(Visit { round, server, cell: 0 }, outcome(server)));
        }
        let settings = Settings {
            bench: "bulk".into(),
            contenders: Vec::new(),
            missing: Vec::new(),
            against: "c".into(),
            rounds: 6,
            seconds: 1.0,
            sender_core: 1,
            receiver_core: 0,
            seed: 1,
        };
        Report::new(&record, settings, &Environment::read(&[0]), None)
    }

    #[test]
    fn each_is_a_multiple_of_the_one_named_and_the_control_of_the_first() {
        let report = report(|contender| transfer([4e6, 2e6, 4e6][contender]));
        let ratios: Vec<f64> = report.cells.iter().map(|row| row.ratio.unwrap().median).collect();
        assert_eq!((ratios, report.controls[0].ratio.unwrap().median), (vec![2.0, 1.0], 1.0));
        let first = &report.cells[0];
        assert_eq!((first.megabytes_per_second, first.lost), (Some(4.8e3), 12));
        assert_eq!((first.sender_cpu_us, first.receiver_cpu_us), (Some(0.125), Some(0.25)));
        assert!(report.doubts.is_empty() && report.failures().next().is_none());
    }

    #[test]
    fn a_control_that_strays_is_a_doubt_and_a_failure_is_told() {
        let report = report(|contender| match contender {
            1 => Err("no socket".into()),
            contender => transfer([5e6, 0.0, 6e6][contender]),
        });
        assert!(
            report.doubts[0].contains("did not come out the same at 1200 bytes, 512"),
            "{report:?}"
        );
        let failed: Vec<_> = report.failures().collect();
        assert_eq!((failed.len(), failed[0].error.as_deref()), (1, Some("no socket")));
        assert_eq!(failed[0].datagrams_per_second, None);
    }
}
