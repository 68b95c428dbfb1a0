//! Compares two runs of the same bench, and finds regressions and improvements cell by cell.
//!
//! The runs were measured at different times, so their rounds are not paired. A contender's new
//! values in a cell are compared with the old ones as two groups. All verdicts of a comparison are
//! right together in 95 % of comparisons. A difference counts only if its whole interval is beyond
//! the margin and beyond the noise of the machine during either run ([`Change::noise`]).
//!
//! One run of each side cannot show changes from run to run, such as in the clock of the processor.
//! If one contender, such as a peer, did not change, all others can be compared by their ratios to
//! it within the rounds ([`Options::reference`]), because the machine affects both alike.
//!
//! `annulus bench compare` is the command; ADR 0050 explains the rules.

mod noise;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
mod warnings;

use std::collections::BTreeMap;

use annulus_load::stats::{
    DEFAULT_MARGIN, GroupRatios, MAX_MARGIN, Ratio, Verdict, joint_miss, median,
};
use serde::Serialize;

use crate::bench::{Bench, Better, Cell, Metric, Record, Role};
use crate::environment::Environment;
use crate::usage_error::UsageError;

/// A run to compare.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The setup of the run.
    pub bench: &'a Bench,
    /// The measured samples.
    pub record: &'a Record,
    /// The machine, and the time of the run.
    pub environment: &'a Environment,
}

/// How to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Differences up to this share do not matter: 0.03 is 3 %. From 0 to [`MAX_MARGIN`].
    pub margin: f64,
    /// A contender that is the same in both runs. All others are compared by their ratios to it
    /// within each round.
    pub reference: Option<String>,
}

impl Default for Options {
    /// A margin of 3 % and no reference.
    fn default() -> Options {
        Options { margin: DEFAULT_MARGIN, reference: None }
    }
}

impl Options {
    /// Checks the margin.
    ///
    /// # Errors
    /// If the margin is out of range.
    pub fn check(&self) -> Result<(), UsageError> {
        let (given, most) = (self.margin * 100.0, MAX_MARGIN * 100.0);
        if (0.0..=MAX_MARGIN).contains(&self.margin) {
            return Ok(());
        }
        Err(UsageError(format!("the margin of {given} % is out of range: use 0 to {most} %")))
    }
}

/// The comparison of two runs.
#[derive(Clone, Debug, Serialize)]
pub struct RunComparison {
    /// The name of the bench.
    pub bench: String,
    /// Differences up to this share do not matter.
    pub margin: f64,
    /// The contender that ratios within the rounds refer to, if there is one.
    pub reference: Option<String>,
    /// Every contender in every cell by every deciding metric, if both runs have it.
    pub changes: Vec<Change>,
    /// Differences in what the runs contain or in how they were set up, one line each.
    pub differences: Vec<String>,
    /// Reasons not to rely on the comparison.
    pub warnings: Vec<String>,
}

/// One contender in one cell, by one metric.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// The contender.
    pub contender: String,
    /// The cell.
    pub cell: Cell,
    /// The key of the metric.
    pub metric: String,
    /// The old median, in the unit of the metric.
    pub old: f64,
    /// The new median.
    pub new: f64,
    /// New ÷ old, with the interval that the verdict is based on. With a reference, new and old are
    /// ratios to the reference.
    pub ratio: Ratio,
    /// The noise of the machine in either run: the largest deviation of a control from the
    /// contender that it copies, or without a reference, of the second half of a run from its
    /// first. 0.03 is 3 %.
    pub noise: f64,
    /// The verdict that the interval supports; also undecided when noise hides a difference.
    pub verdict: Verdict,
}

/// Compares a new run with an old one. All verdicts are right together with `others` further
/// verdicts, on the other benches of a directory.
///
/// # Errors
/// If the runs are of different benches, have nothing in common, or one of them lacks the
/// reference.
pub fn compare(
    old: Run<'_>,
    new: Run<'_>,
    options: &Options,
    others: usize,
) -> Result<RunComparison, UsageError> {
    let runs = [old, new];
    check(runs, options)?;
    let pairs = pairs(runs, options);
    if pairs.is_empty() {
        let none =
            "the runs have no figure in common: no contender was measured in the same cell in both";
        return Err(UsageError(none.into()));
    }
    let mut ratios = GroupRatios::new(joint_miss(pairs.len() + others));
    let changes: Vec<Change> =
        pairs.iter().filter_map(|pair| pair.change(options.margin, &mut ratios)).collect();
    Ok(RunComparison {
        bench: new.bench.plan.name.clone(),
        margin: options.margin,
        reference: options.reference.clone(),
        differences: warnings::differences(runs),
        warnings: warnings::all(runs, &changes, options),
        changes,
    })
}

/// Returns the number of intervals in the comparison of two runs.
pub fn size(old: Run<'_>, new: Run<'_>, options: &Options) -> usize {
    pairs([old, new], options).len()
}

