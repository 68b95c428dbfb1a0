//! The statistics of all comparisons: medians, and ratios with intervals that hold for any
//! distribution of the values.
//!
//! Paired values form rounds, and their ratios are compared by the sign test ([`interval`]). Values
//! of two separate runs form no rounds, so their ratio is computed from two groups
//! ([`GroupRatios`]). In both cases the conclusion from the interval is a [`Verdict`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The probability that a 95 % interval misses the true value.
pub const MISS_PROBABILITY: f64 = 0.05;

/// Differences up to this share do not matter: two starts of the same program also differ by a few
/// percent.
pub const DEFAULT_MARGIN: f64 = 0.03;

/// The largest margin that can be requested.
pub const MAX_MARGIN: f64 = 10.0;

/// Returns the median, or `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (low, high) =
        (sorted.get((sorted.len().checked_sub(1)?) / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// Returns an interval for the median of the distribution of `values`, which misses it with a
/// probability of at most `miss`. Returns `None` if there are too few values.
///
/// The ends of the interval are the k-th smallest and the k-th largest value. The interval misses
/// only if fewer than k values are on one side of the median, and each value is on either side with
/// a probability of one half (the sign test). This assumes nothing about the distribution of the
/// values.
pub fn interval(values: &[f64], miss: f64) -> Option<Interval> {
    let depth = sign_depth(values.len(), miss);
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    (depth > 0).then(|| Interval { low: sorted[depth - 1], high: sorted[sorted.len() - depth] })
}

/// Returns the largest k with 2 · P(Bin(count, ½) < k) ≤ miss.
fn sign_depth(count: usize, miss: f64) -> usize {
    // Compute with logarithms, because ½ⁿ underflows for more than a thousand rounds.
    let mut log = count as f64 * 0.5_f64.ln();
    let (mut depth, mut below) = (0, log.exp());
    while 2.0 * below <= miss && 2 * depth < count {
        depth += 1;
        log += ((count + 1 - depth) as f64 / depth as f64).ln();
        below += log.exp();
    }
    depth
}

/// Returns the probability with which each of several intervals may miss, so that together they all
/// hold with a probability of 95 % (Bonferroni). Verdicts whose margin may be zero need this: with
/// equal sides, *better* is wrong at one end of the interval and *worse* at the other.
pub fn joint_miss(intervals: usize) -> f64 {
    MISS_PROBABILITY / intervals.max(1) as f64
}

/// Returns the probability with which each of several intervals may miss, so that the verdicts that
/// they support, with a margin such as [`DEFAULT_MARGIN`], are all right with a probability of 95 %
/// (Bonferroni).
///
/// If the true ratio is beyond the margin, a verdict is wrong only if one particular end of its
/// interval is: the upper one if the ratio is above the margin, and the lower one if it is below.
/// So each end may miss with 5 % divided by the number of verdicts, and the interval with twice
/// that. But no interval is narrower than the 95 % interval of a single ratio.
///
/// If the true ratio is within the margin, *better* is wrong by the upper end and *worse* by the
/// lower one. An end then has to miss by the distance to the margin as well, so the two together
/// are hardly likelier than one end at the margin. The exception is noise that leaves almost no
/// ratio within the margin: then the probability of a wrong verdict doubles.
pub fn shared_miss(verdicts: usize) -> f64 {
    MISS_PROBABILITY.min(2.0 * MISS_PROBABILITY / verdicts.max(1) as f64)
}

/// Returns the minimum number of rounds for an interval that misses with this probability: the
/// smallest n for which 2 × ½ⁿ does not exceed it.
pub fn rounds_for(miss: f64) -> usize {
    (1..1000).find(|&rounds| sign_depth(rounds, miss) > 0).unwrap_or(usize::MAX)
}

/// A ratio with its interval.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Ratio {
    /// The median of the ratios of the rounds, or of all ratios between the values of two groups.
    pub median: f64,
    /// The interval of the median, at 95 % unless stated otherwise; `None` if there are too few
    /// values.
    pub interval: Option<Interval>,
}

impl Ratio {
    /// Returns the median of `ratios`, one per round, with the [`interval`] that misses with this
    /// probability. Returns `None` if there are no rounds.
    pub fn of(ratios: &[f64], miss: f64) -> Option<Ratio> {
        median(ratios).map(|median| Ratio { median, interval: interval(ratios, miss) })
    }

    /// Formats the ratio for a sentence: `1.20 × [1.10, 1.23]`.
    pub fn times(self) -> String {
        match self.interval {
            Some(Interval { low, high }) => format!("{:.2} × [{low:.2}, {high:.2}]", self.median),
            None => format!("{:.2} ×", self.median),
        }
    }

    /// Returns the ratio of the swapped sides.
    pub fn inverse(self) -> Ratio {
        let interval = self.interval.map(|i| Interval { low: 1.0 / i.high, high: 1.0 / i.low });
        Ratio { median: 1.0 / self.median, interval }
    }

    /// Returns the distance of the interval from 1, or 0 if 1 is inside or there is no interval.
    pub fn distance(self) -> f64 {
        self.interval.map_or(0.0, |i| (i.low - 1.0).max(1.0 - i.high).max(0.0))
    }

    /// Returns the distance of the point of the interval that is farthest from 1, or 0 if there is
    /// no interval.
    pub fn reach(self) -> f64 {
        self.interval.map_or(0.0, |i| (i.high - 1.0).max(1.0 - i.low))
    }

    /// Returns half the width of the interval, if there is one.
    pub fn half_width(self) -> Option<f64> {
        self.interval.map(|i| (i.high - i.low) / 2.0)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = if self.median < 10.0 { 3 } else { 1 };
        write!(f, "{:.decimals$}", self.median)?;
        match self.interval {
            Some(Interval { low, high }) => write!(f, " [{low:.decimals$}, {high:.decimals$}]"),
            None => Ok(()),
        }
    }
}

/// The two ends of an interval.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The conclusion that the interval of a cost ratio supports.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval shows that the cost is lower by more than the margin.
    Better,
    /// The whole interval is within the margin, and within [`DEFAULT_MARGIN`].
    Same,
    /// The interval is too wide to tell, or does not exist.
    Undecided,
    /// The whole interval shows that the cost is higher by more than the margin.
    Worse,
    /// Nothing can be compared: a control differs from its contender, slices failed, or the work
    /// was not the same.
    Void,
}

