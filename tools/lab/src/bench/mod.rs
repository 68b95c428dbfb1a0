//! The definition of a bench: contenders × cells, measured in interleaved rounds (ADR 0018).
//!
//! A [`Bench`] is data: contenders, parameters, metrics and rounds. How a contender is started and
//! measured depends on the bench and is hidden behind [`Measure`]. The order of the slices, ratios
//! with intervals, verdicts, warnings and the report are common to all benches.

mod arrivals;
mod cell;
mod column;
mod contenders;
mod contest;
mod envelope;
mod formula;
mod metric;
mod record;
mod report;
mod requests;
mod schedule;
mod sides;
#[cfg(test)]
pub(crate) mod simulated;
mod summary;
mod sweep;
mod verdict;
mod warnings;

use std::fmt;
use std::thread;
use std::time::Duration;

use annulus_load::counted;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::cores::Cores;
use crate::environment::Environment;
use crate::proc::Memory;
use crate::scratch::Scratch;

pub(crate) use arrivals::together;
pub use arrivals::{Arrivals, GROUP_SIZES, range_names};
pub use cell::{Cell, Value};
pub use column::{Column, Figure};
pub use contenders::Contenders;
pub(crate) use contest::{RECEIVED_KEY, REFUSED_KEY};
pub use envelope::{Distances, Envelope};
pub use formula::Formula;
pub(crate) use metric::SYSTEM_CALLS_KEY;
pub use metric::{
    Better, Fold, Format, MIN_RATE_RATIO, Metric, Role, Sample, cpu, megabytes, rate,
};
pub(crate) use record::{CORE_DISTANCE_NS, are_far};
pub use record::{Outcome, Record};
pub use report::{Footprint, NOT_MEASURED, Report, Row, SliceRow};
pub(crate) use requests::SUBSCRIBER_BYTES_KEY;
pub use requests::{
    client_cost, client_cpu, mean, p50, p99, p99_9, requests, subscriber_bytes, with_ratio,
};
pub use schedule::Slice;
pub use summary::{Counts, Summary};
pub use sweep::{Curve, CurvePoint, Kept, OfferedRates, Sweep, SweepLimit, SweepReport};
pub(crate) use sweep::{OFFERED_KEY, PERCENT_PARAMETER, PERCENTS, metrics as sweep_metrics};
pub use verdict::CellVerdict;
pub use warnings::{CLIENT_CPU_NS, CLIENT_CPU_SHARE};

/// A bench. Its JSON is the whole definition of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Bench {
    /// The name and the rounds of the bench.
    #[serde(flatten)]
    pub plan: Plan,
    /// A description that follows the number of rounds, such as ` of 0.2 s, all on core 0`.
    pub terms: String,
    /// An explanation of the figures.
    pub legend: String,
    /// The contenders.
    #[serde(flatten)]
    pub contenders: Contenders,
    /// The parameters under which each contender is measured.
    pub cells: Vec<Cell>,
    /// The metrics, in the order of the columns.
    pub metrics: Vec<Metric>,
    /// The sweep over rates; `None` unless the bench is a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    /// How long contenders idle before their memory is read again.
    pub idle: Option<Duration>,
    /// The cores of server and load, if both are used.
    pub cores: Option<Cores>,
    /// Further parameters for the report.
    pub parameters: Map<String, Json>,
}

/// The name of a run, its rounds and its seed.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Plan {
    /// The name of the bench.
    #[serde(rename = "bench")]
    pub name: String,
    /// Number of times that each contender is measured in each cell.
    #[serde(flatten)]
    pub rounds: Rounds,
    /// The seed for the order of slices and the payload.
    pub seed: u64,
}

/// The number of rounds of a cell.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Rounds {
    /// The minimum.
    #[serde(rename = "rounds")]
    pub least: usize,
    /// The maximum.
    #[serde(rename = "rounds_max")]
    pub most: usize,
    /// The target precision: imprecise cells get further rounds, up to the maximum, until they
    /// reach it.
    pub precision: Option<Precision>,
    /// Whether cells get further rounds, up to the maximum, until their verdict is decided.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub until_decided: bool,
}

/// A precision that ratios must reach.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Precision {
    /// The key of the metric.
    pub metric: String,
    /// The maximum half width of the intervals of the metric's ratios.
    pub half_width: f64,
}

/// Measures slices, with real processes or, in tests, without processes and clocks.
pub trait Measure {
    /// Measures one slice, or returns one line that says why its result is not acceptable.
    fn measure(&mut self, slice: Slice) -> Outcome;

