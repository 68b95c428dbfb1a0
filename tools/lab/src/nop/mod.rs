//! NOP throughput: operations per second of a ring, by queue size and by how the ring is used.
//!
//! The job of a contender is `ENTRIES SECONDS`. For this many seconds after a warm-up, the
//! contender repeatedly fills a queue of this size, submits it with one call, and takes every
//! completion. It answers `operations`, `ns` and `cpu_ns`.

mod work;

use std::time::Duration;

use crate::bench::{Better, Cell, Column, Formula, MIN_RATE_RATIO, Metric, Role, cpu, rate};
use crate::programs::Definition;

pub use work::{MAX_ENTRIES, answer_all};

/// The definition of the bench `nop`. All contenders run on one core.
pub static BENCH: Definition = Definition {
    name: "nop",
    known: &[
        ("ring", None),
        ("lookup", None),
        ("task", None),
        ("liburing", Some(("liburing-nop", &[]))),
        ("liburing-one", Some(("liburing-nop", &["one"]))),
        ("io-uring", Some(("io-uring-nop", &[]))),
        ("nimuring", Some(("nimuring-nop", &[]))),
        ("nimuring-userdata", Some(("nimuring-nop", &["userdata"]))),
    ],
    baseline: Some("liburing"),
    metrics,
    required: &["operations", "ns", "cpu_ns"],
    slices: Some([Duration::from_millis(50), Duration::from_millis(30)]),
    // Contenders warm up for a fifth of the slice.
    job: |cell, slice| (cell.timed_job(slice), slice + ANSWER_TIMEOUT_SLACK, slice * 6 / 5),
    check: None,
};

/// How much longer than its slice an answer may take: for the warm-up, and on a temporarily slow
/// machine.
const ANSWER_TIMEOUT_SLACK: Duration = Duration::from_secs(10);

fn metrics() -> Vec<Metric> {
    vec![
        Metric { role: Role::Guard(MIN_RATE_RATIO), ..rate() },
        Metric {
            key: "per_cpu_second".into(),
            noun: "rate per CPU".into(),
            of: Formula::per("operations", &["cpu_ns"], 1e9),
            better: Better::Higher,
            role: Role::Primary,
            columns: vec![Column::Ratio],
            ..rate()
        },
        Metric { columns: Vec::new(), ..cpu() },
    ]
}

/// Returns the cell for a queue size.
pub fn cell(entries: u32) -> Cell {
    Cell::new([("entries", u64::from(entries).into())])
}
