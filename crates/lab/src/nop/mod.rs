//! NOP throughput: how many operations a second get through a ring, by queue size and by how it is used.
//!
//! A contender is asked `ENTRIES SECONDS`: with a ring of that size, warmed up, it fills the queue, submits it by one call
//! and takes every completion, again and again for that long. It answers `operations`, `ns` and `cpu_ns`.

mod work;

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::bench::{
    Bench, Better, CPU, Cell, Column, Layout, Metric, Plan, Prepared, RATE, Role, parameters,
};
use crate::jobs::{Job, Known, Programs, gather};
use crate::peer::Peers;

pub use work::{MAX_ENTRIES, Style, answer_all};

/// The contenders by name.
pub const CONTENDERS: [Known; 6] = [
    Known::own("ring"),
    Known::own("lookup"),
    Known::own("task"),
    Known::peer("liburing", "liburing-nop", None),
    Known::peer("liburing-one", "liburing-nop", Some("one")),
    Known::peer("io-uring", "io-uring-nop", None),
];

/// The contender that the others are compared with, if it is there.
const BASELINE: &str = "liburing";

/// How much longer than its slice an answer may take: setting a ring up, warming up, a machine that is slow at times.
const PATIENCE: Duration = Duration::from_secs(10);

const METRICS: [Metric; 3] = [
    Metric { role: Role::Guard(0.97), ..RATE },
    Metric {
        key: "per_cpu_second",
        noun: "rate per CPU",
        of: |sample| sample.per("operations", "cpu_ns").map(|rate| rate * 1e9),
        better: Better::Higher,
        role: Role::Primary,
        columns: &[Column::Ratio],
        ..RATE
    },
    Metric { columns: &[], ..CPU },
];

/// A comparison that was asked for.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its rounds.
    pub plan: Plan,
    /// Contenders by name.
    pub contenders: Vec<String>,
    /// Entries of the submission queue, all filled before each system call: a cell each.
    pub entries: Vec<u32>,
    /// How long a slice is measured.
    pub slice: Duration,
    /// The core of all contenders.
    pub core: usize,
    /// Where peers come from.
    pub peers: Option<Peers>,
}

impl Setup {
    /// Builds peers and starts all contenders.
    ///
    /// # Errors
    /// If a contender cannot be built or started, or none is left.
    pub fn prepare(self) -> Result<Prepared> {
        let Setup { plan, contenders, entries, slice, core, peers } = self;
        let contenders =
            gather(&CONTENDERS, &contenders, peers.as_ref(), Some(BASELINE), |known| {
                let own = ["bench", "nop", "--contender", known.name].map(Into::into).into();
                (Some(core), known.arguments(own, Vec::new()))
            })?;
        let cells = entries.iter().map(|&entries| cell(entries)).collect::<Vec<_>>();
        let job = |cell: &Cell| Job { line: cell.timed_job(slice), timeout: slice + PATIENCE };
        let jobs = cells.iter().map(job).collect();
        let measure = Programs::start(&contenders, jobs, &["operations", "ns", "cpu_ns"])?;
        let seconds = slice.as_secs_f64();
        let bench = Bench {
            plan,
            terms: format!(" of {seconds} s, all on core {core}"),
            legend: "",
            layout: Layout::Matrix,
            contenders,
            cells,
            metrics: METRICS.into(),
            idle: None,
            cores: None,
            parameters: parameters(json!({ "seconds": seconds, "core": core })),
        };
        Ok(Prepared { bench, measure: Box::new(measure), scratch: None })
    }

    /// About what a slice takes, with a fifth to warm up.
    pub fn cost(&self) -> Duration {
        self.slice * 6 / 5
    }
}

/// The cell of a queue size.
pub fn cell(entries: u32) -> Cell {
    Cell::new([("entries", u64::from(entries).into())])
}