    /// Measures the first slices of a cell in a round, and returns an outcome for each: one slice,
    /// or several whose clients take turns.
    fn measure_next(&mut self, slices: &[Slice]) -> Vec<Outcome> {
        slices.first().map(|slice| self.measure(*slice)).into_iter().collect()
    }

    /// Sets the rates of the slices of a sweep, once the peaks are known.
    fn set_rates(&mut self, _rates: OfferedRates) {}

    /// Returns the memory of every contender, the control last; empty if memory is not measured.
    fn memory(&self) -> Vec<Option<Memory>> {
        Vec::new()
    }
}

/// Observes the progress of a run, and may end it early.
pub trait Observer {
    /// Reports how many slices are done and how many are planned so far.
    fn progress(&mut self, done: usize, planned: usize);

    /// Reports the current result of a cell that was just measured: how the first contender other
    /// than the baseline compares with the baseline.
    fn answer(&mut self, _so_far: String) {}

    /// Stores the result of a slice as soon as it is measured.
    ///
    /// # Errors
    /// If it cannot be stored, for example because the disk is full. The run ends.
    fn keep(&mut self, _slice: Slice, _outcome: &Outcome) -> Result<()> {
        Ok(())
    }

    /// Returns true if the run should stop after the current slice.
    fn is_stopped(&self) -> bool;
}

/// A bench whose contenders are running.
pub struct Prepared {
    /// The bench.
    pub bench: Bench,
    /// Runs the contenders and measures their slices.
    pub measure: Box<dyn Measure>,
    /// The directory for files of the measurement, if it needs one.
    pub scratch: Option<Scratch>,
}

impl Rounds {
    /// Plans a fixed number of rounds.
    pub fn fixed(rounds: usize) -> Rounds {
        Rounds { least: rounds, most: rounds, precision: None, until_decided: false }
    }

    /// Plans `most` rounds for undecided cells. Cells whose verdict is decided stop earlier, after
    /// a half of the rounds, a quarter and so on, but not before `least`.
    pub fn until_decided(least: usize, most: usize) -> Rounds {
        let first = halves(most, least).last().unwrap_or(most);
        Rounds { least: first, most, precision: None, until_decided: first < most }
    }

    /// Returns after how many rounds the verdict of a cell decides whether it gets further ones,
    /// with the maximum last. Never empty, even if a results file has a plan of no rounds.
    fn looks(&self) -> Vec<usize> {
        let mut looks = vec![self.most];
        if self.until_decided {
            looks.extend(halves(self.most, self.least).skip(1));
        }
        looks.reverse();
        looks
    }

    /// Returns the share of a verdict's error probability that belongs to a cell with this many
    /// rounds. A cell is looked at several times, and each time its verdict may be wrong. The last
    /// look has half of the probability, the one before a quarter, and so on; all shares add up to
    /// 1.
    fn error_share(&self, rounds: usize) -> f64 {
        let looks = self.looks();
        let look = looks.iter().position(|look| rounds <= *look).unwrap_or(looks.len() - 1);
        0.5_f64.powi((looks.len() - look.max(1)) as i32)
    }

    /// Plans at least `least` rounds. If `half_width` is given, plans further rounds, up to `most`,
    /// until the metric's ratios are that precise.
    pub fn precise(least: u64, most: u64, metric: &str, half_width: Option<f64>) -> Rounds {
        let least = least as usize;
        let precision =
            half_width.map(|half_width| Precision { metric: metric.into(), half_width });
        let most = if precision.is_some() { least.max(most as usize) } else { least };
        Rounds { least, most, precision, until_decided: false }
    }
}

/// Returns `most`, its half, its quarter and so on, as long as they are at least `least`.
fn halves(most: usize, least: usize) -> impl Iterator<Item = usize> {
    let halves = std::iter::successors(Some(most), |rounds| Some(rounds / 2));
    halves.take_while(move |rounds| *rounds >= least.max(1))
}

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (1, 1) => f.write_str("once"),
            (least, most) if least == most => write!(f, "{least} rounds"),
            (least, most) => write!(f, "{least} to {most} rounds"),
        }
    }
}

