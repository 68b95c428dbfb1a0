//! Summaries of latencies.

use hdrhistogram::Histogram;
use serde::Serialize;

/// A latency distribution in µs, from a histogram; all zero if it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// The minimum.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    /// The maximum.
    pub max: f64,
}

/// By how much something was late, in µs; all zero if nothing was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DelaySummary {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The maximum.
    pub max: f64,
}

/// A set of times in µs, exact; all zero if it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TimeSummary {
    /// The sum.
    pub sum: f64,
    /// The mean.
    pub average: f64,
    /// The minimum.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The maximum.
    pub max: f64,
}

impl LatencySummary {
    /// Summarizes a histogram of nanoseconds.
    pub fn new(histogram: &Histogram<u64>) -> LatencySummary {
        if histogram.is_empty() {
            return LatencySummary::default();
        }
        let at = |quantile| micros(histogram.value_at_quantile(quantile) as f64);
        LatencySummary {
            min: micros(histogram.min() as f64),
            mean: micros(histogram.mean()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: micros(histogram.max() as f64),
        }
    }
}

impl DelaySummary {
    /// Summarizes a histogram of nanoseconds.
    pub(crate) fn new(histogram: &Histogram<u64>) -> DelaySummary {
        let LatencySummary { p50, p99, max, .. } = LatencySummary::new(histogram);
        DelaySummary { p50, p99, max }
    }
}

impl TimeSummary {
    /// Summarizes times in nanoseconds.
    pub(crate) fn new(mut nanos: Vec<u64>) -> TimeSummary {
        if nanos.is_empty() {
            return TimeSummary::default();
        }
        nanos.sort_unstable();
        let micros = |nanos: u64| nanos as f64 / 1e3;
        // The smallest time that is not exceeded by this share.
        let at = |percent: usize| micros(nanos[(nanos.len() * percent).div_ceil(100) - 1]);
        let sum = micros(nanos.iter().sum());
        TimeSummary {
            sum,
            average: sum / nanos.len() as f64,
            min: micros(nanos[0]),
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        }
    }
}

/// Nanoseconds as µs, to the nanosecond.
fn micros(nanos: f64) -> f64 {
    nanos.round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_histogram_is_all_zero() {
        let histogram = Histogram::new(3).unwrap();
        assert_eq!(LatencySummary::new(&histogram), LatencySummary::default());
    }

    #[test]
    fn latencies_are_in_microseconds() {
        let mut histogram = Histogram::new(3).unwrap();
        (1..=1000).for_each(|n| histogram.record(n * 1000).unwrap());
        let summary = LatencySummary::new(&histogram);
        assert_eq!(summary.min, 1.0);
        for (found, wanted) in [
            (summary.mean, 500.5),
            (summary.p50, 500.0),
            (summary.p90, 900.0),
            (summary.p99, 990.0),
            (summary.p99_9, 999.0),
            (summary.max, 1000.0),
        ] {
            assert!((found / wanted - 1.0).abs() < 0.001, "{found} is not near {wanted}");
        }
    }

    #[test]
    fn times_are_exact() {
        let times = TimeSummary::new((1..=1000).rev().map(|n| n * 1000).collect());
        assert_eq!((times.sum, times.average), (500_500.0, 500.5));
        assert_eq!((times.min, times.max), (1.0, 1000.0));
        assert_eq!((times.p50, times.p90, times.p99), (500.0, 900.0, 990.0));
        let one = TimeSummary::new(vec![7000]);
        assert_eq!((one.p50, one.p99, one.max), (7.0, 7.0, 7.0));
        assert_eq!(TimeSummary::new(Vec::new()), TimeSummary::default());
    }
}
