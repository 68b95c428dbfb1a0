//! Comparing runs: ratios with intervals, and what they support.
//!
//! Two sides, A and B, each of one run or several, are compared by each [`Metric`]: the ratio B ÷ A with an interval. All
//! intervals hold together in 95 % of comparisons at least, so that two sides that do not differ are called different in 5 % at
//! most, by whichever metric.
//!
//! What varies from run to run is only seen by several runs. A side of several runs is therefore judged by how its runs differ
//! from one another, each as a whole; a side of one run by how the blocks of its time differ, and [`Comparison::doubts`] says
//! so. How the intervals are computed is written at the top of `estimate.rs`, and why so in the decision 0045.
//!
//! ```
//! use annulus_load::compare::{self, Options, Outcome};
//! use annulus_load::recording::{Interval, Latencies, Recording, RunInfo};
//!
//! let run = |micros: u64| {
//!     let second = |n: u64| Interval {
//!         answered: 1000,
//!         response: Latencies::from_iter((0..1000).map(|k| (micros + k % 10 + n % 3) * 1000)),
//!         ..Interval::new(n as f64, 1.0)
//!     };
//!     let intervals = (0..20).map(second).collect();
//!     Recording { seconds: 20.0, intervals, ..Recording::new(RunInfo::default()) }
//! };
//! let comparison = compare::compare(&[run(100)], &[run(150)], &Options::default()).unwrap();
//! assert_eq!(comparison.outcome, Outcome::Different);
//! let p50 = &comparison.ratios[1];
//! assert!(p50.ratio.unwrap() > 1.4 && p50.bounds.unwrap().low > 1.4);
//! ```

mod estimate;
mod metric;
mod plans;
mod reservations;
mod sample;
mod student;
mod text;

use crate::recording::{Interval, Percentiles, Recording};
use estimate::{Draws, Pair};
use sample::{Piece, Sample};
use serde::Serialize;

pub use estimate::Bounds;
pub use metric::Metric;
pub use plans::PlanDifference;

/// The largest margin.
pub const MAX_MARGIN: f64 = 10.0;

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Differences up to this share are none that matter: 0.01 is one percent. From 0 to [`MAX_MARGIN`].
    pub margin: f64,
    /// The seed of what is drawn. The same runs with the same seed give the same intervals.
    pub seed: u64,
}

impl Default for Options {
    /// One percent.
    fn default() -> Options {
        Options { margin: 0.01, seed: 1 }
    }
}

/// How two sides compare.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What all ratios together support.
    pub outcome: Outcome,
    /// Differences up to this share are none that matter.
    pub margin: f64,
    /// The side that is compared with.
    pub a: Side,
    /// The side that is compared.
    pub b: Side,
    /// A ratio for each metric, in the order of [`Metric::ALL`].
    pub ratios: Vec<MetricRatio>,
    /// What was planned otherwise.
    pub plans: Vec<PlanDifference>,
    /// Reasons to doubt it.
    pub doubts: Vec<String>,
}

/// The runs of one side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The name that its runs share; none if they have none or several.
    pub label: Option<String>,
    /// Runs.
    pub runs: usize,
    /// Measured seconds of all runs.
    pub seconds: f64,
    /// Answers.
    pub responses: u64,
    /// Requests that failed, and datagrams that were lost.
    pub failed: u64,
    /// How many pieces its spread was taken from: runs if it has several, else blocks of the run's time; 0 if the run is too
    /// short for blocks.
    pub pieces: usize,
}

/// How the sides compare by one metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MetricRatio {
    /// The metric.
    pub metric: Metric,
    /// Its value for A: answers a second, or ns. None if it was not measured.
    pub a: Option<f64>,
    /// Its value for B.
    pub b: Option<f64>,
    /// B ÷ A.
    pub ratio: Option<f64>,
    /// The interval of that; none if there are too few samples, blocks or runs for one.
    pub bounds: Option<Bounds>,
    /// What the interval supports.
    pub verdict: Verdict,
}

/// What an interval supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// B is higher, by more than the margin.
    Higher,
    /// B is lower, by more than the margin.
    Lower,
    /// The sides differ by no more than the margin.
    Equal,
    /// The interval is too wide to say, or there is none.
    Undecided,
}

/// What all intervals support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The sides differ by some metric.
    Different,
    /// The sides differ by no metric that has an interval, by more than the margin.
    Equal,
    /// They differ by no metric, and some could not be decided.
    Undecided,
}

/// Runs that cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A side, A or B, has no runs.
    #[error("{0} has no runs: name one at least")]
    NoRuns(char),
    /// In this run of that side, counted from 1, nothing was measured.
    #[error("run {1} of {0} has measured nothing: leave it out, or run it again")]
    NothingMeasured(char, usize),
    /// The margin is not between 0 and [`MAX_MARGIN`].
    #[error("a margin of {} %: it must be from 0 to {} %", .0 * 100.0, MAX_MARGIN * 100.0)]
    Margin(f64),
}