fn check(runs: [Run<'_>; 2], options: &Options) -> Result<(), UsageError> {
    let [old, new] = runs.map(|run| &run.bench.plan.name);
    if old != new {
        return Err(UsageError(format!(
            "the old run is of '{old}' and the new one of '{new}': compare runs of the same bench"
        )));
    }
    let Some(reference) = &options.reference else { return Ok(()) };
    let mut names = runs.into_iter().map(|run| names(run.bench));
    names.find(|names| !names.contains(reference)).map_or(Ok(()), |names| {
        Err(UsageError(format!(
            "the reference '{reference}' is missing in a run, which has the contenders {}",
            names.join(", ")
        )))
    })
}

fn names(bench: &Bench) -> Vec<String> {
    bench.contenders.specs.iter().map(|spec| spec.name.clone()).collect()
}

/// The values of a contender's metric in a cell, in both runs.
struct Pair<'a> {
    contender: String,
    cell: &'a Cell,
    metric: &'a Metric,
    values: [BTreeMap<usize, f64>; 2],
    /// The values of the reference in the same rounds, if there is one.
    reference: Option<[BTreeMap<usize, f64>; 2]>,
    noise: f64,
}

fn pairs<'a>(runs: [Run<'a>; 2], options: &Options) -> Vec<Pair<'a>> {
    let [old, new] = runs;
    let is_reference = |name: &String| options.reference.as_ref() == Some(name);
    let mut pairs = Vec::new();
    for name in names(new.bench).into_iter().filter(|name| !is_reference(name)) {
        for cell in new.bench.cells.iter().filter(|cell| old.bench.cells.contains(cell)) {
            for metric in metrics(new.bench).filter(|metric| old.bench.metrics.contains(metric)) {
                let values = |name: &str| runs.map(|run| run.values(name, cell, metric));
                let own = values(&name);
                if own.iter().any(BTreeMap::is_empty) {
                    continue;
                }
                let reference = options.reference.as_deref().map(values);
                let noise = noise::of(runs, cell, metric, reference.is_some());
                let contender = name.clone();
                pairs.push(Pair { contender, cell, metric, values: own, reference, noise });
            }
        }
    }
    pairs
}

/// Returns the deciding metrics, or all compared ones if none decides.
fn metrics(bench: &Bench) -> impl Iterator<Item = &Metric> {
    let decides =
        |metric: &&Metric| matches!(metric.role, Role::Primary | Role::Guard(_) | Role::Checked);
    let any = bench.metrics.iter().any(|metric| decides(&metric));
    bench.metrics.iter().filter(move |metric| decides(metric) || (!any && metric.is_compared()))
}

impl Run<'_> {
    /// Returns the values of a contender above 0, by round.
    fn values(&self, name: &str, cell: &Cell, metric: &Metric) -> BTreeMap<usize, f64> {
        let contender = self.bench.contenders.specs.iter().position(|spec| spec.name == name);
        let cell = self.bench.cells.iter().position(|known| known == cell);
        let Some((contender, cell)) = contender.zip(cell) else { return BTreeMap::new() };
        self.record.values_by_round(metric, contender, cell)
    }
}

impl Pair<'_> {
    fn change(&self, margin: f64, ratios: &mut GroupRatios) -> Option<Change> {
        let groups = [0, 1].map(|side| self.group(side));
        let ratio = ratios.of(&groups[0], &groups[1])?;
        let median_of =
            |side: usize| median(&self.values[side].values().copied().collect::<Vec<_>>());
        Some(Change {
            contender: self.contender.clone(),
            cell: self.cell.clone(),
            metric: self.metric.key.clone(),
            old: median_of(0)?,
            new: median_of(1)?,
            ratio,
            noise: self.noise,
            verdict: self.verdict(ratio, margin),
        })
    }

    /// Returns the verdict on new ÷ old, given the margin and the noise.
    fn verdict(&self, ratio: Ratio, margin: f64) -> Verdict {
        let cost = if self.metric.better == Better::Higher { ratio.inverse() } else { ratio };
        let found = Verdict::of(cost, margin.max(self.noise));
        let within = || Verdict::of(cost, margin) == Verdict::Same;
        match found {
            Verdict::Same if !within() => Verdict::Undecided,
            Verdict::Undecided if within() => Verdict::Same,
            found => found,
        }
    }

    /// Returns the values of a side, or their ratios to the reference in the same rounds.
    fn group(&self, side: usize) -> Vec<f64> {
        let own = &self.values[side];
        match &self.reference {
            None => own.values().copied().collect(),
            Some(reference) => {
                let ratio = |(round, value)| Some(value / reference[side].get(round)?);
                own.iter().filter_map(ratio).collect()
            }
        }
    }
}

impl RunComparison {
    /// Returns the changes with this verdict.
    pub fn of(&self, verdict: Verdict) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.verdict == verdict)
    }

    /// Counts the verdicts in a sentence.
    pub fn sentence(&self) -> String {
        let count = |verdict| self.of(verdict).count();
        let [worse, better, same, open] =
            [Verdict::Worse, Verdict::Better, Verdict::Same, Verdict::Undecided].map(count);
        format!(
            "Of {} figures {worse} are worse and {better} better by more than {:.1} %, {same} are the same, and {open} are \
             undecided.",
            self.changes.len(),
            100.0 * self.margin
        )
    }
}
