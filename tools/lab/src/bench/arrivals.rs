//! How requests arrived: how many of them left the load together.

use serde::Serialize;

use super::Bench;
use super::cell::Cell;
use super::record::Record;

/// The lower ends of the ranges of group sizes. Each range ends before the next one.
pub const GROUP_SIZES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Keys of a sample: the number of requests that left the load in groups of each range of sizes.
const KEYS: [&str; GROUP_SIZES.len()] = [
    "together_1",
    "together_2",
    "together_4",
    "together_8",
    "together_16",
    "together_32",
    "together_64",
];

/// Requests in one cell by the size of their group, of all contenders together. A group is what the
/// load sends in one turn of its loop, so it reaches the server at once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Arrivals {
    /// The cell.
    pub cell: Cell,
    /// The share of requests whose group has a size in each range of [`GROUP_SIZES`].
    pub shares: [f64; GROUP_SIZES.len()],
}

impl Arrivals {
    /// Returns the arrivals of every cell in which the load counted them.
    pub(super) fn all(bench: &Bench, record: &Record) -> Vec<Arrivals> {
        (0..bench.cells.len()).filter_map(|cell| Arrivals::of(bench, record, cell)).collect()
    }

    fn of(bench: &Bench, record: &Record, cell: usize) -> Option<Arrivals> {
        let mut requests = [0.0; GROUP_SIZES.len()];
        let contenders = 0..bench.contenders.all().count();
        let outcomes = contenders.flat_map(|contender| record.outcomes(contender, cell));
        for sample in outcomes.filter_map(|outcome| outcome.as_ref().ok()) {
            for (sum, key) in requests.iter_mut().zip(KEYS) {
                *sum += sample.get(key).unwrap_or_default();
            }
        }
        let all: f64 = requests.iter().sum();
        let shares = requests.map(|requests| requests / all);
        (all > 0.0).then(|| Arrivals { cell: bench.cells[cell].clone(), shares })
    }
}

/// Returns the numbers of a sample for groups, each with its size and the number of times that it
/// occurred.
pub(crate) fn together(groups: &[(u64, u64)]) -> impl Iterator<Item = (&'static str, f64)> {
    let mut requests = [0; GROUP_SIZES.len()];
    for &(size, count) in groups {
        let range = (size.max(1).ilog2() as usize).min(GROUP_SIZES.len() - 1);
        requests[range] += size * count;
    }
    KEYS.into_iter().zip(requests).filter(|(_, count)| *count > 0).map(|(key, n)| (key, n as f64))
}

/// Returns the name of each range of sizes: `1`, `2–3`, `64 or more`.
pub fn range_names() -> impl Iterator<Item = String> {
    GROUP_SIZES.into_iter().enumerate().map(|(place, low)| match GROUP_SIZES.get(place + 1) {
        None => format!("{low} or more"),
        Some(next) if next - 1 == low => low.to_string(),
        Some(next) => format!("{low}–{}", next - 1),
    })
}

#[cfg(test)]
mod tests {
    use super::super::metric::Sample;
    use super::super::schedule::Slice;
    use super::super::tests::{bench, sample};
    use super::*;

    #[test]
    fn requests_are_counted_by_the_size_of_their_group() {
        let found: Vec<_> = together(&[(1, 5), (2, 1), (3, 2), (64, 1), (200, 1)]).collect();
        assert_eq!(found, [("together_1", 5.0), ("together_2", 8.0), ("together_64", 264.0)]);
        let names: Vec<String> = range_names().collect();
        assert_eq!(names, ["1", "2–3", "4–7", "8–15", "16–31", "32–63", "64 or more"]);
    }

    #[test]
    fn shares_are_of_all_contenders_and_absent_without_counts() {
        let bench = bench(&["a", "b"]);
        let mut record = Record::new();
        for contender in 0..3 {
            let mut sample: Sample = sample(2.0);
            together(&[(1, 10), (16, 1 + contender as u64)])
                .for_each(|(key, number)| sample.set(key, number));
            record.keep(Slice { round: 0, cell: 0, contender }, Ok(sample));
        }
        let [found] = <[Arrivals; 1]>::try_from(Arrivals::all(&bench, &record)).expect("one cell");
        assert_eq!(found.shares[0], 30.0 / 126.0);
        assert_eq!(found.shares[4], 96.0 / 126.0);
        let record = super::super::tests::record(3, 6, |_, _| 2.0);
        assert_eq!(Arrivals::all(&bench, &record), []);
    }
}
