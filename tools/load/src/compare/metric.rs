use super::side_sample::SideSample;
use serde::{Serialize, Serializer};
use std::fmt;

/// A figure by which two sides are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Replies per second.
    Rate,
    /// The median response time.
    P50,
    /// The 99th percentile of response times.
    P99,
    /// The 99.9th percentile of response times.
    P999,
    /// The mean response time.
    Mean,
    /// CPU time of the load per reply. It does not include the server's CPU time.
    Cpu,
}

impl Metric {
    /// All metrics, in display order.
    pub const ALL: [Metric; 6] =
        [Metric::Rate, Metric::P50, Metric::P99, Metric::P999, Metric::Mean, Metric::Cpu];

    /// Returns the name that reports and JSON use.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Rate => "rate",
            Metric::P50 => "p50",
            Metric::P99 => "p99",
            Metric::P999 => "p99.9",
            Metric::Mean => "mean",
            Metric::Cpu => "load's CPU",
        }
    }

    /// Returns true if a higher value is better.
    pub fn is_better_if_higher(self) -> bool {
        self == Metric::Rate
    }

    /// Returns the share of the latencies below the percentile, if the metric is a percentile.
    pub(super) fn share(self) -> Option<f64> {
        match self {
            Metric::P50 => Some(0.5),
            Metric::P99 => Some(0.99),
            Metric::P999 => Some(0.999),
            Metric::Rate | Metric::Mean | Metric::Cpu => None,
        }
    }

    /// Returns the value for a sample, in replies per second or in ns, or `None` if it is zero or
    /// was not measured.
    pub(super) fn of(self, piece: &SideSample) -> Option<f64> {
        let SideSample { seconds, answered, cpu, latencies } = piece;
        let value = match (self, self.share()) {
            (_, Some(share)) => latencies.quantile(share) as f64,
            (Metric::Rate, _) => *answered as f64 / seconds,
            (Metric::Cpu, _) => (*cpu)? / *answered as f64 * 1e9,
            (_, None) => latencies.mean(),
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