impl Bench {
    /// Returns the metric that decides the winner, if there is one.
    pub fn primary(&self) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.role == Role::Primary)
    }

    /// Returns the minimum number of slices.
    pub fn planned(&self) -> usize {
        self.contenders.all().count() * self.cells.len() * self.plan.rounds.least
    }

    /// Returns true if the ratios of a cell have the required precision. Contenders without a ratio
    /// are ignored, because further rounds would not give them one.
    fn is_precise(&self, record: &Record, cell: usize) -> bool {
        let Some(Precision { metric, half_width }) = &self.plan.rounds.precision else {
            return true;
        };
        let Some(metric) = self.metrics.iter().find(|known| known.key == *metric) else {
            return true;
        };
        let indices = 1..self.contenders.all().count();
        let ratios = indices.filter_map(|index| record.ratio(metric, index, 0, cell));
        ratios
            .map(|ratio| ratio.half_width())
            .all(|half| half.is_some_and(|half| half <= *half_width))
    }

    /// Returns true if a cell has a round with this number, or needs it: it is one of the minimum,
    /// or the ratios are not precise enough, or the verdict is undecided.
    fn wants_round(&self, record: &Record, cell: usize, round: usize) -> bool {
        let rounds = &self.plan.rounds;
        if round < rounds.least || record.has_round(round, cell) {
            return true;
        }
        if !rounds.until_decided {
            return !self.is_precise(record, cell);
        }
        // Looking only after some of the rounds keeps the number of looks small.
        match rounds.looks().contains(&round) {
            true => CellVerdict::needs_rounds(self, record, cell),
            false => record.has_round(round - 1, cell),
        }
    }

    /// Measures every cell in the minimum number of rounds, and the cells that need them in further
    /// rounds. A sweep measures the peaks first. Slices that are already in the record are skipped.
    fn measure(
        &self,
        mut record: Record,
        measure: &mut dyn Measure,
        observer: &mut dyn Observer,
    ) -> Result<Record> {
        let mut schedule = schedule::Schedule::new(self.contenders.all().count(), self.plan.seed);
        let planned = self.planned();
        let stages = self.stages();
        let rounds = 0..self.plan.rounds.most;
        for (stage, round) in
            (0..stages.len()).flat_map(|stage| rounds.clone().map(move |round| (stage, round)))
        {
            if stage > 0 && round == 0 {
                measure.set_rates(self.offered_rates(&record));
            }
            let wanted = |&cell: &usize| self.wants_round(&record, cell, round);
            let cells = stages[stage].iter().copied().filter(wanted).collect();
            let slices = schedule.round(round, cells);
            let open: Vec<Slice> =
                slices.into_iter().filter(|slice| !record.slices().contains_key(slice)).collect();
            for mut slices in open.chunk_by(|one, next| one.cell == next.cell) {
                while !slices.is_empty() {
                    let outcomes = measure.measure_next(slices);
                    let (now, later) = slices.split_at(outcomes.len());
                    slices = later;
                    for (slice, outcome) in now.iter().zip(outcomes) {
                        observer.keep(*slice, &outcome)?;
                        record.keep(*slice, outcome);
                    }
                    let done = record.slices().len();
                    observer.progress(done, done.max(planned));
                    if let Some(answer) = self.so_far(&record, now[0].cell) {
                        observer.answer(answer);
                    }
                    if observer.is_stopped() {
                        return Ok(record);
                    }
                }
            }
        }
        Ok(record)
    }

    /// Returns how the first contender other than the baseline compares with the baseline in a
    /// cell, or `None` while there is no ratio of the two.
    fn so_far(&self, record: &Record, cell: usize) -> Option<String> {
        let (metric, baseline) = (self.primary()?, self.contenders.baseline_index());
        let other = (0..self.contenders.specs.len()).find(|index| *index != baseline)?;
        let ratios = record.ratios(metric, other, baseline, cell);
        let ratio = record.ratio(metric, other, baseline, cell)?;
        let [name, against] = [other, baseline].map(|index| &self.contenders.specs[index].name);
        let rounds = counted(ratios.len(), "round");
        Some(format!(
            "{}: {name} takes {} the {} of {against}, {rounds} so far",
            self.cells[cell],
            ratio.times(),
            metric.noun
        ))
    }

    fn footprints(&self, [before, after, idle]: [Vec<Option<Memory>>; 3]) -> Vec<Footprint> {
        let footprint = |(index, spec): (usize, &crate::process::Spec)| Footprint {
            contender: spec.name.clone(),
            before: before.get(index).copied().flatten(),
            after: after.get(index).copied().flatten(),
            idle: idle.get(index).copied().flatten(),
        };
        self.contenders.all().enumerate().take(after.len()).map(footprint).collect()
    }
}

