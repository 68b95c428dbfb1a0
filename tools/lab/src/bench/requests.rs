//! The metrics of requests to servers: latencies, and guards, by which a winner by CPU time must not be worse than the others.

use super::column::Column;
use super::formula::Formula;
use super::metric::{Format, MIN_RATE_RATIO, Metric, Role, rate};
use super::warnings::CLIENT_CPU_SHARE;

/// The winner must not have a higher p99 than this, as a multiple of the other's.
const MAX_P99_RATIO: f64 = 1.1;

/// The columns of a metric whose ratio is shown.
pub fn with_ratio() -> Vec<Column> {
    vec![Column::Value, Column::Ratio]
}

/// Requests per second.
pub fn requests() -> Metric {
    Metric {
        title: "requests/s".into(),
        noun: "requests/s".into(),
        role: Role::Guard(MIN_RATE_RATIO),
        columns: with_ratio(),
        ..rate()
    }
}

/// The mean latency of requests.
pub fn mean() -> Metric {
    latency("mean_us", "mean")
}

/// The median latency of requests.
pub fn p50() -> Metric {
    latency("p50_us", "p50")
}

/// The latency that 99 of 100 requests do not exceed.
pub fn p99() -> Metric {
    Metric { role: Role::Guard(MAX_P99_RATIO), columns: with_ratio(), ..latency("p99_us", "p99") }
}

/// The latency that 999 of 1000 do not exceed.
pub fn p99_9() -> Metric {
    latency("p99_9_us", "p99.9")
}

/// How much of its core the client used.
pub fn client_cpu() -> Metric {
    Metric::hidden(CLIENT_CPU_SHARE)
}

fn latency(key: &str, noun: &str) -> Metric {
    Metric {
        noun: noun.into(),
        role: Role::Compared,
        format: Format::Micros,
        ..Metric::plain(key, &format!("{noun} µs"), Formula::number(key))
    }
}
