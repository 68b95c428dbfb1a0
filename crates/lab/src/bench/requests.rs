//! The metrics of requests to servers: what the winner by CPU time must not do worse than the others, and latencies.

use super::doubt::CLIENT_CPU_SHARE;
use super::metric::{Column, Format, LEAST_RATE, Metric, PLAIN, RATE, Role, Sample};

/// The winner must not have a higher p99 than this, as a multiple of the other's.
const MOST_P99: f64 = 1.1;

/// The columns of a metric whose ratio is not shown.
pub const VALUE: &[Column] = &[Column::Value];

/// The columns of a metric whose ratio is.
pub const RATIO: &[Column] = &[Column::Value, Column::Ratio];

/// A metric that is in the report alone; the base of others.
pub const HIDDEN: Metric = Metric { columns: &[], ..PLAIN };

/// Requests per second.
pub const REQUESTS: Metric = Metric {
    title: "requests/s",
    noun: "requests/s",
    role: Role::Guard(LEAST_RATE),
    columns: RATIO,
    ..RATE
};

/// The mean latency of requests.
pub const MEAN: Metric = latency("mean_us", "mean µs", "mean", |sample| sample.get("mean_us"));

/// Their median latency.
pub const P50: Metric = latency("p50_us", "p50 µs", "p50", |sample| sample.get("p50_us"));

/// The latency that 99 of 100 requests do not exceed.
pub const P99: Metric = Metric {
    role: Role::Guard(MOST_P99),
    columns: RATIO,
    ..latency("p99_us", "p99 µs", "p99", |sample| sample.get("p99_us"))
};

/// The latency that 999 of 1000 do not exceed.
pub const P99_9: Metric =
    latency("p99_9_us", "p99.9 µs", "p99.9", |sample| sample.get("p99_9_us"));

/// How much of its core the client used.
pub const CLIENT_CPU: Metric =
    Metric { key: CLIENT_CPU_SHARE, of: |sample| sample.get(CLIENT_CPU_SHARE), ..HIDDEN };

const fn latency(
    key: &'static str,
    title: &'static str,
    noun: &'static str,
    of: fn(&Sample) -> Option<f64>,
) -> Metric {
    Metric { key, title, noun, of, role: Role::Compared, format: Format::Micros, ..PLAIN }
}