impl Verdict {
    /// Returns the verdict on a cost ratio if differences up to `margin` do not matter.
    pub fn of(cost: Ratio, margin: f64) -> Verdict {
        let Some(Interval { low, high }) = cost.interval else { return Verdict::Undecided };
        let within = |margin: f64| low >= 1.0 / (1.0 + margin) && high <= 1.0 + margin;
        if high < 1.0 / (1.0 + margin) {
            Verdict::Better
        } else if low > 1.0 + margin {
            Verdict::Worse
        } else if within(margin.min(DEFAULT_MARGIN)) {
            Verdict::Same
        } else {
            Verdict::Undecided
        }
    }

    /// Returns true if the verdict is that the sides differ.
    pub fn is_different(self) -> bool {
        matches!(self, Verdict::Better | Verdict::Worse)
    }

    /// Returns true if the verdict is that the sides differ or are the same.
    pub fn is_decided(self) -> bool {
        self.is_different() || self == Verdict::Same
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Better => "better",
            Verdict::Same => "same",
            Verdict::Undecided => "undecided",
            Verdict::Worse => "worse",
            Verdict::Void => "void",
        })
    }
}

/// The maximum number of values in a group. In larger groups, neighbours are replaced by their
/// median.
const MAX_GROUP_VALUES: usize = 60;

/// Computes ratios of two groups of values that do not form rounds, with intervals that all miss
/// with the same probability.
///
/// The interval is by Hodges and Lehmann (1963), with the rank test of Mann and Whitney (1947):
/// from the ratios of every value in one group to every value in the other, it leaves out as many
/// at either end as the rank distribution of equal groups allows. It assumes only that the values
/// are independent and that the distributions of the groups differ by a factor.
#[derive(Debug)]
pub struct GroupRatios {
    miss: f64,
    /// For each pair of group sizes, which ratio from either end is an end of the interval.
    depths: BTreeMap<[usize; 2], usize>,
}

