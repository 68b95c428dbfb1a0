//! Figures computed from a recording.

use super::{ClassInterval, DatagramCounts, Interval, Latencies};
use serde::Serialize;
use std::collections::BTreeMap;

/// A percentile is given only if at least this many latencies exceed it.
pub const MIN_SAMPLES_BEYOND: f64 = 10.0;

/// The figures of an interval, or of a whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Requests that ended: answered or failed.
    pub requests: u64,
    /// Complete replies, including those counted in `refused`.
    pub responses: u64,
    /// Replies per second.
    pub requests_per_second: f64,
    /// Requests sent, including those sent again. `in_flight_at_start + sent = responses + failed +
    /// retried + cut_off` in a whole run of streams.
    pub sent: u64,
    /// Requests that were sent, but failed and were never answered.
    pub failed: u64,
    /// Requests in flight when the measured time began.
    pub in_flight_at_start: u64,
    /// Requests in flight when the measured time ended that have not failed since.
    pub cut_off: u64,
    /// Requests that the server did not process, and that are due to be sent again.
    pub retried: u64,
    /// Requests that were due before the measured time ended, but had not been sent: requests of an
    /// open loop's schedule, and retries.
    pub unsent: u64,
    /// Replies in `responses` that report a failure or are not the expected ones.
    pub refused: u64,
    /// Connections that were opened to replace others.
    pub reconnects: u64,
    /// Requests sent more than a millisecond after they were due.
    pub late: u64,
    /// Bytes sent, without the overhead of TLS.
    pub bytes_sent: u64,
    /// Bytes received, without the overhead of TLS.
    pub bytes_received: u64,
    /// Bytes sent per second.
    pub bytes_sent_per_second: f64,
    /// Bytes received per second.
    pub bytes_received_per_second: f64,
    /// Replies by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Replies by HTTP status.
    pub statuses: BTreeMap<u16, u64>,
    /// Response times in µs: from when a request was due to the end of its reply, or to its
    /// time-out.
    pub latency_us: Percentiles,
    /// Service times in µs: from when a request was written to the end of its reply, or to its
    /// time-out.
    pub service_us: Percentiles,
    /// How many requests the load sent together.
    pub together: GroupSizes,
    /// Datagram counts; `None` if the run has no datagrams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<DatagramCounts>,
}

/// How many requests the load sent together: the sizes of the groups that left in one turn of a
/// thread's loop, to two digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupSizes {
    /// Number of groups.
    pub groups: u64,
    /// The mean size, rounded to two decimals.
    pub mean: f64,
    /// The median size.
    pub p50: u64,
    /// The 99th percentile of the sizes.
    pub p99: u64,
    /// The maximum size.
    pub max: u64,
    /// A histogram: powers of two, each with the number of groups whose size is at least this power
    /// and below the next one. Empty buckets are left out.
    pub histogram: Vec<(u64, u64)>,
}

impl GroupSizes {
    fn new(sizes: &Latencies) -> GroupSizes {
        let mut histogram: Vec<(u64, u64)> = Vec::new();
        for &(size, count) in sizes.buckets() {
            let least = 1 << size.max(1).ilog2();
            match histogram.last_mut().filter(|(last, _)| *last == least) {
                Some((_, sum)) => *sum += count,
                None => histogram.push((least, count)),
            }
        }
        GroupSizes {
            groups: sizes.len(),
            mean: (sizes.mean() * 100.0).round() / 100.0,
            p50: sizes.quantile(0.5),
            p99: sizes.quantile(0.99),
            max: sizes.max(),
            histogram,
        }
    }
}

/// The figures of one request class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassSummary {
    /// The name of the class, from [`Recording::classes`](super::Recording::classes).
    pub name: String,
    /// Requests sent, including those sent again.
    pub sent: u64,
    /// Complete replies, including those counted in `refused`.
    pub responses: u64,
    /// Replies in `responses` that report a failure or are not the expected ones.
    pub refused: u64,
    /// Requests that were sent, but failed and were never answered.
    pub failed: u64,
    /// Replies by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Response times in µs: from when a request was due to the end of its reply, or to its
    /// time-out.
    pub latency_us: Percentiles,
}

impl ClassSummary {
    /// Summarises the figures of the class with this name.
    pub fn new(name: impl Into<String>, class: &ClassInterval) -> ClassSummary {
        ClassSummary {
            name: name.into(),
            sent: class.sent,
            responses: class.answered,
            refused: class.refused,
            failed: class.failed,
            outcomes: class.outcomes.clone(),
            latency_us: Percentiles::new(&class.response),
        }
    }
}

/// A distribution of latencies in µs, to three digits. All values are zero if there are no samples.
///
/// A percentile is missing if fewer than ten latencies exceed it ([`MIN_SAMPLES_BEYOND`]): p99
/// needs a thousand samples, and p99.999 a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Number of latencies.
    pub samples: u64,
    /// The shortest latency.
    pub min: f64,
    /// The mean latency.
    pub mean: f64,
    /// The median latency.
    pub p50: Option<f64>,
    /// The 90th percentile.
    pub p90: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p99_9: Option<f64>,
    /// The 99.99th percentile.
    #[serde(rename = "p99.99")]
    pub p99_99: Option<f64>,
    /// The 99.999th percentile.
    #[serde(rename = "p99.999")]
    pub p99_999: Option<f64>,
    /// The longest latency.
    pub max: f64,
}

