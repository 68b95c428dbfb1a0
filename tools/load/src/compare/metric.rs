//! What is compared.

use super::sample::Sample;
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

    /// Its name.
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

    /// Its share of the latencies, if it is a percentile.
    pub(super) fn share(self) -> Option<f64> {
        match self {
            Metric::P50 => Some(0.5),
            Metric::P99 => Some(0.99),
            Metric::P999 => Some(0.999),
            Metric::Rate | Metric::Mean | Metric::Cpu => None,
        }
    }

    /// Its value over the pieces of a sample, each taken so many times: answers a second, or ns.
    pub(super) fn of(self, sample: &Sample, times: &[u32]) -> Option<f64> {
        match self {
            Metric::Rate => sample.rate(times),
            Metric::Mean => sample.mean(times),
            Metric::Cpu => sample.cpu(times).map(|seconds| seconds * 1e9),
            Metric::P50 | Metric::P99 | Metric::P999 => sample.quantile(times, self.share()?),
        }
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
