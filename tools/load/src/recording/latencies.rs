use hdrhistogram::Histogram;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The longest latency that is recorded as such, in ns: an hour. Longer ones count as an hour.
pub(crate) const MAX_LATENCY: u64 = 3_600_000_000_000;
/// Number of significant decimal digits of a recorded latency.
pub(crate) const SIGNIFICANT_DIGITS: u8 = 3;
/// Number of bits of a value that select its bucket: with three significant digits, there are 2048
/// buckets below 2¹¹ ns and 1024 per further power of two.
pub(super) const PRECISION_BITS: u32 = 11;

/// Latencies in ns, counted in the buckets of an HdrHistogram from 1 ns to an hour with three
/// significant digits.
///
/// Only non-empty buckets are stored: a second of latencies has a few hundred, of 16 bytes each,
/// where a histogram would take 270 KB. Adding is exact: parts that are recorded separately and
/// then added are equal, bucket by bucket, to recording everything at once.
///
/// In JSON this is an array of pairs `[ns, count]` in ascending order: the highest value of the
/// bucket, and the number of latencies in it.
///
/// ```
/// use annulus_load::recording::Latencies;
///
/// let mut latencies = Latencies::from_iter([1_500, 2_000_000, 1_500]);
/// latencies.add(&Latencies::from_iter([2_000_100]));
/// assert_eq!(latencies.buckets(), [(1_500, 2), (2_000_895, 2)]);
/// assert_eq!((latencies.len(), latencies.quantile(0.5)), (4, 1_500));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Latencies {
    /// The highest value and the count of each non-empty bucket, in ascending order.
    buckets: Vec<(u64, u64)>,
}

impl Latencies {
    /// Converts a histogram. Values above an hour count as an hour.
    pub fn from_histogram(histogram: &Histogram<u64>) -> Latencies {
        let recorded = histogram.iter_recorded();
        let pairs = recorded.map(|step| (step.value_iterated_to(), step.count_at_value()));
        pairs.collect()
    }

    /// Returns the number of latencies.
    pub fn len(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Returns true if there are no latencies.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Returns the highest value in ns and the count of each non-empty bucket, in ascending order.
    pub fn buckets(&self) -> &[(u64, u64)] {
        &self.buckets
    }

    /// Adds all latencies of `other` exactly.
    pub fn add(&mut self, other: &Latencies) {
        if other.is_empty() {
            return;
        }
        let room = self.buckets.len().max(other.buckets.len());
        let own = std::mem::replace(&mut self.buckets, Vec::with_capacity(room));
        let (mut own, mut other) =
            (own.into_iter().peekable(), other.buckets.iter().copied().peekable());
        while let Some(bucket) = next_of_both(&mut own, &mut other) {
            self.buckets.push(bucket);
        }
    }

    /// Returns the latencies as an HdrHistogram, which has the same precision.
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = empty_histogram();
        self.buckets.iter().for_each(|&(value, count)| histogram.saturating_record_n(value, count));
        histogram
    }

    /// Returns the value in ns that this share of the latencies does not exceed, to three digits,
    /// or 0 if there are no latencies.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = ((share.clamp(0.0, 1.0) * self.len() as f64).ceil() as u64).max(1);
        let mut sum = 0_u64;
        let found = self.buckets.iter().find(|(_, count)| {
            sum = count.saturating_add(sum);
            sum >= wanted
        });
        found.or(self.buckets.last()).map_or(0, |&(value, _)| value)
    }

    /// Returns the shortest latency in ns, to three digits, or 0 without latencies.
    pub fn min(&self) -> u64 {
        self.buckets.first().map_or(0, |&(value, _)| bucket_start(value))
    }

    /// Returns the longest latency in ns, to three digits, or 0 without latencies.
    pub fn max(&self) -> u64 {
        self.buckets.last().map_or(0, |&(value, _)| value)
    }

    /// Returns the mean in ns, to three digits, or 0 if there are no latencies.
    pub fn mean(&self) -> f64 {
        let middle =
            |value| (bucket_start(value) + (value - bucket_start(value)).div_ceil(2)) as f64;
        // An empty sum of floats is -0.
        let sum: f64 =
            self.buckets.iter().map(|&(value, count)| middle(value) * count as f64).sum();
        sum.abs() / (self.len() as f64).max(1.0)
    }
}