impl Summary {
    /// Summarises an interval, or a sum of intervals.
    pub fn new(interval: &Interval) -> Summary {
        let answered = interval.answered;
        Summary {
            requests: answered.saturating_add(interval.failed),
            responses: answered,
            requests_per_second: interval.rate(),
            sent: interval.sent,
            failed: interval.failed,
            in_flight_at_start: interval.in_flight_at_start,
            cut_off: interval.cut_off,
            unsent: interval.unsent,
            refused: interval.refused,
            retried: interval.retried,
            reconnects: interval.reconnects,
            late: interval.late,
            bytes_sent: interval.bytes_sent,
            bytes_received: interval.bytes_received,
            bytes_sent_per_second: interval.per_second(interval.bytes_sent),
            bytes_received_per_second: interval.per_second(interval.bytes_received),
            statuses: interval.statuses.clone(),
            outcomes: interval.outcomes.clone(),
            latency_us: Percentiles::new(&interval.response),
            service_us: Percentiles::new(&interval.service),
            together: GroupSizes::new(&interval.together),
            datagrams: interval.datagrams,
        }
    }
}

impl Percentiles {
    /// The names of the percentiles, each with the share of the latencies that do not exceed it.
    pub const SHARES: [(&'static str, f64); 6] = [
        ("p50", 0.5),
        ("p90", 0.9),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("p99.99", 0.9999),
        ("p99.999", 0.99999),
    ];

    /// Computes the percentiles of these latencies.
    pub fn new(latencies: &Latencies) -> Percentiles {
        let samples = latencies.len();
        let at = |share| {
            let has_enough = samples >= Percentiles::samples_for(share);
            has_enough.then(|| micros(latencies.quantile(share) as f64))
        };
        let [p50, p90, p99, p99_9, p99_99, p99_999] =
            Percentiles::SHARES.map(|(_, share)| at(share));
        Percentiles {
            samples,
            min: micros(latencies.min() as f64),
            mean: micros(latencies.mean()),
            p50,
            p90,
            p99,
            p99_9,
            p99_99,
            p99_999,
            max: micros(latencies.max() as f64),
        }
    }

    /// Returns the percentiles in the order of [`Percentiles::SHARES`].
    pub fn values(&self) -> [Option<f64>; 6] {
        [self.p50, self.p90, self.p99, self.p99_9, self.p99_99, self.p99_999]
    }

    /// Returns how many samples the percentile of this share needs.
    pub fn samples_for(share: f64) -> u64 {
        (MIN_SAMPLES_BEYOND / (1.0 - share)).round() as u64
    }
}

/// Converts nanoseconds to µs, rounded to the nanosecond.
fn micros(nanos: f64) -> f64 {
    nanos.round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u64) -> Percentiles {
        Percentiles::new(&Latencies::from_iter((1..=count).map(|n| n * 1000)))
    }

    #[test]
    fn percentiles_without_samples_are_zero() {
        assert_eq!(of(0), Percentiles::default());
    }

    #[test]
    fn percentiles_have_three_digits() {
        let figures = of(1_000_000);
        assert_eq!((figures.samples, figures.min), (1_000_000, 1.0));
        let wanted = [500_000.0, 900_000.0, 990_000.0, 999_000.0, 999_900.0, 999_990.0];
        for (found, wanted) in figures.values().into_iter().zip(wanted) {
            let found = found.expect("there are too few samples");
            assert!((found / wanted - 1.0).abs() < 0.001, "{found} is not near {wanted}");
        }
        assert!((figures.mean / 500_000.5 - 1.0).abs() < 0.001, "{}", figures.mean);
    }

    #[test]
    fn group_sizes_are_counted_by_powers_of_two() {
        let sizes = Latencies::from_iter([(1, 5), (2, 1), (3, 1), (4, 2), (100, 1)]);
        let found = GroupSizes::new(&sizes);
        assert_eq!((found.groups, found.p50, found.max), (10, 1, 100));
        assert_eq!(found.mean, 11.8);
        assert_eq!(found.histogram, [(1, 5), (2, 2), (4, 2), (64, 1)]);
        assert_eq!(GroupSizes::new(&Latencies::default()), GroupSizes::default());
    }

    #[test]
    fn percentile_needs_ten_samples_beyond_it() {
        for (place, (name, share)) in Percentiles::SHARES.into_iter().enumerate() {
            let least = Percentiles::samples_for(share);
            assert_eq!(least, [20, 100, 1000, 10_000, 100_000, 1_000_000][place], "{name}");
            let at = |count| Percentiles::new(&[(1000, count)].into_iter().collect()).values();
            assert_eq!(
                at(least - 1).map(|value| value.is_some()).iter().filter(|has| **has).count(),
                place
            );
            assert_eq!(at(least)[place], Some(1.0));
        }
    }

    #[test]
    fn rate_is_replies_divided_by_time() {
        let interval = Interval { answered: 30, failed: 2, ..Interval::new(0.0, 1.5) };
        let summary = Summary::new(&interval);
        assert_eq!((summary.requests, summary.responses), (32, 30));
        assert_eq!(summary.requests_per_second, 20.0);
        assert_eq!(Summary::new(&Interval::default()).requests_per_second, 0.0);
    }
}
