//! The report of a run.

use std::collections::BTreeMap;

use super::Bench;
use super::arrivals::Arrivals;
use super::cell::Cell;
use super::column::{Column, Figure};
use super::envelope::Envelope;
use super::metric::{Metric, Sample};
use super::record::{Outcome, Record};
use super::schedule::Slice;
use super::sides::Sides;
use super::summary::Summary;
use super::sweep::SweepReport;
use super::verdict::CellVerdict;
use super::warnings;
use crate::environment::Environment;
use crate::proc::Memory;
use annulus_load::counted;
use annulus_page::text::grouped;
use serde::{Deserialize, Serialize};

/// The text for values that were not measured.
pub const NOT_MEASURED: &str = "–";

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The bench that was measured, and how it was set up.
    pub settings: Bench,
    /// The machine and the time.
    pub environment: Environment,
    /// A row per contender and cell.
    pub results: Vec<Row>,
    /// A row per cell for the control, if there is one, with ratios to the contender that it
    /// copies.
    pub controls: Vec<Row>,
    /// The memory of each contender, the control last; empty if memory is not measured.
    pub memory: Vec<Footprint>,
    /// The verdict on each cell, if there are a control and a primary metric: the subject of the
    /// run against its best rival.
    pub verdicts: Vec<CellVerdict>,
    /// The envelope of each compared metric, the primary one first; empty with a single contender.
    pub envelopes: Vec<Envelope>,
    /// How requests arrived in each cell; empty if the load did not count it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<Arrivals>,
    /// The verdict on the whole run.
    pub summary: Summary,
    /// The curves; `None` unless the run is a sweep over rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<SweepReport>,
    /// Reasons not to rely on the results.
    pub warnings: Vec<String>,
    /// Every slice, ordered by round.
    pub samples: Vec<SliceRow>,
}

impl Report {
    /// Summarises what was measured so far.
    pub fn new(bench: &Bench, record: &Record, environment: &Environment) -> Report {
        let contenders = bench.contenders.specs.len();
        let cells = 0..bench.cells.len();
        let rows = |contender, against| {
            cells.clone().map(move |cell| Row::of(bench, record, contender, against, cell))
        };
        let baseline = bench.contenders.baseline_index();
        let results = (0..contenders).flat_map(|index| rows(index, baseline)).collect();
        let control = bench.contenders.control_index();
        let controls: Vec<Row> = control.into_iter().flat_map(|index| rows(index, 0)).collect();
        let verdicts: Vec<CellVerdict> =
            cells.clone().filter_map(|cell| CellVerdict::of(bench, record, cell)).collect();
        Report {
            settings: bench.clone(),
            environment: environment.clone(),
            sweep: SweepReport::of(bench, record),
            warnings: warnings::all(bench, record, &controls, environment),
            results,
            controls,
            memory: Vec::new(),
            arrivals: Arrivals::all(bench, record),
            summary: Summary::new(bench, record, &verdicts),
            envelopes: Envelope::all(bench, record),
            verdicts,
            samples: record.slices().iter().map(|(&s, o)| SliceRow::of(bench, s, o)).collect(),
        }
    }

