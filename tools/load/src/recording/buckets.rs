//! Latencies while they are recorded.

use super::latencies::{Latencies, MAX_LATENCY, PRECISION_BITS};

/// Buckets of a group: those of a power of two, of which the first has two groups.
const GROUP: usize = 1 << (PRECISION_BITS - 1);
/// Groups up to the longest latency.
const GROUPS: usize = (MAX_LATENCY.ilog2() + 3 - PRECISION_BITS) as usize;

/// Counts in the buckets of [`Latencies`]. Memory is taken for powers of two that occur: 8 KB each, where a histogram of an hour takes 270.
pub(super) struct Buckets([Option<Box<[u64; GROUP]>>; GROUPS]);

impl Buckets {
    /// Counts a latency in ns; one above the longest counts as the longest.
    #[inline]
    pub(super) fn record(&mut self, nanos: u64) {
        let nanos = nanos.min(MAX_LATENCY);
        let shift = (nanos >> PRECISION_BITS).checked_ilog2().map_or(0, |bits| bits + 1);
        let bucket = (nanos >> shift) as usize;
        let group = &mut self.0[shift as usize + bucket / GROUP];
        group.get_or_insert_with(new_group)[bucket % GROUP] += 1;
    }

    pub(super) fn to_latencies(&self) -> Latencies {
        let mut pairs = Vec::new();
        for (number, group) in self.0.iter().enumerate() {
            let (shift, first) = number.checked_sub(1).map_or((0, 0), |shift| (shift, GROUP));
            let counts = group.iter().flat_map(|group| group.iter().enumerate());
            let counts = counts.filter(|&(_, &count)| count > 0);
            pairs.extend(counts.map(|(at, &count)| (((first + at) << shift) as u64, count)));
        }
        pairs.into_iter().collect()
    }

    /// Makes it as new, with the same memory.
    pub(super) fn clear(&mut self) {
        self.0.iter_mut().flatten().for_each(|group| group.fill(0));
    }
}

impl Default for Buckets {
    fn default() -> Buckets {
        Buckets([const { None }; GROUPS])
    }
}

#[cold]
fn new_group() -> Box<[u64; GROUP]> {
    Box::new([0; GROUP])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_are_those_of_latencies(values in proptest::collection::vec((0_u32..64, any::<u64>()), 0..200)) {
            let values: Vec<u64> = values.into_iter().map(|(bits, value)| value >> bits).collect();
            let mut buckets = Buckets::default();
            values.iter().for_each(|&value| buckets.record(value));
            prop_assert_eq!(buckets.to_latencies(), values.into_iter().collect());
            buckets.clear();
            prop_assert!(buckets.to_latencies().is_empty());
        }
    }

    #[test]
    fn every_power_of_two_has_its_buckets() {
        for bits in 0..u64::BITS {
            for value in [(1_u64 << bits) - 1, 1 << bits] {
                let mut buckets = Buckets::default();
                buckets.record(value);
                assert_eq!(buckets.to_latencies(), [value].into_iter().collect(), "{value}");
            }
        }
        assert_eq!(GROUPS, 33);
    }
}