impl Prepared {
    /// Measures the slices that the record lacks, ends the contenders, and removes their files.
    ///
    /// # Errors
    /// If the files cannot be removed, or the observer cannot store a result. The failure of a
    /// contender is reported, not returned.
    pub fn resume(
        self,
        record: Record,
        environment: &Environment,
        observer: &mut dyn Observer,
    ) -> Result<Report> {
        // On an early return, `measure` is dropped first, so contenders end before their files are
        // removed.
        let Prepared { bench, scratch, mut measure } = self;
        let before = measure.memory();
        let record = bench.measure(record, &mut *measure, observer)?;
        let after = measure.memory();
        let idle = bench.idle.map(|time| {
            rest(time, observer);
            measure.memory()
        });
        drop(measure);
        if let Some(scratch) = scratch {
            let left = scratch.path().display().to_string();
            scratch.remove().with_context(|| format!("cannot remove {left}: remove it by hand"))?;
        }
        let mut report = Report::new(&bench, &record, environment);
        report.memory = bench.footprints([before, after, idle.unwrap_or_default()]);
        Ok(report)
    }
}

/// Returns the entries of a JSON object.
pub(crate) fn parameters(object: Json) -> Map<String, Json> {
    if let Json::Object(map) = object { map } else { Map::new() }
}

