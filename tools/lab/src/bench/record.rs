//! The results of all slices, and queries over them.

use std::collections::{BTreeMap, BTreeSet};

use super::metric::{Fold, Metric, Sample};
use super::schedule::Slice;
use annulus_load::stats::{MISS_PROBABILITY, Ratio, median};

/// The result of a slice: its sample, or one line that says why it is not accepted.
pub type Outcome = Result<Sample, String>;

/// All slices of a run so far.
#[derive(Clone, Debug, Default)]
pub struct Record {
    slices: BTreeMap<Slice, Outcome>,
    /// The rounds of each contender in each cell.
    rounds: BTreeMap<(usize, usize), BTreeSet<usize>>,
}

impl Record {
    /// Creates an empty record.
    pub fn new() -> Record {
        Record::default()
    }

    /// Adds the result of a slice.
    pub fn keep(&mut self, slice: Slice, outcome: Outcome) {
        let Slice { round, cell, contender } = slice;
        self.rounds.entry((contender, cell)).or_default().insert(round);
        self.slices.insert(slice, outcome);
    }

    /// Returns true if a round has any slice of this cell.
    pub(super) fn has_round(&self, round: usize, cell: usize) -> bool {
        let first = Slice { round, cell, contender: 0 };
        let rest = self.slices.range(first..).next();
        rest.is_some_and(|(slice, _)| (slice.round, slice.cell) == (round, cell))
    }

    /// Returns the number of rounds that have any slice of this cell.
    pub(super) fn rounds_of(&self, cell: usize) -> usize {
        let of = |((_, other), rounds): (&(usize, usize), &BTreeSet<usize>)| {
            (*other == cell).then_some(rounds.len())
        };
        self.rounds.iter().filter_map(of).max().unwrap_or(0)
    }

    /// Returns all slices, ordered by round.
    pub fn slices(&self) -> &BTreeMap<Slice, Outcome> {
        &self.slices
    }

    /// Iterates over the results of one contender in one cell, ordered by round.
    pub fn outcomes(&self, contender: usize, cell: usize) -> impl Iterator<Item = &Outcome> {
        self.of(contender, cell).map(|(_, outcome)| outcome)
    }

    /// Returns how many slices of a contender in a cell failed, and how many there are.
    pub(super) fn failed(&self, contender: usize, cell: usize) -> [usize; 2] {
        let failed = self.outcomes(contender, cell).filter(|outcome| outcome.is_err()).count();
        [failed, self.outcomes(contender, cell).count()]
    }

    /// Returns the sum of `key` divided by the sum of `of`, over the accepted samples that have
    /// both. Returns `None` if the sum of `of` is not positive.
    pub(super) fn share(&self, key: &str, of: &str, contender: usize, cell: usize) -> Option<f64> {
        let samples = self.outcomes(contender, cell).filter_map(|outcome| outcome.as_ref().ok());
        let pairs = samples.filter_map(|sample| Some((sample.get(key)?, sample.get(of)?)));
        let (part, all) = pairs.fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        (all > 0.0).then(|| part / all)
    }

    /// Returns the accepted values of a metric, at most one per round.
    pub fn values(&self, metric: &Metric, contender: usize, cell: usize) -> Vec<f64> {
        let samples = self.outcomes(contender, cell).filter_map(|outcome| outcome.as_ref().ok());
        samples.filter_map(|sample| metric.of.of(sample)).collect()
    }

    /// Returns the finite values of a metric above 0, by round. Only these have ratios.
    pub fn values_by_round(
        &self,
        metric: &Metric,
        contender: usize,
        cell: usize,
    ) -> BTreeMap<usize, f64> {
        let value = |(slice, outcome): (Slice, &Outcome)| {
            let value = metric.of.of(outcome.as_ref().ok()?)?;
            (value.is_finite() && value > 0.0).then_some((slice.round, value))
        };
        self.of(contender, cell).filter_map(value).collect()
    }

    /// Returns the combined value of a metric.
    pub fn value(&self, metric: &Metric, contender: usize, cell: usize) -> Option<f64> {
        let values = self.values(metric, contender, cell);
        match metric.fold {
            Fold::Median => median(&values),
            Fold::Sum => Some(values.iter().sum()).filter(|_| !values.is_empty()),
        }
    }

    /// Returns the value of a metric in its best round.
    pub fn best(&self, metric: &Metric, contender: usize, cell: usize) -> Option<f64> {
        let values = self.values(metric, contender, cell);
        values.into_iter().reduce(|a, b| metric.better_of(a, b))
    }