/// Takes the lowest bucket of two lists. If both have it, the counts are added.
fn next_of_both(
    one: &mut std::iter::Peekable<impl Iterator<Item = (u64, u64)>>,
    other: &mut std::iter::Peekable<impl Iterator<Item = (u64, u64)>>,
) -> Option<(u64, u64)> {
    let (Some(&(a, _)), Some(&(b, _))) = (one.peek(), other.peek()) else {
        return one.next().or_else(|| other.next());
    };
    if a != b {
        return if a < b { one.next() } else { other.next() };
    }
    let ((value, a), (_, b)) = (one.next()?, other.next()?);
    Some((value, a.saturating_add(b)))
}

/// Collects latencies in ns, in any order.
impl FromIterator<u64> for Latencies {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Latencies {
        values.into_iter().map(|value| (value, 1)).collect()
    }
}

/// Collects pairs of a latency in ns and its count, in any order.
impl FromIterator<(u64, u64)> for Latencies {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(pairs: I) -> Latencies {
        let mut pairs: Vec<(u64, u64)> = pairs
            .into_iter()
            .filter(|&(_, count)| count > 0)
            .map(|(value, count)| (bucket_end(value.min(MAX_LATENCY)), count))
            .collect();
        pairs.sort_unstable_by_key(|&(value, _)| value);
        pairs.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 = kept.1.saturating_add(next.1);
            }
            is_same
        });
        Latencies { buckets: pairs }
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Latencies, D::Error> {
        let buckets = Vec::<(u64, u64)>::deserialize(deserializer)?;
        let mut total = 0_u64;
        let mut before = None;
        for &(value, count) in &buckets {
            if value > bucket_end(MAX_LATENCY) || bucket_end(value) != value {
                let text =
                    format!("{value} is not the highest value of a bucket of up to an hour in ns");
                return Err(D::Error::custom(text));
            }
            if before >= Some(value) {
                return Err(D::Error::custom(format!("the bucket {value} is out of order")));
            }
            let sum = total.checked_add(count).filter(|_| count > 0);
            total = sum.ok_or_else(|| {
                D::Error::custom(format!("{count} is not a valid count for {value} ns"))
            })?;
            before = Some(value);
        }
        Ok(Latencies { buckets })
    }
}

/// Creates an empty histogram with the range and precision of [`Latencies`].
pub(crate) fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY, SIGNIFICANT_DIGITS)
        .expect("the constant bounds are invalid")
}

/// Returns the width of a value's bucket, minus one.
fn bucket_mask(value: u64) -> u64 {
    let bits = u64::BITS - (value | ((1 << PRECISION_BITS) - 1)).leading_zeros();
    (1 << (bits - PRECISION_BITS)) - 1
}

/// Returns the lowest value in a value's bucket.
fn bucket_start(value: u64) -> u64 {
    value & !bucket_mask(value)
}

/// Returns the highest value in a value's bucket.
fn bucket_end(value: u64) -> u64 {
    value | bucket_mask(value)
}

/// Buckets per group. The first group covers all values below this; each later one covers one power
/// of two.
const GROUP_BUCKETS: usize = 1 << (PRECISION_BITS - 1);
/// Number of groups up to the longest latency.
const GROUP_COUNT: usize = (MAX_LATENCY.ilog2() + 3 - PRECISION_BITS) as usize;

/// Counts in the buckets of [`Latencies`] while they are recorded. Memory is allocated only for the
/// powers of two that occur: 8 KB each, where a histogram of up to an hour takes 270 KB.
pub(super) struct Buckets([Option<Box<[u64; GROUP_BUCKETS]>>; GROUP_COUNT]);

impl Buckets {
    /// Counts a latency in ns. One above the maximum counts as the maximum.
    #[inline]
    pub(super) fn record(&mut self, nanos: u64) {
        let nanos = nanos.min(MAX_LATENCY);
        let shift = (nanos >> PRECISION_BITS).checked_ilog2().map_or(0, |bits| bits + 1);
        let bucket = (nanos >> shift) as usize;
        let group = &mut self.0[shift as usize + bucket / GROUP_BUCKETS];
        group.get_or_insert_with(new_group)[bucket % GROUP_BUCKETS] += 1;
    }

    pub(super) fn to_latencies(&self) -> Latencies {
        let mut pairs = Vec::new();
        for (number, group) in self.0.iter().enumerate() {
            let (shift, first) =
                number.checked_sub(1).map_or((0, 0), |shift| (shift, GROUP_BUCKETS));
            let counts = group.iter().flat_map(|group| group.iter().enumerate());
            let counts = counts.filter(|&(_, &count)| count > 0);
            pairs.extend(counts.map(|(at, &count)| (((first + at) << shift) as u64, count)));
        }
        pairs.into_iter().collect()
    }