/// Sleeps for this time, or until the run is stopped.
fn rest(time: Duration, observer: &dyn Observer) {
    const STEP: Duration = Duration::from_millis(50);
    let mut left = time;
    while !left.is_zero() && !observer.is_stopped() {
        thread::sleep(left.min(STEP));
        left = left.saturating_sub(STEP);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::process::Spec;

    fn metrics() -> Vec<Metric> {
        vec![
            Metric { role: Role::Primary, ..cpu() },
            Metric { noun: "requests/s".into(), role: Role::Guard(0.97), ..rate() },
            Metric {
                noun: "p99".into(),
                role: Role::Guard(1.1),
                ..Metric::plain("p99_us", "", Formula::number("p99_us"))
            },
        ]
    }

    /// Creates a bench with these contenders, one cell and 15 rounds.
    pub(crate) fn bench(names: &[&str]) -> Bench {
        let found = names.iter().map(|name| Ok(Ok(Spec::of(name, "/bin/true"))));
        Bench {
            plan: Plan { name: "test".into(), rounds: Rounds::fixed(15), seed: 1 },
            terms: String::new(),
            legend: String::new(),
            contenders: Contenders::gather(found, None).expect("no contender was gathered"),
            cells: vec![Cell::new([("connections", 50.into()), ("bytes", 128.into())])],
            metrics: metrics(),
            sweep: None,
            idle: None,
            cores: None,
            parameters: Map::new(),
        }
    }

    /// Creates a sample with `cpu` µs of CPU time per operation. Rate and latency are derived from
    /// it.
    pub(crate) fn sample(cpu: f64) -> Sample {
        let numbers = [("operations", 1000.0), ("cpu_ns", cpu * 1e6), ("ns", cpu * 1e6)];
        let mut sample = Sample::from(numbers);
        sample.set("p99_us", cpu * 20.0);
        sample
    }

    /// Creates a record of one cell with this many contenders, including the control. `cpu` returns
    /// the CPU time of each in a round, in µs.
    pub(crate) fn record(
        contenders: usize,
        rounds: usize,
        cpu: impl Fn(usize, usize) -> f64,
    ) -> Record {
        let mut record = Record::new();
        for (round, contender) in (0..rounds).flat_map(|r| (0..contenders).map(move |c| (r, c))) {
            record.keep(Slice { round, cell: 0, contender }, Ok(sample(cpu(contender, round))));
        }
        record
    }

    /// Counts slices, and fails the one with number `fails_at`. In cell 1 the results depend on
    /// contender and round.
    #[derive(Default)]
    struct Counting {
        measured: usize,
        fails_at: usize,
    }

    impl Measure for Counting {
        fn measure(&mut self, slice: Slice) -> Outcome {
            self.measured += 1;
            let noise = (slice.cell * slice.contender * (slice.round * 7 % 11)) as f64 / 10.0;
            if self.measured == self.fails_at {
                Err("refused".into())
            } else {
                Ok(sample(2.0 + noise))
            }
        }
    }

    #[test]
    fn answers_begin_with_the_first_round_and_gain_intervals() {
        let bench = bench(&["a", "b"]);
        let so_far = |rounds| bench.so_far(&record(3, rounds, |one, _| 2.0 + one as f64), 0);
        let first = "50 connections × 128 bytes: b takes 1.50 × the CPU of a, 1 round so far";
        assert_eq!(so_far(1).as_deref(), Some(first));
        assert!(
            so_far(9)
                .is_some_and(|text| text.contains("1.50 × [1.50, 1.50] the CPU of a, 9 rounds"))
        );
        assert_eq!(so_far(0), None);
    }

    /// Stops a run after `last` slices, and asserts that no more slices are done than planned.
    pub(crate) struct StopAfter {
        last: usize,
        done: usize,
    }

    impl StopAfter {
        pub(crate) fn slices(last: usize) -> StopAfter {
            StopAfter { last, done: 0 }
        }
    }

    impl Observer for StopAfter {
        fn progress(&mut self, done: usize, planned: usize) {
            assert!(done <= planned);
            self.done = done;
        }

        fn is_stopped(&self) -> bool {
            self.done >= self.last
        }
    }

    /// Runs a bench of two cells, and stops after `last` slices.
    fn run(rounds: Rounds, last: usize, fails_at: usize) -> Report {
        let mut bench = bench(&["a", "b"]);
        bench.plan.rounds = rounds;
        bench.cells.push(Cell::new([("connections", 1.into())]));
        let measure = Box::new(Counting { measured: 0, fails_at });
        let prepared = Prepared { bench, measure, scratch: None };
        let (here, mut observer) = (Environment::read(), StopAfter::slices(last));
        prepared.resume(Record::new(), &here, &mut observer).expect("the run failed")
    }

    /// Returns the number of accepted slices of the first contender in a cell.
    fn slices(report: &Report, cell: usize) -> usize {
        report.results[cell].slices
    }

    #[test]
    fn every_contender_is_measured_equally_often_in_every_cell() {
        let report = run(Rounds::fixed(20), usize::MAX, 0);
        assert_eq!(report.samples.len(), 3 * 2 * 20);
        assert!(report.rows().all(|row| row.slices == 20));
    }

    #[test]
    fn looks_are_halves_of_the_rounds_and_share_the_error_probability() {
        let rounds = Rounds::until_decided(12, 104);
        assert_eq!((rounds.least, rounds.looks()), (13, vec![13, 26, 52, 104]));
        let shares = [1, 13, 14, 26, 52, 53, 104, 105].map(|count| rounds.error_share(count));
        assert_eq!(shares, [0.125, 0.125, 0.125, 0.125, 0.25, 0.5, 0.5, 0.5]);
        let sum: f64 = rounds.looks().into_iter().map(|look| rounds.error_share(look)).sum();
        assert_eq!(sum, 1.0);
        for fixed in [Rounds::fixed(15), Rounds::until_decided(12, 15)] {
            assert_eq!((fixed.looks(), fixed.error_share(3)), (vec![15], 1.0));
            assert!(!fixed.until_decided);
        }
    }

    /// The plan of a results file may be any.
    #[test]
    fn a_plan_without_rounds_has_one_look() {
        let none = Rounds::fixed(0);
        let reversed = Rounds { least: 20, most: 10, precision: None, until_decided: true };
        for (rounds, most) in [(none, 0), (reversed, 10)] {
            assert_eq!((rounds.looks(), rounds.error_share(3)), (vec![most], 1.0));
        }
    }

    /// Cell 0 is decided after eight rounds. In cell 1, the control varies with the round.
    #[test]
    fn an_undecided_cell_gets_rounds_up_to_the_limit_and_a_decided_one_does_not() {
        let report = run(Rounds::until_decided(8, 32), usize::MAX, 0);
        let rounds = [0, 1].map(|cell| {
            let is_of = |slice: &&SliceRow| slice.cell == report.settings.cells[cell];
            report.samples.iter().filter(is_of).map(|slice| slice.round + 1).max()
        });
        assert_eq!(rounds, [Some(8), Some(32)]);
    }

    #[test]
    fn a_cell_that_is_not_precise_gets_more_rounds_up_to_the_limit() {
        let run = |half_width, most| {
            let precision = Some(Precision { metric: "cpu_us".into(), half_width });
            let rounds = Rounds { least: 6, most, precision, until_decided: false };
            let report = run(rounds, usize::MAX, 0);
            assert_eq!(slices(&report, 0), 6, "cell 0 has no noise");
            slices(&report, 1)
        };
        assert_eq!(run(5.0, 12), 6);
        assert_eq!(run(0.01, 12), 12);
    }

    #[test]
    fn a_failed_slice_is_kept_and_the_run_continues() {
        let report = run(Rounds::fixed(20), usize::MAX, 4);
        assert_eq!((report.samples.len(), report.failures().count()), (120, 1));
    }

    #[test]
    fn a_stopped_run_measures_no_further_slice_and_warns() {
        let report = run(Rounds::fixed(20), 7, 0);
        assert_eq!(report.samples.len(), 7);
        assert!(report.warnings[0].starts_with("interrupted after 7 of 120 slices"));
    }
}
