//! A histogram of durations with logarithmic buckets.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

/// Bits below a duration's highest bit that select its bucket: the width of a bucket is at most an
/// eighth of its shortest duration.
const BUCKET_BITS: u32 = 3;
const BUCKETS_PER_OCTAVE: usize = 1 << BUCKET_BITS;
/// Exponent of two at which the buckets end: 2⁴⁰ ns are 18 minutes. Longer durations are in the
/// last bucket too.
const MAX_BUCKET_EXPONENT: u32 = 40;
const BUCKET_COUNT: usize = (MAX_BUCKET_EXPONENT - BUCKET_BITS + 1) as usize * BUCKETS_PER_OCTAVE;

/// Counts of durations, in 304 buckets: one per nanosecond up to 7 ns, then eight per power of two,
/// up to 18 minutes. A histogram takes 2.4 KiB, regardless of how many durations it counts.
///
/// ```
/// use annulus::stats::Histogram;
/// use std::time::Duration;
///
/// let mut histogram = Histogram::default();
/// (1..=100).for_each(|n| histogram.record(Duration::from_micros(n)));
/// let median = histogram.percentile(50.0).unwrap();
/// assert!(median >= Duration::from_micros(50) && median <= Duration::from_micros(57));
/// assert_eq!(histogram.percentile(100.0), Some(Duration::from_micros(100)));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64; BUCKET_COUNT]>,
    count: u64,
    sum: Duration,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        let (count, sum, max) = Default::default();
        Self { counts: Box::new([0; BUCKET_COUNT]), count, sum, max }
    }
}

impl Histogram {
    /// Counts a duration, without allocating.
    pub fn record(&mut self, duration: Duration) {
        self.counts[bucket(nanos(duration))] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(duration);
        self.max = self.max.max(duration);
    }

    /// Returns the number of durations that have been counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the longest duration, or zero if the histogram is empty.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// Returns the mean duration, or `None` if the histogram is empty.
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum.as_nanos().checked_div(self.count.into())?;
        Some(Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// Returns a duration that this percentage of all durations does not exceed; it is at most an
    /// eighth longer than the exact value. Returns `None` if the histogram is empty. Negative
    /// percentages and NaN count as 0, and values above 100 as 100.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        // The comparison is false for NaN.
        let share = if percent > 0.0 { percent.min(100.0) / 100.0 } else { 0.0 };
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count);
        let reached = self.buckets().scan(0, |below, (bound, count)| {
            *below += count;
            Some((bound, *below))
        });
        let found = { reached }.find(|(_, below)| *below >= rank);
        Some(found.map_or(self.max, |(bound, _)| bound.min(self.max)))
    }

    /// Returns the buckets that are not empty, in ascending order: for each, the longest duration
    /// that it can hold, and its count. The last bucket also holds all durations above about 17
    /// minutes, so its bound is [`Duration::MAX`].
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let counts = self.counts.iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(bucket, count)| (bound(bucket), count))
    }
}

/// Adds the durations of another histogram.
impl AddAssign<&Self> for Histogram {
    fn add_assign(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&*other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percentile = |percent| self.percentile(percent).unwrap_or_default();
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("mean", &self.mean().unwrap_or_default())
            .field("p50", &percentile(50.0))
            .field("p99", &percentile(99.0))
            .field("max", &self.max)
            .finish()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[inline]
fn bucket(nanos: u64) -> usize {
    if nanos < BUCKETS_PER_OCTAVE as u64 {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - BUCKET_BITS;
    let part = (nanos >> shift) as usize % BUCKETS_PER_OCTAVE;
    ((shift as usize + 1) * BUCKETS_PER_OCTAVE + part).min(BUCKET_COUNT - 1)
}

/// Returns the longest duration that belongs in a bucket.
fn bound(bucket: usize) -> Duration {
    if bucket == BUCKET_COUNT - 1 {
        return Duration::MAX;
    }
    let next = bucket + 1;
    let least = match next / BUCKETS_PER_OCTAVE {
        0 => next as u64,
        power => ((BUCKETS_PER_OCTAVE + next % BUCKETS_PER_OCTAVE) as u64) << (power - 1),
    };
    Duration::from_nanos(least - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_lie_within_the_bounds_of_their_bucket() {
        let powers = (0..64).flat_map(|power| {
            let least = 1u64 << power;
            [least - 1, least, least + 1, least + least / 3]
        });
        for nanos in (0..5000).chain(powers) {
            let bucket = bucket(nanos);
            let duration = Duration::from_nanos(nanos);
            assert!(duration <= bound(bucket), "{nanos}");
            assert!(bucket == 0 || duration > bound(bucket - 1), "{nanos}");
            if bucket < BUCKET_COUNT - 1 {
                let most = bound(bucket).as_nanos() as u64;
                assert!(most - nanos <= nanos / 8, "{nanos} is far below {most}");
            }
        }
    }

    #[test]
    fn percentiles_exceed_exact_values_by_at_most_an_eighth() {
        let mut histogram = Histogram::default();
        let durations: Vec<u64> = (1..=1000).map(|n| n * n * 17).collect();
        durations.iter().for_each(|nanos| histogram.record(Duration::from_nanos(*nanos)));
        for percent in [0.0f64, 0.1, 1.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
            let rank = ((percent * 10.0).ceil() as usize).max(1);
            let exact = durations[rank - 1];
            let got = histogram.percentile(percent).unwrap().as_nanos() as u64;
            assert!(got >= exact && got <= exact + exact / 8, "{percent}: {got}, not {exact}");
        }
        assert_eq!(histogram.percentile(f64::NAN), histogram.percentile(0.0));
        assert_eq!(histogram.percentile(1e9), histogram.percentile(100.0));
        assert_eq!(histogram.max().as_nanos() as u64, durations[999]);
        assert_eq!(histogram.sum().as_nanos() as u64, durations.iter().sum::<u64>());
        assert_eq!(histogram.mean(), Some(histogram.sum() / 1000));
    }

    #[test]
    fn empty_histogram_has_no_percentiles_and_longest_durations_share_a_bucket() {
        let mut histogram = Histogram::default();
        assert_eq!(
            (histogram.percentile(50.0), histogram.mean(), histogram.count()),
            (None, None, 0)
        );
        [Duration::MAX, Duration::from_secs(3600)].iter().for_each(|long| histogram.record(*long));
        assert_eq!(histogram.percentile(50.0), Some(Duration::MAX));
        assert_eq!(histogram.buckets().collect::<Vec<_>>(), [(Duration::MAX, 2)]);
    }

    #[test]
    fn adding_histograms_adds_their_counts() {
        let (mut one, mut two, mut both) = <(Histogram, Histogram, Histogram)>::default();
        for nanos in 0..2000 {
            let half = if nanos % 3 == 0 { &mut one } else { &mut two };
            half.record(Duration::from_nanos(nanos));
            both.record(Duration::from_nanos(nanos));
        }
        one += &two;
        assert_eq!(one, both);
    }
}
