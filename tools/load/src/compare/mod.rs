//! Comparison of runs: ratios with confidence intervals, and the conclusions that they support.
//!
//! Two sides, A and B, consist of one or more runs each. For each [`Metric`], the comparison gives
//! the ratio B ÷ A with the interval of [`GroupRatios`]. All intervals hold jointly in at least 95
//! % of comparisons, so two sides that do not differ are called different, by any metric, in at
//! most 5 %.
//!
//! Only several runs show the variation from run to run. If a side has several runs, each run is
//! one sample. A single run is divided into blocks of time instead, and [`Comparison::warnings`]
//! says so.
//!
//! ```
//! use annulus_load::compare::{self, Options};
//! use annulus_load::stats::Verdict;
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
//! assert_eq!(comparison.verdict, Verdict::Worse);
//! let p50 = comparison.ratios[1].ratio.unwrap();
//! assert!(p50.median > 1.4 && p50.interval.unwrap().low > 1.4);
//! ```

mod metric;
mod plans;
mod side_sample;
mod warnings;

use crate::recording::{Interval, Percentiles, Recording};
use crate::stats::{DEFAULT_MARGIN, GroupRatios, MAX_MARGIN, Ratio, Verdict, joint_miss};
use serde::Serialize;
use side_sample::SideSample;

pub use metric::Metric;
pub use plans::PlanDifference;

/// Options for [`compare()`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Differences up to this share are ignored: 0.01 is one percent. From 0 to [`MAX_MARGIN`].
    pub margin: f64,
}

impl Default for Options {
    /// The margin is three percent.
    fn default() -> Options {
        Options { margin: DEFAULT_MARGIN }
    }
}

/// The result of [`compare()`].
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The overall verdict: worse if any ratio is worse, otherwise better if any is better,
    /// otherwise the same if all measured ratios are the same and there are any, otherwise
    /// undecided.
    pub verdict: Verdict,
    /// Differences up to this share are ignored.
    pub margin: f64,
    /// The baseline.
    pub a: Side,
    /// The side that is compared with the baseline.
    pub b: Side,
    /// One ratio per metric, in the order of [`Metric::ALL`].
    pub ratios: Vec<MetricRatio>,
    /// Settings that differ between the sides, or among the runs of one side.
    pub plans: Vec<PlanDifference>,
    /// Reasons not to rely on the comparison.
    pub warnings: Vec<String>,
}

/// The runs of one side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The label that all runs of the side share, if there is one.
    pub label: Option<String>,
    /// Number of runs.
    pub runs: usize,
    /// Measured seconds of all runs together.
    pub seconds: f64,
    /// Number of replies.
    pub responses: u64,
    /// Number of failed requests and lost datagrams.
    pub failed: u64,
    /// Number of samples from which the spread was computed: the runs if there are several,
    /// otherwise blocks of the run's time. It is 0 if the run is too short for blocks.
    pub pieces: usize,
}

/// How the sides compare by one metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MetricRatio {
    /// The metric by which the sides are compared.
    pub metric: Metric,
    /// The value for A, in replies per second or in ns; `None` if it was not measured.
    pub a: Option<f64>,
    /// The value for B.
    pub b: Option<f64>,
    /// B ÷ A with its interval; `None` if a side was not measured.
    pub ratio: Option<Ratio>,
    /// The verdict on B that the ratio supports.
    pub verdict: Verdict,
}

/// Reasons why runs cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A side, A or B, has no runs.
    #[error("{0} has no runs: name at least one")]
    NoRuns(char),
    /// This run of this side has no measured time or no intervals. Runs are numbered from 1.
    #[error("run {1} of {0} measured nothing: leave it out, or repeat it")]
    NothingMeasured(char, usize),
    /// The margin is not between 0 and [`MAX_MARGIN`].
    #[error("the margin of {} % is out of range: use 0 to {} %", .0 * 100.0, MAX_MARGIN * 100.0)]
    Margin(f64),
}

/// Compares the runs `b` with the baseline `a`.
///
/// # Errors
/// Fails if a side has no runs, if one of the runs measured nothing, or if the margin is out of
/// range.
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
    let groups = [a, b].map(pieces);
    let ratios = ratios([a, b].map(SideSample::sum), groups.each_ref(), options.margin);
    let sides = [Side::new(a, groups[0].len()), Side::new(b, groups[1].len())];
    let warnings = warnings::all([a, b], sides.each_ref(), &ratios);
    let [a_side, b_side] = sides;
    let (verdict, plans) = (overall(&ratios), plans::differences(a, b));
    Ok(Comparison {
        verdict,
        margin: options.margin,
        a: a_side,
        b: b_side,
        ratios,
        plans,
        warnings,
    })
}

