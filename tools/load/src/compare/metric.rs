//! The metrics that are compared.

use super::side_sample::SideSample;
use serde::{Serialize, Serializer};
use std::fmt;

/// A figure by which two sides are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Answers a second.
    Rate,
    /// The median response time.
    P50,
    /// The 99th percentile of response times.
    P99,
    /// The 99.9th percentile of response times.
    P999,
    /// The mean response time.
    Mean,
    /// CPU time of the load an answer. It is not that of the server.
    Cpu,
}

impl Metric {
    /// All of them, as they are shown.
    pub const ALL: [Metric; 6] =
        [Metric::Rate, Metric::P50, Metric::P99, Metric::P999, Metric::Mean, Metric::Cpu];

    /// The name of the metric.
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

    /// Whether a higher value is a better one.
    pub fn is_better_if_higher(self) -> bool {
        self == Metric::Rate
    }

    /// The share of the latencies, if the metric is a percentile.
    pub(super) fn share(self) -> Option<f64> {
        match self {
            Metric::P50 => Some(0.5),
            Metric::P99 => Some(0.99),
            Metric::P999 => Some(0.999),
            Metric::Rate | Metric::Mean | Metric::Cpu => None,
        }
    }

    /// The value for a piece: answers a second, or ns; none if it was not measured there, or by too few latencies.
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
