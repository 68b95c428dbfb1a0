//! Medians, and ratios with intervals that hold whatever the values are distributed like (ADR 0050).

use std::fmt;

use serde::{Deserialize, Serialize};

/// The probability that a 95 % interval misses.
pub const MISS: f64 = 0.05;

/// The median; `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (low, high) =
        (sorted.get((sorted.len().checked_sub(1)?) / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// The interval that misses the median of what `values` are drawn from with a probability of at most `miss`; `None` if there
/// are too few values for one.
///
/// Its ends are two of the values: the k-th smallest and the k-th largest. It misses only if fewer than k values are on one
/// side of the median, each of which is there with a probability of one half (the sign test). This needs no assumption
/// on how the values are distributed.
pub fn interval(values: &[f64], miss: f64) -> Option<Interval> {
    let depth = depth(values.len(), miss);
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    (depth > 0).then(|| Interval { low: sorted[depth - 1], high: sorted[sorted.len() - depth] })
}

/// The largest k with 2 · P(Bin(count, ½) < k) ≤ miss.
fn depth(count: usize, miss: f64) -> usize {
    // By logarithms, since ½ⁿ of a thousand rounds is 0.
    let mut log = count as f64 * 0.5_f64.ln();
    let (mut depth, mut below) = (0, log.exp());
    while 2.0 * below <= miss && 2 * depth < count {
        depth += 1;
        log += ((count + 1 - depth) as f64 / depth as f64).ln();
        below += log.exp();
    }
    depth
}

/// The probability with which each of so many intervals may miss so that all hold together with 95 % (Bonferroni).
pub fn shared_miss(intervals: usize) -> f64 {
    MISS / intervals.max(1) as f64
}

/// The fewest rounds for an interval that misses with this probability: 2 × ½ⁿ must not exceed it.
pub fn rounds_for(miss: f64) -> usize {
    (1..1000).find(|&rounds| depth(rounds, miss) > 0).unwrap_or(usize::MAX)
}

/// A ratio: the median over the rounds, with its interval.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Ratio {
    /// The median of the ratios of the rounds.
    pub median: f64,
    /// Its interval, of 95 % if nothing else is said; `None` with too few rounds for one.
    pub interval: Option<Interval>,
}

impl Ratio {
    /// The median of `ratios`, one per round, with the [`interval`] that misses with this probability; `None` if there
    /// are no rounds.
    pub fn of(ratios: &[f64], miss: f64) -> Option<Ratio> {
        median(ratios).map(|median| Ratio { median, interval: interval(ratios, miss) })
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

/// The two ends of an interval.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
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

    #[test]
    fn five_rounds_have_no_interval_and_six_have_one() {
        let five = Ratio::of(&[0.5; 5], MISS).expect("five rounds");
        assert_eq!(five, Ratio { median: 0.5, interval: None });
        let six = Ratio::of(&[0.5; 6], MISS).expect("six rounds");
        assert_eq!(six.interval, Some(Interval { low: 0.5, high: 0.5 }));
        assert_eq!(Ratio::of(&[], MISS), None);
        assert_eq!(rounds_for(MISS), 6);
    }

    /// Quantiles of Bin(n, ½), such as P(Bin(15, ½) ≤ 3) = 1.8 % and P(Bin(15, ½) ≤ 4) = 5.9 %.
    #[test]
    fn intervals_follow_the_sign_test() {
        let ends = |count: u32| {
            let values: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            interval(&values, MISS).map(|interval| (interval.low, interval.high))
        };
        let found = [0, 1, 5, 6, 8, 9, 12, 15, 20].map(ends);
        let [first, last] = [Some((1.0, 6.0)), Some((1.0, 8.0))];
        let rest = [Some((2.0, 8.0)), Some((3.0, 10.0)), Some((4.0, 12.0)), Some((6.0, 15.0))];
        let expected = [None, None, None, first, last, rest[0], rest[1], rest[2], rest[3]];
        assert_eq!(found, expected);
    }

    #[test]
    fn intervals_that_hold_together_are_wider_and_need_more_rounds() {
        let rounds: Vec<f64> = (1..=15).map(f64::from).collect();
        let low = |intervals| interval(&rounds, shared_miss(intervals)).map(|found| found.low);
        assert_eq!([1, 24, 800, 900].map(low), [Some(4.0), Some(2.0), Some(1.0), None]);
        assert_eq!([1, 24, 900].map(|count| rounds_for(shared_miss(count))), [6, 10, 16]);
        assert_eq!(shared_miss(0), MISS);
        // Half of them, less 1.96 standard deviations of 50.
        assert_eq!(depth(10_000, MISS), 4902);
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
        prop::collection::vec(0.05_f64..20.0, rounds_for(MISS)..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn interval_holds_the_median_and_stays_within_the_rounds(values in rounds()) {
            let ratio = Ratio::of(&values, MISS).unwrap();
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
        fn scaling_every_round_scales_the_interval(values in rounds()) {
            let doubled: Vec<f64> = values.iter().map(|v| v * 2.0).collect();
            let (one, two) = (Ratio::of(&values, MISS).unwrap(), Ratio::of(&doubled, MISS).unwrap());
            prop_assert_eq!(two.median, one.median * 2.0);
            prop_assert_eq!(two.interval.unwrap().low, one.interval.unwrap().low * 2.0);
            prop_assert_eq!(two.interval.unwrap().high, one.interval.unwrap().high * 2.0);
        }

        #[test]
        fn the_other_side_of_the_other_side_is_this_side(values in rounds()) {
            let ratio = Ratio::of(&values, MISS).unwrap();
            let back = ratio.inverse().inverse();
            prop_assert!((back.median - ratio.median).abs() < 1e-9);
            prop_assert_eq!(ratio.distance() == 0.0, ratio.inverse().distance() == 0.0);
        }
    }
}