fn check(side: char, runs: &[Recording]) -> Result<(), CompareError> {
    if runs.is_empty() {
        return Err(CompareError::NoRuns(side));
    }
    let empty = |run: &Recording| run.seconds <= 0.0 || run.intervals.is_empty();
    let found = runs.iter().position(empty);
    found.map_or(Ok(()), |place| Err(CompareError::NothingMeasured(side, place + 1)))
}

/// Returns one sample per run, or the blocks of a single run if it is long enough for blocks.
fn pieces(runs: &[Recording]) -> Vec<SideSample> {
    let blocks = match runs {
        [run] => SideSample::blocks(run),
        _ => Vec::new(),
    };
    if blocks.is_empty() { runs.iter().map(SideSample::run).collect() } else { blocks }
}

fn ratios(sums: [SideSample; 2], groups: [&Vec<SideSample>; 2], margin: f64) -> Vec<MetricRatio> {
    let is_enough = |metric: Metric| {
        let least = metric.share().map_or(0, Percentiles::samples_for);
        sums.iter().all(|side| side.latencies.len() >= least && metric.of(side).is_some())
    };
    let compared = Metric::ALL.iter().filter(|metric| is_enough(**metric)).count();
    let mut statistic = GroupRatios::new(joint_miss(compared));
    let of = |metric: Metric| {
        let [a, b] = sums.each_ref().map(|side| metric.of(side));
        let values = |group: &Vec<SideSample>| group.iter().filter_map(|p| metric.of(p)).collect();
        let [old, new]: [Vec<f64>; 2] = groups.map(values);
        let ratio = statistic.of(&old, &new);
        // A percentile of too few latencies has no interval.
        let ratio = ratio
            .map(|found| Ratio { interval: found.interval.filter(|_| is_enough(metric)), ..found });
        let cost =
            |ratio: Ratio| if metric.is_better_if_higher() { ratio.inverse() } else { ratio };
        let verdict = ratio.map_or(Verdict::Undecided, |found| Verdict::of(cost(found), margin));
        MetricRatio { metric, a, b, ratio, verdict }
    };
    Metric::ALL.into_iter().map(of).collect()
}

/// Combines the verdicts. Metrics that were not measured do not count.
fn overall(ratios: &[MetricRatio]) -> Verdict {
    let has = |verdict| ratios.iter().any(|ratio| ratio.verdict == verdict);
    let measured = || ratios.iter().filter(|ratio| ratio.ratio.is_some());
    if let Some(found) = [Verdict::Worse, Verdict::Better].into_iter().find(|one| has(*one)) {
        found
    } else if measured().count() > 0 && measured().all(|ratio| ratio.verdict == Verdict::Same) {
        Verdict::Same
    } else {
        Verdict::Undecided
    }
}

impl Side {
    fn new(runs: &[Recording], pieces: usize) -> Side {
        let label = runs[0].run.label.clone();
        let is_shared = runs.iter().all(|run| run.run.label == label);
        let count = |of: fn(&Recording) -> u64| runs.iter().map(of).sum();
        Side {
            label: label.filter(|_| is_shared),
            runs: runs.len(),
            seconds: runs.iter().map(|run| run.seconds).sum(),
            responses: count(|run| run.intervals.iter().map(|interval| interval.answered).sum()),
            failed: count(|run| run.intervals.iter().map(failed).sum()),
            pieces: if pieces > 1 { pieces } else { 0 },
        }
    }
}

impl Comparison {
    /// Returns one sentence per verdict, with the metrics to which it applies. Metrics that were
    /// not measured are left out.
    pub fn sentence(&self) -> String {
        let margin = self.margin * 100.0;
        let parts = [
            (Verdict::Worse, "B is worse".to_owned()),
            (Verdict::Better, "B is better".to_owned()),
            (Verdict::Same, format!("The same within {margin} %")),
            (Verdict::Undecided, "Undecided".to_owned()),
        ];
        let sentence = |(verdict, what): (Verdict, String)| {
            let found = self.ratios.iter().filter(|it| it.verdict == verdict);
            let names = found.filter_map(|it| Some(named(it.metric, it.ratio?, verdict)));
            let names: Vec<String> = names.collect();
            (!names.is_empty()).then(|| format!("{what}: {}.", names.join(", ")))
        };
        parts.into_iter().filter_map(sentence).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the metric's name, with the size of the difference if the verdict is better or worse.
fn named(metric: Metric, ratio: Ratio, verdict: Verdict) -> String {
    match ratio.median {
        _ if !verdict.is_different() => metric.to_string(),
        value @ ..1.0 => format!("{metric} {:.1} % lower", (1.0 - value) * 100.0),
        value @ ..10.0 => format!("{metric} {:.1} % higher", (value - 1.0) * 100.0),
        value => format!("{metric} {value:.0} times as high"),
    }
}

/// Returns the number of failed requests and lost datagrams.
fn failed(interval: &Interval) -> u64 {
    interval.failed + interval.datagrams.map_or(0, |counts| counts.lost)
}
