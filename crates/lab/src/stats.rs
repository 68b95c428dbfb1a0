//! Medians, and ratios with a confidence interval.

use std::fmt;

use serde::Serialize;

/// The fewest rounds for a 95 % interval: five rounds all point one way by chance in 6 % of runs (2 × ½⁵), six in 3 %.
pub const FEWEST_ROUNDS: usize = 6;

/// Number of resamples for one interval.
const RESAMPLES: usize = 5_000;

/// The median; `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| middle(&mut values.to_vec()))
}

/// The interval that holds the median of what `values` are drawn from in at least 95 % of draws; `None` with fewer than [`FEWEST_ROUNDS`]
/// values.
///
/// Its ends are two of the values: the k-th smallest and the k-th largest, of which k − 1 or fewer lie on one side of the median with a
/// probability of at most 2.5 % (a sign test, of any distribution).
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    let (count, below) = (values.len(), ranks_below(values.len()));
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    (below > 0).then(|| Interval { low: sorted[below - 1], high: sorted[count - below] })
}

/// The largest k for which k − 1 or fewer of `count` values lie below the median with a probability of at most 2.5 %; 0 if there is none.
fn ranks_below(count: usize) -> usize {
    if count > 1000 {
        // The normal distribution is as good, and 2 to the power of −count is not a number that there is.
        return ((count as f64 - 1.96 * (count as f64).sqrt()) / 2.0) as usize;
    }
    let mut exactly = 0.5_f64.powi(count as i32);
    let (mut ranks, mut at_most) = (0, exactly);
    while at_most <= 0.025 {
        ranks += 1;
        exactly *= (count + 1 - ranks) as f64 / ranks as f64;
        at_most += exactly;
    }
    ranks
}

/// A ratio: the median over the rounds, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The median of the ratios of the rounds.
    pub median: f64,
    /// Its interval; `None` with fewer than [`FEWEST_ROUNDS`] rounds.
    pub interval: Option<Interval>,
}

impl Ratio {
    /// The median of `ratios`, one per round, with its bootstrap interval; `None` if there are no rounds.
    ///
    /// The rounds are resampled 5,000 times with replacement, by a generator with this seed. The interval spans the
    /// middle 95 % of the medians (Efron's percentile method).
    pub fn of(ratios: &[f64], seed: u64) -> Option<Ratio> {
        let interval = (ratios.len() >= FEWEST_ROUNDS).then(|| bootstrap(ratios, seed));
        median(ratios).map(|median| Ratio { median, interval })
    }

    /// The ratio the other way round.
    pub fn inverse(self) -> Ratio {
        let interval = self.interval.map(|i| Interval { low: 1.0 / i.high, high: 1.0 / i.low });
        Ratio { median: 1.0 / self.median, interval }
    }

    /// The distance of the whole interval from 1: 0 if 1 is inside, or if there is no interval.
    pub fn distance(self) -> f64 {
        self.interval.map_or(0.0, |i| (i.low - 1.0).max(1.0 - i.high).max(0.0))
    }

    /// The largest distance of the interval from 1: 0 if there is none.
    pub fn reach(self) -> f64 {
        self.interval.map_or(0.0, |i| (i.high - 1.0).max(1.0 - i.low))
    }

    /// Whether the whole interval is below 1 by more than `margin`.
    pub fn is_below_one(self, margin: f64) -> bool {
        self.median < 1.0 && self.distance() > margin
    }

    /// Half the width of the interval, if there is one.
    pub fn half_width(self) -> Option<f64> {
        self.interval.map(|i| (i.high - i.low) / 2.0)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Three decimals, or one from 10 on.
        let decimals = if self.median < 10.0 { 3 } else { 1 };
        write!(f, "{:.decimals$}", self.median)?;
        match self.interval {
            Some(Interval { low, high }) => write!(f, " [{low:.decimals$}, {high:.decimals$}]"),
            None => Ok(()),
        }
    }
}

/// The two ends of a 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

fn bootstrap(values: &[f64], seed: u64) -> Interval {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut drawn = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.fill_with(|| values[random.usize(..values.len())]);
            middle(&mut drawn)
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    let tail = RESAMPLES / 40; // 2.5 % on either side.
    Interval { low: medians[tail], high: medians[RESAMPLES - 1 - tail] }
}