    /// Iterates over all rows, the control's last.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.results.iter().chain(&self.controls)
    }

    /// Returns the row of a contender in a cell.
    pub fn row(&self, contender: &str, cell: &Cell) -> Option<&Row> {
        self.rows().find(|row| row.contender == contender && row.cell == *cell)
    }

    /// Returns the name of the subject, which the verdicts judge.
    pub fn subject(&self) -> String {
        Sides::of(&self.settings).name
    }

    /// Returns the answer in words: a sentence per pair of sides; for a single contender in a
    /// single cell, the verdict on its control. A sweep has a sentence for each load.
    pub fn answer(&self) -> Vec<String> {
        if let Some(sweep) = &self.sweep {
            return sweep.sentences();
        }
        match self.verdicts.as_slice() {
            [only] if only.rival.is_none() => vec![format!("{}.", only.text.trim_end_matches('.'))],
            _ => self.summary.sentences.clone(),
        }
    }

    /// Returns the columns of a table for which `has` is true. Ratios come last, and only if there
    /// is a control.
    pub fn columns(&self, has: impl Fn(Column, &Metric) -> bool) -> Vec<(&Metric, Column)> {
        let of = |metric| Column::ALL.map(|column| (metric, column));
        let all = self.settings.metrics.iter().flat_map(of);
        let has = all.filter(|&(metric, column)| has(column, metric));
        let (ratios, values): (Vec<_>, Vec<_>) = has.partition(|one| one.1 == Column::Ratio);
        let is_compared = !self.controls.is_empty();
        values.into_iter().chain(ratios.into_iter().filter(|_| is_compared)).collect()
    }

    /// Returns the table text of a metric in a row.
    pub fn shown(&self, row: &Row, metric: &Metric, column: Column) -> String {
        let is_baseline = row.contender == self.settings.contenders.baseline;
        let figure = row.figures.get(&metric.key);
        let text = figure.and_then(|figure| column.text(metric, figure, is_baseline));
        text.unwrap_or_else(|| NOT_MEASURED.into())
    }

    /// Returns one line for each contender and cell with failed slices.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.rows().filter_map(|Row { contender, cell, failed, error, .. }| {
            let why = error.as_deref()?;
            let slices = counted(*failed, "slice");
            Some(format!("{contender} failed in {slices} at {cell}: {why}"))
        })
    }
}

/// The memory of one contender. A reading is `null` if the contender had ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Footprint {
    /// The contender.
    pub contender: String,
    /// Before the first slice.
    pub before: Option<Memory>,
    /// After the last.
    pub after: Option<Memory>,
    /// After idling for a while, if requested.
    pub idle: Option<Memory>,
}

impl Footprint {
    /// Returns the resident memory in MiB before the run, after it and after idling, followed by
    /// the same figures for virtual memory.
    pub fn shown(&self) -> Vec<String> {
        let of = |of: fn(Memory) -> u64| {
            [self.before, self.after, self.idle].map(|memory| match memory.map(of) {
                Some(bytes) => grouped(bytes as f64 / f64::from(1 << 20), 1),
                None => NOT_MEASURED.into(),
            })
        };
        [of(|memory| memory.resident_bytes), of(|memory| memory.virtual_bytes)].concat()
    }
}

/// One contender in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The contender.
    pub contender: String,
    /// The cell.
    pub cell: Cell,
    /// The combined values of each metric.
    pub figures: BTreeMap<String, Figure>,
    /// Accepted slices.
    pub slices: usize,
    /// Failed slices.
    pub failed: usize,
    /// The reason for the first failure.
    pub error: Option<String>,
}

impl Row {
    fn of(bench: &Bench, record: &Record, contender: usize, against: usize, cell: usize) -> Row {
        let figure = |metric: &Metric| Figure::of(record, metric, [contender, against], cell);
        let outcomes = || record.outcomes(contender, cell);
        let errors = || outcomes().filter_map(|outcome| outcome.as_ref().err());
        Row {
            contender: bench
                .contenders
                .all()
                .nth(contender)
                .map(|spec| spec.name.clone())
                .unwrap_or_default(),
            cell: bench.cells[cell].clone(),
            figures: bench
                .metrics
                .iter()
                .map(|metric| (metric.key.clone(), figure(metric)))
                .collect(),
            slices: outcomes().filter(|outcome| outcome.is_ok()).count(),
            failed: errors().count(),
            error: errors().next().cloned(),
        }
    }

    /// Returns the combined value of a metric.
    pub fn value(&self, key: &str) -> Option<f64> {
        self.figures.get(key)?.value
    }
}

