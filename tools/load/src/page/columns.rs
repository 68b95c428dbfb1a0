//! A run's time in columns, few enough to be drawn.

use crate::recording::{Interval, Recording};

/// The most columns. A longer run has several intervals in each.
const MOST: usize = 200;

/// The intervals, or sums of several consecutive ones each; what has happened in none is left out.
pub(super) fn of(recording: &Recording) -> Vec<Interval> {
    let together = recording.intervals.len().div_ceil(MOST).max(1);
    recording.intervals.chunks(together).map(sum).collect()
}

fn sum(intervals: &[Interval]) -> Interval {
    let (first, last) = (&intervals[0], &intervals[intervals.len() - 1]);
    let mut sum = Interval::new(first.start, last.end() - first.start);
    intervals.iter().for_each(|interval| sum.add(interval));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::RunInfo;

    #[test]
    fn a_long_run_has_few_columns_and_loses_nothing() {
        let interval = |n| Interval { answered: 2, ..Interval::new(f64::from(n), 1.0) };
        for count in [0, 1, 200, 201, 3600] {
            let intervals = (0..count).map(interval).collect();
            let recording = Recording { intervals, ..Recording::new(RunInfo::default()) };
            let columns = of(&recording);
            assert!(columns.len() <= MOST, "{count}: {}", columns.len());
            assert_eq!(columns.iter().map(|column| column.answered).sum::<u64>(), 2 * count as u64);
            assert_eq!(columns.last().map_or(0.0, Interval::end), f64::from(count));
        }
    }
}