impl GroupRatios {
    /// Creates the computation for intervals that miss with this probability.
    pub fn new(miss: f64) -> GroupRatios {
        GroupRatios { miss, depths: BTreeMap::new() }
    }

    /// Returns the ratio of `new` to `old`, whose values are all above 0, with its interval.
    /// Returns `None` if a group is empty.
    pub fn of(&mut self, old: &[f64], new: &[f64]) -> Option<Ratio> {
        let [old, new] = [combine_neighbours(old), combine_neighbours(new)];
        let mut ratios: Vec<f64> =
            new.iter().flat_map(|new| old.iter().map(move |old| new / old)).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let sizes = [old.len(), new.len()];
        let depth = *self.depths.entry(sizes).or_insert_with(|| rank_depth(sizes, self.miss));
        let interval = (depth > 0)
            .then(|| Interval { low: ratios[depth - 1], high: ratios[ratios.len() - depth] });
        median(&ratios).map(|median| Ratio { median, interval })
    }
}

/// Reduces a group to at most [`MAX_GROUP_VALUES`] values by taking medians of neighbours.
fn combine_neighbours(values: &[f64]) -> Vec<f64> {
    values.chunks(values.len().div_ceil(MAX_GROUP_VALUES).max(1)).filter_map(median).collect()
}

/// Returns the largest k with 2 · P(U < k) ≤ miss, where U is the statistic of Mann and Whitney for
/// groups with the same distribution. The k-th ratio from either end is an end of the interval.
fn rank_depth([old, new]: [usize; 2], miss: f64) -> usize {
    let mut below = 0.0;
    let mut is_rare = |probability: &f64| {
        below += probability;
        2.0 * below <= miss
    };
    distribution(old, new).iter().take_while(|probability| is_rare(probability)).count()
}