    /// Returns the ratio of one contender's metric to another's over the rounds that have both,
    /// with a 95 % interval.
    pub fn ratio(
        &self,
        metric: &Metric,
        contender: usize,
        against: usize,
        cell: usize,
    ) -> Option<Ratio> {
        let ratios = self.ratios(metric, contender, against, cell);
        Ratio::of(&ratios.into_values().collect::<Vec<_>>(), MISS_PROBABILITY)
    }

    /// Returns the ratios of one contender's metric to another's, for each round that has both.
    pub(super) fn ratios(
        &self,
        metric: &Metric,
        contender: usize,
        against: usize,
        cell: usize,
    ) -> BTreeMap<usize, f64> {
        let others = self.values_by_round(metric, against, cell);
        let own = self.values_by_round(metric, contender, cell).into_iter();
        own.filter_map(|(round, value)| Some((round, value / others.get(&round)?))).collect()
    }

    fn of(&self, contender: usize, cell: usize) -> impl Iterator<Item = (Slice, &Outcome)> {
        let rounds = self.rounds.get(&(contender, cell)).into_iter().flatten();
        let slices = rounds.map(move |&round| Slice { round, cell, contender });
        slices.filter_map(|slice| Some((slice, self.slices.get(&slice)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::metric::{cpu, rate};
    use super::super::tests::record;
    use super::*;

    const THIRD_ROUND: Slice = Slice { round: 2, cell: 0, contender: 0 };

    /// The ratios of the rounds are 1, 4 and 3, so their median is 3; the ratio of the medians
    /// would be 4 / 2.
    #[test]
    fn ratios_are_taken_within_a_round() {
        let us = [[2.0, 4.0, 9.0], [2.0, 1.0, 3.0], [1.0; 3]];
        let record = record(3, 3, |contender, round| us[contender][round]);
        let ratio = record.ratio(&cpu(), 0, 1, 0).expect("there is no ratio");
        assert_eq!((ratio.median, ratio.interval), (3.0, None));
        let back = record.ratio(&cpu(), 1, 0, 0).expect("there is no ratio");
        assert_eq!(back.median, 1.0 / 3.0);
    }

    #[test]
    fn a_slow_period_that_affects_all_does_not_change_the_ratio() {
        let slow = |round: usize| if round.is_multiple_of(3) { 1.5 } else { 1.0 };
        let record = record(3, 12, |contender, round| [2.0, 4.0, 2.0][contender] * slow(round));
        let ratio = record.ratio(&cpu(), 0, 1, 0).expect("there is no ratio");
        assert_eq!(ratio.to_string(), "0.500 [0.500, 0.500]");
    }

    #[test]
    fn a_failed_slice_excludes_its_round_from_the_ratio() {
        let mut record = record(3, 2, |contender, _| [2.0, 4.0, 2.0][contender]);
        let slow = Sample::from([("cpu_ns", 1e5), ("operations", 1.0)]);
        record.keep(THIRD_ROUND, Ok(slow));
        record.keep(Slice { contender: 1, ..THIRD_ROUND }, Err("reset".into()));
        assert_eq!(record.ratio(&cpu(), 0, 1, 0).expect("there is no ratio").median, 0.5);
        assert_eq!(record.values(&cpu(), 0, 0), [2.0, 2.0, 100.0]);
        assert_eq!(record.values(&cpu(), 1, 0), [4.0, 4.0]);
    }

    #[test]
    fn rounds_combine_to_a_median_a_sum_or_the_best() {
        let record = record(3, 3, |_, round| (round + 1) as f64);
        assert_eq!(record.value(&cpu(), 0, 0), Some(2.0));
        assert_eq!(record.value(&Metric { fold: Fold::Sum, ..cpu() }, 0, 0), Some(6.0));
        assert_eq!((record.best(&cpu(), 0, 0), record.best(&rate(), 0, 0)), (Some(1.0), Some(1e6)));
    }

    #[test]
    fn nothing_measured_has_no_value_and_no_ratio() {
        let record = record(3, 0, |_, _| 1.0);
        assert_eq!(record.value(&cpu(), 0, 0), None);
        assert_eq!(record.value(&Metric { fold: Fold::Sum, ..cpu() }, 0, 0), None);
        assert_eq!(record.ratio(&cpu(), 0, 1, 0), None);
    }
}
