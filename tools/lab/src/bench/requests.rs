//! Metrics for requests to servers: latencies, and guards that a winner by CPU time must
//! satisfy.

use super::column::Column;
use super::formula::Formula;
use super::metric::{Format, MIN_RATE_RATIO, Metric, Role, rate};
use super::warnings::{CLIENT_CPU_NS, CLIENT_CPU_SHARE};

/// The maximum p99 of a winner, as a multiple of the loser's p99.
const MAX_P99_RATIO: f64 = 1.1;

/// The name of a number in a sample: the memory of the server per subscriber of a broadcast.
pub(crate) const SUBSCRIBER_BYTES_KEY: &str = "subscriber_bytes";

/// Returns the columns of a metric whose ratio is shown.
pub fn with_ratio() -> Vec<Column> {
    vec![Column::Value, Column::Ratio]
}

/// Returns the requests-per-second metric.
pub fn requests() -> Metric {
    Metric {
        title: "requests/s".into(),
        noun: "requests/s".into(),
        role: Role::Guard(MIN_RATE_RATIO),
        columns: with_ratio(),
        ..rate()
    }
}

/// Returns the mean latency of requests.
pub fn mean() -> Metric {
    latency("mean_us", "mean")
}

/// Returns the median latency of requests.
pub fn p50() -> Metric {
    latency("p50_us", "p50")
}

/// Returns the latency that 99 % of requests do not exceed.
pub fn p99() -> Metric {
    Metric { role: Role::Guard(MAX_P99_RATIO), columns: with_ratio(), ..latency("p99_us", "p99") }
}

/// Returns the latency that 99.9 % of requests do not exceed.
pub fn p99_9() -> Metric {
    latency("p99_9_us", "p99.9")
}

/// Returns the share of its core that the client used.
pub fn client_cpu() -> Metric {
    Metric::hidden(CLIENT_CPU_SHARE)
}

/// Returns the memory of the server per subscriber of a broadcast.
pub fn subscriber_bytes() -> Metric {
    let number = Formula::number(SUBSCRIBER_BYTES_KEY);
    let metric = Metric::plain(SUBSCRIBER_BYTES_KEY, "B/subscriber", number);
    Metric { format: Format::Whole, ..metric }
}

/// Returns the CPU time of the client per request.
pub fn client_cost() -> Metric {
    Metric {
        noun: "client CPU".into(),
        role: Role::Primary,
        format: Format::Significant,
        columns: with_ratio(),
        ..Metric::plain(
            "client_cpu_us",
            "client CPU µs",
            Formula::per(CLIENT_CPU_NS, &["operations"], 1e-3),
        )
    }
}

fn latency(key: &str, noun: &str) -> Metric {
    Metric {
        noun: noun.into(),
        role: Role::Compared,
        format: Format::Micros,
        ..Metric::plain(key, &format!("{noun} µs"), Formula::number(key))
    }
}