    /// Resets all counts, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.0.iter_mut().flatten().for_each(|group| group.fill(0));
    }
}

impl Default for Buckets {
    fn default() -> Buckets {
        Buckets([const { None }; GROUP_COUNT])
    }
}

#[cold]
fn new_group() -> Box<[u64; GROUP_BUCKETS]> {
    Box::new([0; GROUP_BUCKETS])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(values: &[u64]) -> Histogram<u64> {
        let mut histogram = empty_histogram();
        values.iter().for_each(|&value| histogram.saturating_record(value));
        histogram
    }

    /// Generates values of every magnitude up to an hour.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = (0_u32..=41, any::<u64>())
            .prop_map(|(bits, value)| (value & ((1 << bits) - 1)).min(MAX_LATENCY));
        proptest::collection::vec(value, 0..200)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn buckets_match_hdrhistogram(values in values()) {
            let (dense, sparse) = (histogram(&values), Latencies::from_iter(values));
            prop_assert_eq!(&sparse, &Latencies::from_histogram(&dense));
            prop_assert_eq!(&sparse.histogram(), &dense);
            prop_assert_eq!(sparse.len(), dense.len());
            prop_assert_eq!((sparse.min(), sparse.max()), (dense.min(), dense.max()));
            prop_assert!((sparse.mean() - dense.mean()).abs() <= dense.mean() * 1e-9);
            for share in [0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
                prop_assert_eq!(sparse.quantile(share), dense.value_at_quantile(share));
            }
        }

        #[test]
        fn adding_parts_equals_recording_the_whole(values in values(), places in proptest::collection::vec(0_usize..4, 200)) {
            let mut parts: [Vec<u64>; 4] = Default::default();
            values.iter().zip(places).for_each(|(&value, place)| parts[place].push(value));
            let mut sum = Latencies::default();
            parts.into_iter().for_each(|part| sum.add(&Latencies::from_iter(part)));
            prop_assert_eq!(&sum, &Latencies::from_histogram(&histogram(&values)));
        }

        #[test]
        fn latencies_round_trip_through_json(values in values()) {
            let latencies = Latencies::from_iter(values);
            let text = serde_json::to_string(&latencies).unwrap();
            prop_assert_eq!(serde_json::from_str::<Latencies>(&text).unwrap(), latencies);
        }
    }

    #[test]
    fn latencies_over_an_hour_count_as_an_hour() {
        let latencies = Latencies::from_iter([u64::MAX, MAX_LATENCY]);
        assert_eq!(latencies.buckets(), [(bucket_end(MAX_LATENCY), 2)]);
    }

    #[test]
    fn invalid_buckets_are_rejected() {
        for (text, part) in [
            ("[[2048,1]]", "2048 is not the highest value"),
            ("[[18446744073709551615,1]]", "of up to an hour"),
            ("[[5,1],[5,1]]", "5 is out of order"),
            ("[[5,0]]", "0 is not a valid count for 5 ns"),
            ("[[5,18446744073709551615],[6,1]]", "1 is not a valid count for 6 ns"),
            ("[[5]]", "length 1"),
            ("[[-5,1]]", "-5"),
        ] {
            let error = serde_json::from_str::<Latencies>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }
}

#[cfg(test)]
mod bucket_tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn dense_buckets_match_latencies(values in proptest::collection::vec((0_u32..64, any::<u64>()), 0..200)) {
            let values: Vec<u64> = values.into_iter().map(|(bits, value)| value >> bits).collect();
            let mut buckets = Buckets::default();
            values.iter().for_each(|&value| buckets.record(value));
            prop_assert_eq!(buckets.to_latencies(), values.into_iter().collect());
            buckets.clear();
            prop_assert!(buckets.to_latencies().is_empty());
        }
    }

    #[test]
    fn every_power_of_two_is_recorded_in_the_right_bucket() {
        for bits in 0..u64::BITS {
            for value in [(1_u64 << bits) - 1, 1 << bits] {
                let mut buckets = Buckets::default();
                buckets.record(value);
                assert_eq!(buckets.to_latencies(), [value].into_iter().collect(), "{value}");
            }
        }
        assert_eq!(GROUP_COUNT, 33);
    }
}