/// Returns P(U = u) for groups of these sizes, for every u from 0 to `old` × `new`.
///
/// The largest value is in either group with a probability equal to the group's share of all
/// values. If it is in the first group, it exceeds all values of the second group. Without it, the
/// groups are a smaller case of the same problem.
fn distribution(old: usize, new: usize) -> Vec<f64> {
    let most = old * new + 1;
    // The distributions for (i, j) and all j, starting with i = 0, where no value exceeds another.
    let mut row: Vec<Vec<f64>> = vec![vec![1.0]; new + 1];
    for i in 1..=old {
        let mut next: Vec<Vec<f64>> = vec![vec![1.0]];
        for j in 1..=new {
            let share = i as f64 / (i + j) as f64;
            let mut found = vec![0.0; (i * j + 1).min(most)];
            row[j].iter().enumerate().for_each(|(u, p)| found[u + j] += share * p);
            next[j - 1].iter().enumerate().for_each(|(u, p)| found[u] += (1.0 - share) * p);
            next.push(found);
        }
        row = next;
    }
    row.pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn median_of_odd_even_and_empty_lists() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn interval_needs_six_rounds() {
        let five = Ratio::of(&[0.5; 5], MISS_PROBABILITY).expect("five rounds have no median");
        assert_eq!(five, Ratio { median: 0.5, interval: None });
        let six = Ratio::of(&[0.5; 6], MISS_PROBABILITY).expect("six rounds have no median");
        assert_eq!(six.interval, Some(Interval { low: 0.5, high: 0.5 }));
        assert_eq!(Ratio::of(&[], MISS_PROBABILITY), None);
        assert_eq!(rounds_for(MISS_PROBABILITY), 6);
    }

    /// Quantiles of Bin(n, ½), such as P(Bin(15, ½) ≤ 3) = 1.8 % and P(Bin(15, ½) ≤ 4) = 5.9 %.
    #[test]
    fn intervals_follow_the_sign_test() {
        let ends = |count: u32| {
            let values: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            interval(&values, MISS_PROBABILITY).map(|interval| (interval.low, interval.high))
        };
        let found = [0, 1, 5, 6, 8, 9, 12, 15, 20].map(ends);
        let [first, last] = [Some((1.0, 6.0)), Some((1.0, 8.0))];
        let rest = [Some((2.0, 8.0)), Some((3.0, 10.0)), Some((4.0, 12.0)), Some((6.0, 15.0))];
        let expected = [None, None, None, first, last, rest[0], rest[1], rest[2], rest[3]];
        assert_eq!(found, expected);
    }

    #[test]
    fn intervals_of_many_verdicts_are_wider_and_need_more_rounds() {
        let rounds: Vec<f64> = (1..=15).map(f64::from).collect();
        let low = |verdicts| interval(&rounds, shared_miss(verdicts)).map(|found| found.low);
        assert_eq!([1, 48, 1600, 1800].map(low), [Some(4.0), Some(2.0), Some(1.0), None]);
        assert_eq!([1, 48, 1800].map(|count| rounds_for(shared_miss(count))), [6, 10, 16]);
        assert_eq!([0, 1, 2].map(shared_miss), [MISS_PROBABILITY; 3]);
        assert_eq!(shared_miss(4), MISS_PROBABILITY / 2.0);
        assert_eq!([0, 1, 4].map(joint_miss), [1.0, 1.0, 4.0].map(|n| MISS_PROBABILITY / n));
        // Half of the rounds, minus 1.96 standard deviations of 50.
        assert_eq!(sign_depth(10_000, MISS_PROBABILITY), 4902);
    }

    #[test]
    fn distance_uses_the_near_end_and_reach_the_far_end() {
        let with = |low, high| Ratio { median: 1.0, interval: Some(Interval { low, high }) };
        assert!((with(1.25, 1.5).distance() - 0.25).abs() < 1e-12);
        assert!((with(0.5, 0.75).distance() - 0.25).abs() < 1e-12);
        assert_eq!(with(0.9, 1.1).distance(), 0.0);
        assert!((with(0.75, 1.5).reach() - 0.5).abs() < 1e-12);
        assert!((with(0.75, 1.125).reach() - 0.25).abs() < 1e-12);
        assert_eq!(Ratio { median: 0.1, interval: None }.distance(), 0.0);
    }

    #[test]
    fn verdict_depends_on_the_whole_interval() {
        let of = |low, high, margin| {
            let cost =
                Ratio { median: f64::midpoint(low, high), interval: Some(Interval { low, high }) };
            Verdict::of(cost, margin)
        };
        assert_eq!(of(0.85, 0.95, DEFAULT_MARGIN), Verdict::Better);
        assert_eq!(of(0.85, 0.98, DEFAULT_MARGIN), Verdict::Undecided);
        assert_eq!(of(1.05, 1.2, DEFAULT_MARGIN), Verdict::Worse);
        assert_eq!(of(1.05, 1.2, 0.1), Verdict::Undecided);
        assert_eq!(of(0.98, 1.02, DEFAULT_MARGIN), Verdict::Same);
        // A larger margin does not make a wider interval count as the same.
        assert_eq!(of(0.95, 1.05, 0.1), Verdict::Undecided);
        assert_eq!(
            Verdict::of(Ratio { median: 0.1, interval: None }, DEFAULT_MARGIN),
            Verdict::Undecided
        );
    }

    #[test]
    fn ratio_displays_three_decimals_and_its_interval() {
        let ratio = Ratio { median: 0.41249, interval: Some(Interval { low: 0.4, high: 0.43 }) };
        assert_eq!(ratio.to_string(), "0.412 [0.400, 0.430]");
        assert_eq!(Ratio { interval: None, ..ratio }.to_string(), "0.412");
        let large = Ratio { median: 12.34, interval: Some(Interval { low: 9.99, high: 13.0 }) };
        assert_eq!(large.to_string(), "12.3 [10.0, 13.0]");
    }

    fn ratio(old: &[f64], new: &[f64], miss: f64) -> Option<Ratio> {
        GroupRatios::new(miss).of(old, new)
    }

    /// The six orders of two groups of 2 are equally likely: U is 0, 1, 2, 2, 3, 4.
    #[test]
    fn rank_distribution_counts_orderings() {
        let close = |found: Vec<f64>, expected: &[f64]| {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(a, b)| (a - b / 6.0).abs() < 1e-12)
        };
        assert!(close(distribution(2, 2), &[1.0, 1.0, 2.0, 1.0, 1.0]));
        assert!((distribution(30, 40).iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    /// Critical values from published two-sided tables for 5 % and 1 %: the largest U that is
    /// rejected.
    #[test]
    fn rank_depths_match_published_tables() {
        for (old, new, miss, most) in
            [(5, 5, 0.05, 2), (8, 8, 0.05, 13), (10, 10, 0.05, 23), (15, 15, 0.05, 64)]
        {
            assert_eq!(rank_depth([old, new], miss), most + 1, "{old} and {new}");
        }
        assert_eq!(rank_depth([10, 12], 0.01), 21 + 1);
        assert_eq!(
            (rank_depth([3, 3], MISS_PROBABILITY), rank_depth([0, 9], MISS_PROBABILITY)),
            (0, 0)
        );
    }

    #[test]
    fn group_ratio_finds_a_factor_and_needs_enough_values() {
        let old: Vec<f64> = (0..15).map(|n| 100.0 + f64::from(n)).collect();
        let new: Vec<f64> = old.iter().map(|value| value * 2.0).collect();
        let found = ratio(&old, &new, MISS_PROBABILITY).expect("there are no values");
        assert_eq!(found.median, 2.0);
        let interval = found.interval.expect("there are too few values");
        assert!(interval.low > 1.9 && interval.high < 2.1, "{found}");
        let wider = ratio(&old, &new, MISS_PROBABILITY / 100.0).and_then(|found| found.interval);
        assert!(wider.is_some_and(|wider| wider.low < interval.low));
        assert_eq!(
            ratio(&old[..3], &new[..3], MISS_PROBABILITY).map(|found| found.interval),
            Some(None)
        );
        assert_eq!(ratio(&[], &new, MISS_PROBABILITY), None);
    }

    #[test]
    fn large_groups_are_reduced_to_medians_of_neighbours() {
        let many: Vec<f64> = (0..1000).map(|n| 1.0 + f64::from(n % 7) / 100.0).collect();
        assert_eq!(combine_neighbours(&many).len(), 59);
        let found = ratio(&many, &many, MISS_PROBABILITY).expect("there are no values");
        assert_eq!(found.median, 1.0);
    }

    fn rounds() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(0.05_f64..20.0, rounds_for(MISS_PROBABILITY)..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn interval_contains_the_median_and_lies_within_the_rounds(values in rounds()) {
            let ratio = Ratio::of(&values, MISS_PROBABILITY).unwrap();
            let Interval { low, high } = ratio.interval.unwrap();
            prop_assert!(low <= ratio.median && ratio.median <= high);
            prop_assert!(values.iter().any(|&v| v <= low) && values.iter().any(|&v| v >= high));
        }

        #[test]
        fn median_is_independent_of_order(mut values in rounds(), seed: u64) {
            let before = median(&values);
            fastrand::Rng::with_seed(seed).shuffle(&mut values);
            prop_assert_eq!(median(&values), before);
        }

        #[test]
        fn scaling_rounds_scales_the_interval(values in rounds()) {
            let doubled: Vec<f64> = values.iter().map(|v| v * 2.0).collect();
            let (one, two) = (Ratio::of(&values, MISS_PROBABILITY).unwrap(), Ratio::of(&doubled, MISS_PROBABILITY).unwrap());
            prop_assert_eq!(two.median, one.median * 2.0);
            prop_assert_eq!(two.interval.unwrap().low, one.interval.unwrap().low * 2.0);
            prop_assert_eq!(two.interval.unwrap().high, one.interval.unwrap().high * 2.0);
        }

        #[test]
        fn inverting_a_ratio_twice_restores_it(values in rounds()) {
            let ratio = Ratio::of(&values, MISS_PROBABILITY).unwrap();
            let back = ratio.inverse().inverse();
            prop_assert!((back.median - ratio.median).abs() < 1e-9);
            prop_assert_eq!(ratio.distance() == 0.0, ratio.inverse().distance() == 0.0);
        }
    }
}
