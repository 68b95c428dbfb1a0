//! The ratio of two groups of values that belong to no common rounds.
//!
//! The interval is that of Hodges and Lehmann (1963) with the rank test of Mann and Whitney (1947): two of the ratios of every value
//! of the one group to every value of the other, so many from either end as the distribution of the ranks of equal groups says. It
//! needs no assumption on how values are distributed, but that they are independent and that the groups differ by a factor.

use std::collections::BTreeMap;

use crate::stats::{Interval, Ratio, median};

/// The most values of a group; neighbours are combined to their median if there are more.
const MOST: usize = 60;

/// Ratios whose intervals miss with one probability.
pub(super) struct Ratios {
    miss: f64,
    /// How many ratios are left out at either end, by the sizes of the groups, of which there are few.
    depths: BTreeMap<[usize; 2], usize>,
}

impl Ratios {
    pub(super) fn new(miss: f64) -> Ratios {
        Ratios { miss, depths: BTreeMap::new() }
    }

    /// The ratio of `new` to `old`, all above 0, with its interval; `None` if a group is empty.
    pub(super) fn of(&mut self, old: &[f64], new: &[f64]) -> Option<Ratio> {
        let [old, new] = [combined(old), combined(new)];
        let mut ratios: Vec<f64> =
            new.iter().flat_map(|new| old.iter().map(move |old| new / old)).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let sizes = [old.len(), new.len()];
        let depth = *self.depths.entry(sizes).or_insert_with(|| depth(sizes, self.miss));
        let interval = (depth > 0)
            .then(|| Interval { low: ratios[depth - 1], high: ratios[ratios.len() - depth] });
        median(&ratios).map(|median| Ratio { median, interval })
    }
}

/// At most [`MOST`] values: the medians of neighbours, if there are more.
fn combined(values: &[f64]) -> Vec<f64> {
    values.chunks(values.len().div_ceil(MOST).max(1)).filter_map(median).collect()
}

/// The largest k with 2 · P(U < k) ≤ miss, if U is the statistic of Mann and Whitney for groups that do not differ: how many
/// ratios may be left out at either end.
fn depth([old, new]: [usize; 2], miss: f64) -> usize {
    let mut below = 0.0;
    let mut is_rare = |probability: &f64| {
        below += probability;
        2.0 * below <= miss
    };
    distribution(old, new).iter().take_while(|probability| is_rare(probability)).count()
}

/// P(U = u) for groups of these sizes, for every u from 0 to `old` × `new`.
///
/// The largest of all values is one of either group with a probability of its share. If it is of the one, it exceeds all
/// values of the other; the rest is a smaller case of the same.
fn distribution(old: usize, new: usize) -> Vec<f64> {
    let most = old * new + 1;
    // Of (i, j) for all j, beginning with i = 0: nothing exceeds anything.
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
    use super::*;
    use crate::stats::MISS;

    fn ratio(old: &[f64], new: &[f64], miss: f64) -> Option<Ratio> {
        Ratios::new(miss).of(old, new)
    }

    /// Of two groups of 2 the six orders are equally likely: U is 0, 1, 2, 2, 3, 4.
    #[test]
    fn the_distribution_counts_orders() {
        let close = |found: Vec<f64>, expected: &[f64]| {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(a, b)| (a - b / 6.0).abs() < 1e-12)
        };
        assert!(close(distribution(2, 2), &[1.0, 1.0, 2.0, 1.0, 1.0]));
        assert!((distribution(30, 40).iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    /// Critical values of the usual tables, of two sides and 5 % and 1 %: the largest U that is rejected.
    #[test]
    fn depths_are_those_of_the_tables() {
        for (old, new, miss, most) in
            [(5, 5, 0.05, 2), (8, 8, 0.05, 13), (10, 10, 0.05, 23), (15, 15, 0.05, 64)]
        {
            assert_eq!(depth([old, new], miss), most + 1, "{old} and {new}");
        }
        assert_eq!(depth([10, 12], 0.01), 21 + 1);
        assert_eq!((depth([3, 3], MISS), depth([0, 9], MISS)), (0, 0));
    }

    #[test]
    fn a_factor_is_found_and_groups_too_small_have_no_interval() {
        let old: Vec<f64> = (0..15).map(|n| 100.0 + f64::from(n)).collect();
        let new: Vec<f64> = old.iter().map(|value| value * 2.0).collect();
        let found = ratio(&old, &new, MISS).expect("values");
        assert_eq!(found.median, 2.0);
        let interval = found.interval.expect("enough");
        assert!(interval.low > 1.9 && interval.high < 2.1, "{found}");
        let wider = ratio(&old, &new, MISS / 100.0).and_then(|found| found.interval);
        assert!(wider.is_some_and(|wider| wider.low < interval.low));
        assert_eq!(ratio(&old[..3], &new[..3], MISS).map(|found| found.interval), Some(None));
        assert_eq!(ratio(&[], &new, MISS), None);
    }

    #[test]
    fn many_values_are_combined() {
        let many: Vec<f64> = (0..1000).map(|n| 1.0 + f64::from(n % 7) / 100.0).collect();
        assert_eq!(combined(&many).len(), 59);
        let found = ratio(&many, &many, MISS).expect("values");
        assert_eq!(found.median, 1.0);
    }
}