/// The median of at least one value; reorders the values.
fn middle(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[half - 1], values[half])
    } else {
        values[half]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    /// Known quantiles of Bin(n, ½), such as P(Bin(15, ½) ≤ 3) = 1.8 % and P(Bin(15, ½) ≤ 4) = 5.9 %.
    #[test]
    fn intervals_of_medians_follow_the_sign_test() {
        let ends = |count: u32| {
            let values: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            median_interval(&values).map(|interval| (interval.low, interval.high))
        };
        let found = [0, 1, 5, 6, 8, 9, 12, 15, 20].map(ends);
        let [first, last] = [Some((1.0, 6.0)), Some((1.0, 8.0))];
        let rest = [Some((2.0, 8.0)), Some((3.0, 10.0)), Some((4.0, 12.0)), Some((6.0, 15.0))];
        let expected = [None, None, None, first, last, rest[0], rest[1], rest[2], rest[3]];
        assert_eq!(found, expected);
        assert_eq!([1000, 1001, 100_000].map(ranks_below), [469, 469, 49_690]);
    }

    #[test]
    fn five_rounds_have_no_interval_and_six_have_one() {
        let five = Ratio::of(&[0.5; 5], 1).expect("five rounds");
        assert_eq!(five, Ratio { median: 0.5, interval: None });
        let six = Ratio::of(&[0.5; 6], 1).expect("six rounds");
        assert_eq!(six.interval, Some(Interval { low: 0.5, high: 0.5 }));
        assert_eq!(Ratio::of(&[], 1), None);
    }

    /// For fifteen distinct rounds the medians of resamples follow a known law. A draw is the k-th smallest of 15 or
    /// less with p = k/15, and the median is at most that value if 8 or more draws are: P(Bin(15, 4/15) ≥ 8) = 2.4 %,
    /// P(Bin(15, 3/15) ≥ 8) = 0.4 %. So the 2.5 % point is the fourth or fifth smallest value, and by symmetry the
    /// other end is the twelfth or eleventh.
    #[test]
    fn interval_agrees_with_the_binomial_law() {
        let rounds: Vec<f64> = (1..=15).map(f64::from).collect();
        for seed in 0..20 {
            let interval = Ratio::of(&rounds, seed).and_then(|r| r.interval).expect("interval");
            assert!((4.0..=5.0).contains(&interval.low), "seed {seed}: {interval:?}");
            assert!((11.0..=12.0).contains(&interval.high), "seed {seed}: {interval:?}");
        }
    }

    #[test]
    fn distance_is_to_the_nearer_end_and_reach_to_the_farther() {
        let with = |low, high| Ratio { median: 1.0, interval: Some(Interval { low, high }) };
        assert!((with(1.25, 1.5).distance() - 0.25).abs() < 1e-12);
        assert!((with(0.5, 0.75).distance() - 0.25).abs() < 1e-12);
        assert_eq!(with(0.9, 1.1).distance(), 0.0);
        assert!((with(0.75, 1.5).reach() - 0.5).abs() < 1e-12);
        assert!((with(0.75, 1.125).reach() - 0.25).abs() < 1e-12);
        assert_eq!(Ratio { median: 0.1, interval: None }.distance(), 0.0);
    }

    #[test]
    fn below_one_needs_the_whole_interval_and_the_margin() {
        let ratio = Ratio { median: 0.9, interval: Some(Interval { low: 0.85, high: 0.95 }) };
        assert!(ratio.is_below_one(0.0) && ratio.is_below_one(0.04));
        assert!(!ratio.is_below_one(0.06));
        assert!(!ratio.inverse().is_below_one(0.0));
        let touching = Ratio { median: 0.9, interval: Some(Interval { low: 0.8, high: 1.0 }) };
        assert!(!touching.is_below_one(0.0));
    }

    #[test]
    fn a_ratio_is_displayed_with_three_decimals_and_its_interval() {
        let ratio = Ratio { median: 0.41249, interval: Some(Interval { low: 0.4, high: 0.43 }) };
        assert_eq!(ratio.to_string(), "0.412 [0.400, 0.430]");
        assert_eq!(Ratio { interval: None, ..ratio }.to_string(), "0.412");
        let large = Ratio { median: 12.34, interval: Some(Interval { low: 9.99, high: 13.0 }) };
        assert_eq!(large.to_string(), "12.3 [10.0, 13.0]");
    }

    fn rounds() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(0.05_f64..20.0, FEWEST_ROUNDS..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn interval_holds_the_median_and_stays_within_the_rounds(values in rounds(), seed: u64) {
            let ratio = Ratio::of(&values, seed).unwrap();
            let Interval { low, high } = ratio.interval.unwrap();
            prop_assert!(low <= ratio.median && ratio.median <= high);
            prop_assert!(values.iter().any(|&v| v <= low) && values.iter().any(|&v| v >= high));
        }

        #[test]
        fn order_of_rounds_does_not_move_the_median(mut values in rounds(), seed: u64) {
            let before = median(&values);
            fastrand::Rng::with_seed(seed).shuffle(&mut values);
            prop_assert_eq!(median(&values), before);
        }

        #[test]
        fn scaling_every_round_scales_the_interval(values in rounds(), seed: u64) {
            let doubled: Vec<f64> = values.iter().map(|v| v * 2.0).collect();
            let (one, two) = (Ratio::of(&values, seed).unwrap(), Ratio::of(&doubled, seed).unwrap());
            prop_assert_eq!(two.median, one.median * 2.0);
            prop_assert_eq!(two.interval.unwrap().low, one.interval.unwrap().low * 2.0);
            prop_assert_eq!(two.interval.unwrap().high, one.interval.unwrap().high * 2.0);
        }

        #[test]
        fn the_other_side_of_the_other_side_is_this_side(values in rounds(), seed: u64) {
            let ratio = Ratio::of(&values, seed).unwrap();
            let back = ratio.inverse().inverse();
            prop_assert!((back.median - ratio.median).abs() < 1e-9);
            prop_assert_eq!(ratio.distance() == 0.0, ratio.inverse().distance() == 0.0);
        }
    }
}