/// One slice.
#[derive(Clone, Debug, Serialize)]
pub struct SliceRow {
    /// The round of the slice, from 0.
    pub round: usize,
    /// The contender of the slice.
    pub contender: String,
    /// The cell of the slice.
    pub cell: Cell,
    /// The measured sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
    /// Why the slice is not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl SliceRow {
    fn of(bench: &Bench, slice: Slice, outcome: &Outcome) -> SliceRow {
        let spec = bench.contenders.all().nth(slice.contender);
        SliceRow {
            round: slice.round,
            contender: spec.map(|spec| spec.name.clone()).unwrap_or_default(),
            cell: bench.cells[slice.cell].clone(),
            sample: outcome.as_ref().ok().cloned(),
            error: outcome.as_ref().err().cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{bench, record};
    use super::*;

    fn report(names: &[&str], record: &Record) -> Value {
        let report = Report::new(&bench(names), record, &Environment::read());
        serde_json::to_value(report).expect("serialization failed")
    }

    #[test]
    fn rows_have_medians_best_rounds_and_ratios() {
        let record = record(3, 15, |index, round| [2.0, 4.0, 2.0][index] + round as f64 / 1000.0);
        let report = report(&["uring", "threads"], &record);
        let row = &report["results"][0];
        assert_eq!(row["contender"], "uring");
        assert_eq!(row["cell"], json!({ "connections": 50, "bytes": 128 }));
        assert_eq!(row["figures"]["cpu_us"]["value"], json!(2.007));
        assert_eq!(row["figures"]["cpu_us"]["best"], json!(2.0));
        assert_eq!(row["figures"]["cpu_us"]["ratio"]["median"], json!(1.0));
        assert_eq!(report["results"].as_array().map(Vec::len), Some(2));
        assert_eq!(report["controls"][0]["contender"], "uring (control)");
        assert_eq!(report["samples"].as_array().map(Vec::len), Some(45));
        let settings = &report["settings"];
        assert_eq!((&settings["bench"], &settings["rounds"]), (&json!("test"), &json!(15)));
        assert_eq!((&settings["baseline"], &settings["seed"]), (&json!("uring"), &json!(1)));
        let uring = json!({ "name": "uring", "command": ["true"] });
        assert_eq!(settings["contenders"][0], uring);
        assert_eq!(report["samples"][0]["sample"]["cpu_ns"], json!(2e6));
    }

    #[test]
    fn ratios_are_to_the_baseline_and_the_controls_to_the_first() {
        let mut bench = bench(&["ring", "liburing"]);
        bench.contenders.baseline = "liburing".into();
        let record = record(3, 6, |index, _| [3.0, 2.0, 3.0][index]);
        let report = Report::new(&bench, &record, &Environment::read());
        let ratios: Vec<f64> = report
            .rows()
            .map(|row| row.figures["cpu_us"].ratio.expect("there is no ratio").median)
            .collect();
        assert_eq!(
            (ratios, report.settings.contenders.baseline.as_str()),
            (vec![1.5, 1.0, 1.0], "liburing")
        );
    }

    #[test]
    fn a_failure_shows_in_row_slice_and_verdict() {
        let mut record = record(3, 6, |_, _| 2.0);
        record.keep(Slice { round: 2, cell: 0, contender: 1 }, Err("reset".into()));
        let report = Report::new(&bench(&["a", "b"]), &record, &Environment::read());
        let failures: Vec<String> = report.failures().collect();
        assert_eq!(failures, ["b failed in 1 slice at 50 connections × 128 bytes: reset"]);
        assert_eq!((report.results[1].slices, report.verdicts[0].winner.as_ref()), (5, None));
        let bad: Vec<_> = report.samples.iter().filter(|slice| slice.sample.is_none()).collect();
        assert_eq!((bad.len(), bad[0].error.as_deref()), (1, Some("reset")));
    }

    #[test]
    fn an_empty_run_still_reports_with_nulls() {
        let report = report(&["a"], &record(3, 0, |_, _| 1.0));
        assert_eq!(report["results"][0]["figures"]["rate"], json!({ "value": null }));
        assert_eq!(report["samples"], json!([]));
    }
}
