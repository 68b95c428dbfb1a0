//! The results of all slices, and queries over them.

use std::collections::{BTreeMap, BTreeSet};

use super::metric::{Fold, Metric, Sample};
use super::schedule::Slice;
use annulus_load::stats::{MISS_PROBABILITY, Ratio, median};

/// The name of a number in a sample: how long a cache line took from the servers' core to the load's
/// and back, in ns. The longer of before and after the slice.
pub(crate) const CORE_DISTANCE_NS: &str = "core_distance_ns";

/// Slices with far cores are only left out if at least this many others remain, as many as an
/// interval needs.
const MIN_NEAR: usize = 6;

/// The result of a slice: its sample, or one line that says why it is not accepted.
pub type Outcome = Result<Sample, String>;

/// All slices of a run so far.
#[derive(Clone, Debug, Default)]
pub struct Record {
    slices: BTreeMap<Slice, Outcome>,
    /// The rounds of each contender in each cell.
    rounds: BTreeMap<(usize, usize), BTreeSet<usize>>,
    /// The shortest distance of the cores so far.
    nearest: Option<f64>,
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
        let distance = outcome.as_ref().ok().and_then(|sample| sample.get(CORE_DISTANCE_NS));
        self.nearest = self.nearest.into_iter().chain(distance).reduce(f64::min);
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

    /// Returns the shortest distance of the cores, in ns; `None` if distances were not measured.
    pub(crate) fn nearest(&self) -> Option<f64> {
        self.nearest
    }

    /// Returns the distances of the slices with far cores.
    pub(super) fn far_distances(&self) -> Vec<f64> {
        let samples = self.slices.values().filter_map(|outcome| outcome.as_ref().ok());
        let far = samples.filter(|sample| self.is_far(sample));
        far.filter_map(|sample| sample.get(CORE_DISTANCE_NS)).collect()
    }

    fn is_far(&self, sample: &Sample) -> bool {
        let distance = sample.get(CORE_DISTANCE_NS).zip(self.nearest);
        distance.is_some_and(|(distance, nearest)| are_far(distance, nearest))
    }

    /// Returns the accepted values of a metric, at most one per round. Those with far cores are left
    /// out if enough others remain.
    pub fn values(&self, metric: &Metric, contender: usize, cell: usize) -> Vec<f64> {
        let samples = self.outcomes(contender, cell).filter_map(|outcome| outcome.as_ref().ok());
        let value = |sample: &Sample| Some((metric.of.of(sample)?, self.is_far(sample)));
        without_far(samples.filter_map(value))
    }

    /// Returns the finite values of a metric above 0, by round, without those with far cores if
    /// enough others remain.
    pub fn values_by_round(
        &self,
        metric: &Metric,
        contender: usize,
        cell: usize,
    ) -> BTreeMap<usize, f64> {
        let values = self.positive(metric, contender, cell).into_iter();
        let values = values.map(|(round, (value, is_far))| ((round, value), is_far));
        without_far(values).into_iter().collect()
    }

    /// Returns the finite values of a metric above 0, by round, and whether the cores were far.
    /// Only these have ratios.
    fn positive(
        &self,
        metric: &Metric,
        contender: usize,
        cell: usize,
    ) -> BTreeMap<usize, (f64, bool)> {
        let value = |(slice, outcome): (Slice, &Outcome)| {
            let sample = outcome.as_ref().ok()?;
            let value = metric.of.of(sample)?;
            let counts = value.is_finite() && value > 0.0;
            counts.then_some((slice.round, (value, self.is_far(sample))))
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
    /// Rounds with far cores are left out if enough others remain.
    pub(super) fn ratios(
        &self,
        metric: &Metric,
        contender: usize,
        against: usize,
        cell: usize,
    ) -> BTreeMap<usize, f64> {
        let others = self.positive(metric, against, cell);
        let ratios =
            self.positive(metric, contender, cell).into_iter().filter_map(|(round, own)| {
                let other = others.get(&round)?;
                Some(((round, own.0 / other.0), own.1 || other.1))
            });
        without_far(ratios).into_iter().collect()
    }

    fn of(&self, contender: usize, cell: usize) -> impl Iterator<Item = (Slice, &Outcome)> {
        let rounds = self.rounds.get(&(contender, cell)).into_iter().flatten();
        let slices = rounds.map(move |&round| Slice { round, cell, contender });
        slices.filter_map(|slice| Some((slice, self.slices.get(&slice)?)))
    }
}

/// Returns true if cores at this distance share no cache that they share at the nearest one. Every
/// request costs more then, so such slices are left out.
pub(crate) fn are_far(distance: f64, nearest: f64) -> bool {
    distance > 2.0 * nearest
}

/// Returns the values that are not marked as far, or all values if those are fewer than [`MIN_NEAR`].
fn without_far<T: Copy>(values: impl Iterator<Item = (T, bool)>) -> Vec<T> {
    let all: Vec<(T, bool)> = values.collect();
    let near: Vec<T> = all.iter().filter(|(_, is_far)| !is_far).map(|(value, _)| *value).collect();
    if near.len() < MIN_NEAR { all.into_iter().map(|(value, _)| value).collect() } else { near }
}

#[cfg(test)]
mod tests {
    use super::super::metric::{cpu, rate};
    use super::super::tests::{record, sample};
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

    /// Two contenders whose ratio is 2, or 1 if cores are far.
    #[test]
    fn rounds_with_far_cores_do_not_count_if_six_others_remain() {
        for (rounds, median, values) in [(9, 2.0, 6), (6, 1.5, 6)] {
            let mut record = Record::new();
            for (round, contender) in (0..rounds).flat_map(|round| [(round, 0), (round, 1)]) {
                let is_far = round % 2 == 1 && round < 6;
                let mut measured = sample(if contender == 0 && !is_far { 2.0 } else { 1.0 });
                measured.set(CORE_DISTANCE_NS, if is_far { 330.0 } else { 55.0 + round as f64 });
                record.keep(Slice { round, cell: 0, contender }, Ok(measured));
            }
            let ratio = record.ratio(&cpu(), 0, 1, 0).expect("there is no ratio");
            assert_eq!(ratio.median, median);
            assert_eq!(record.values(&cpu(), 1, 0).len(), values);
            assert_eq!(record.values_by_round(&cpu(), 1, 0).len(), values);
            assert_eq!((record.nearest(), record.far_distances()), (Some(55.0), vec![330.0; 6]));
        }
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