/// Compares the runs `b` with the runs `a`.
///
/// # Errors
/// If a side has no runs, nothing was measured in one of them, or the margin is out of its range.
pub fn compare(
    a: &[Recording],
    b: &[Recording],
    options: &Options,
) -> Result<Comparison, CompareError> {
    if !(0.0..=MAX_MARGIN).contains(&options.margin) {
        return Err(CompareError::Margin(options.margin));
    }
    check('A', a)?;
    check('B', b)?;
    let samples = [a, b].map(|runs| Sample::new(pieces(runs)));
    let mut random = fastrand::Rng::with_seed(options.seed);
    let draws = samples.each_ref().map(|sample| Draws::new(sample.len(), &mut random));
    let wholes = [a, b].map(|runs| Sample::new(runs.iter().map(Piece::run).collect()));
    let (drawn, draws, wholes) = (samples.each_ref(), draws.each_ref(), wholes.each_ref());
    let ratios = ratios(&Pair { samples: drawn, draws, wholes }, options.margin);
    let sides = [Side::new(a, &samples[0]), Side::new(b, &samples[1])];
    let doubts = reservations::all([a, b], sides.each_ref(), &ratios);
    let [a_side, b_side] = sides;
    let outcome = Outcome::of(&ratios);
    let plans = plans::differences(a, b);
    Ok(Comparison { outcome, margin: options.margin, a: a_side, b: b_side, ratios, plans, doubts })
}

fn check(side: char, runs: &[Recording]) -> Result<(), CompareError> {
    if runs.is_empty() {
        return Err(CompareError::NoRuns(side));
    }
    let empty = |run: &Recording| run.seconds <= 0.0 || run.intervals.is_empty();
    let found = runs.iter().position(empty);
    found.map_or(Ok(()), |place| Err(CompareError::NothingMeasured(side, place + 1)))
}

/// What a side's spread is taken from. A run that is too short for blocks is one piece, which has no spread.
fn pieces(runs: &[Recording]) -> Vec<Piece> {
    let blocks = match runs {
        [run] => Piece::blocks(run),
        _ => Vec::new(),
    };
    if blocks.is_empty() { runs.iter().map(Piece::run).collect() } else { blocks }
}

fn ratios(pair: &Pair<'_>, margin: f64) -> Vec<MetricRatio> {
    let errors = Metric::ALL.map(|metric| {
        let is_enough = |sample: &&Sample| {
            let least = metric.share().map_or(0, Percentiles::samples_for);
            sample.latencies() >= least
        };
        if pair.samples.iter().all(is_enough) { pair.error(metric) } else { None }
    });
    let compared = errors.iter().flatten().count();
    let of = |(metric, error): (Metric, Option<(f64, u32)>)| {
        let [a, b] = pair.values(metric);
        let ratio = a.zip(b).map(|(a, b)| b / a);
        let bounds =
            ratio.zip(error).map(|(ratio, error)| estimate::bounds(ratio, error, compared));
        MetricRatio { metric, a, b, ratio, bounds, verdict: Verdict::of(bounds, margin) }
    };
    Metric::ALL.into_iter().zip(errors).map(of).collect()
}

impl Side {
    fn new(runs: &[Recording], sample: &Sample) -> Side {
        let label = runs[0].run.label.clone();
        let is_shared = runs.iter().all(|run| run.run.label == label);
        let count = |of: fn(&Recording) -> u64| runs.iter().map(of).sum();
        Side {
            label: label.filter(|_| is_shared),
            runs: runs.len(),
            seconds: runs.iter().map(|run| run.seconds).sum(),
            responses: count(|run| run.intervals.iter().map(|interval| interval.answered).sum()),
            failed: count(|run| run.intervals.iter().map(failed).sum()),
            pieces: if sample.len() > 1 { sample.len() } else { 0 },
        }
    }
}

impl Verdict {
    /// What an interval supports, if differences up to this share are none that matter.
    pub fn of(bounds: Option<Bounds>, margin: f64) -> Verdict {
        let Some(Bounds { low, high }) = bounds else { return Verdict::Undecided };
        let (least, most) = (1.0 / (1.0 + margin), 1.0 + margin);
        if low > most {
            Verdict::Higher
        } else if high < least {
            Verdict::Lower
        } else if low >= least && high <= most {
            Verdict::Equal
        } else {
            Verdict::Undecided
        }
    }

    /// Whether it says that the sides differ.
    pub fn is_different(self) -> bool {
        matches!(self, Verdict::Higher | Verdict::Lower)
    }
}

impl Outcome {
    /// A metric that was measured on neither side says nothing.
    fn of(ratios: &[MetricRatio]) -> Outcome {
        let mut measured = ratios.iter().filter(|ratio| ratio.ratio.is_some()).peekable();
        if ratios.iter().any(|ratio| ratio.verdict.is_different()) {
            Outcome::Different
        } else if measured.peek().is_some() && measured.all(|ratio| ratio.verdict == Verdict::Equal)
        {
            Outcome::Equal
        } else {
            Outcome::Undecided
        }
    }
}

/// Requests that failed, or datagrams that were lost.
fn failed(interval: &Interval) -> u64 {
    interval.failed + interval.datagrams.map_or(0, |counts| counts.lost)
}
