//! File I/O: opening, writing, reading and closing files.
//!
//! A contender works in a given directory. Its jobs have the format [`Cycles::JOB`]. Its answers
//! have `operations`, `bytes` (written plus read), `ns` and `cpu_ns`.

mod cycles;

use std::path::Path;

use annulus::Runtime;
use annulus_load::limits;
use anyhow::Result;

use crate::bench::{Cell, Column, Format, Formula, Metric, Role, cpu, megabytes, rate, with_ratio};
use crate::file_system;
use crate::jobs;
use crate::programs::Definition;
use crate::usage_error::{UsageError, find_own};
use cycles::Executor;

pub use cycles::Cycles;

/// The definition of the bench `file`. All contenders run on one core, in a directory of the run.
pub static BENCH: Definition = Definition {
    name: "file",
    known: &[
        ("threads", None),
        ("tasks", None),
        ("tokio", Some(("file-tokio", &[]))),
        ("rocket", Some(("rocket-file", &[]))),
        ("rocket-threads", Some(("rocket-file", &["threads"]))),
    ],
    baseline: None,
    metrics,
    required: &["operations", "ns", "cpu_ns"],
    slices: None,
    job: |cell, _| {
        let cycles = Cycles::of(cell);
        (cell.job(), cycles.timeout(), cycles.cost())
    },
    check: Some(check),
};

/// Reserves the open files, and returns the name of the file system.
///
/// # Errors
/// If a value is invalid; the error contains the value, its limit and a remedy.
fn check(cells: &[Cell], directory: &Path) -> Result<String> {
    for cell in cells.iter().map(Cycles::of) {
        limits::reserve(cell.workers as usize)?;
    }
    file_system::name(directory)
}

fn metrics() -> Vec<Metric> {
    let seconds = |key: &str, title: &str, ns: &str| {
        let of = Formula::per(ns, &[], 1e-9);
        Metric { format: Format::Decimals(4), ..Metric::plain(key, title, of) }
    };
    vec![
        seconds("cpu_seconds", "CPU s", "cpu_ns"),
        seconds("real_seconds", "real s", "ns"),
        Metric { title: "cycles/s".into(), ..rate() },
        megabytes(),
        Metric { role: Role::Primary, columns: with_ratio(), ..cpu() },
        // The control must also match the contender that it copies in elapsed time.
        Metric {
            noun: "real".into(),
            role: Role::Checked,
            columns: vec![Column::Ratio],
            ..Metric::plain("real_us", "real µs", Formula::per("ns", &["operations"], 1e-3))
        },
    ]
}

/// Acts as a contender: answers jobs until its input ends.
///
/// # Errors
/// If the name or a job is invalid, a job fails, or the runtime cannot be built.
pub fn answer_all(name: &str, directory: &Path) -> Result<()> {
    let mut executor = match find_own(&[("threads", false), ("tasks", true)], name)? {
        true => Executor::Tasks(Runtime::new()?),
        false => Executor::Threads,
    };
    jobs::answer_all(|job| {
        let cell = Cycles::parse(job)
            .ok_or_else(|| UsageError(format!("'{job}' is not {}", Cycles::JOB)))?;
        cycles::answer(&mut executor, directory, cell)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Sample;

    #[test]
    fn metrics_follow_from_what_a_contender_answers() {
        let numbers = [("operations", 4.0), ("bytes", 80.0), ("ns", 2e9), ("cpu_ns", 1e9)];
        let (sample, metrics) = (Sample::from(numbers), metrics());
        let value = |key: &str| {
            let metric = metrics.iter().find(|metric| metric.key == key).expect(key);
            metric.of.of(&sample)
        };
        let keys = ["cpu_seconds", "real_seconds", "rate", "cpu_us", "real_us"];
        let values = keys.map(|key| value(key).expect(key));
        assert_eq!(values, [1.0, 2.0, 2.0, 250_000.0, 500_000.0]);
    }
}
