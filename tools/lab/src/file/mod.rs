//! File I/O: opening, writing, reading and closing files; reading and writing blocks of one file; and moving whole
//! files over streams.
//!
//! A contender works in a given directory. Its jobs have the form [`Cycles::JOB`] or [`Blocks::JOB`]. It answers
//! `operations`, `bytes` (written plus read), `ns` and `cpu_ns`; if each operation was timed, `p50_us` and other
//! percentiles; and if its runtime chose between paths, the number of calls on each.

mod blocks;
mod cycles;
mod disk;
mod executor;
mod fio;
mod peer_end;
mod streams;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use annulus::fs::Policy;
use annulus::{DriverChoice, Runtime};
use annulus_load::{affinity, limits};
use anyhow::{Context, Result};
use serde_json::json;

use crate::bench::{
    Bench, Cell, Column, Contenders, Fold, Format, Formula, Layout, Metric, Plan, Prepared, Role,
    cpu, megabytes, parameters, rate, with_ratio,
};
use crate::jobs::{self, Job, Known, Programs};
use crate::peer::Peers;
use crate::scratch::Scratch;
use crate::usage::UsageError;

pub use blocks::{Blocks, Pattern, STRETCH};
pub use cycles::Cycles;
pub use executor::Style;

/// The contenders by name. fio is for blocks only, tokio for cycles only.
pub const CONTENDERS: [Known; 4] = [
    Known::own("threads"),
    Known::own("tasks"),
    Known::own("fio"),
    Known::peer("tokio", "file-tokio", None),
];

/// How much longer than twice its slice an answer about blocks may take: for the set-up, and for a machine that is slow
/// at times.
const ANSWER_SLACK: Duration = Duration::from_secs(30);

/// CPU time per operation, which chooses the winner …
fn cpu_each() -> Metric {
    Metric { role: Role::Primary, columns: with_ratio(), ..cpu() }
}

/// … and time per operation, by which the control must be equal, too.
fn real_each() -> Metric {
    Metric {
        noun: "real".into(),
        role: Role::Checked,
        columns: vec![Column::Ratio],
        ..Metric::plain("real_us", "real µs", Formula::per("ns", &["operations"], 1e-3))
    }
}

/// How many calls took which path.
fn paths() -> impl Iterator<Item = Metric> {
    let names = ["inline", "misses", "ring", "registered", "worker"];
    names.into_iter().map(|name| Metric { fold: Fold::Sum, ..Metric::hidden(name) })
}

fn of_cycles() -> Vec<Metric> {
    vec![
        seconds("cpu_seconds", "CPU s", "cpu_ns"),
        seconds("real_seconds", "real s", "ns"),
        Metric { title: "cycles/s".into(), ..rate() },
        megabytes(),
        Metric { columns: vec![Column::Ratio], ..cpu_each() },
        real_each(),
    ]
}

fn seconds(key: &str, title: &str, ns: &str) -> Metric {
    let of = Formula::per(ns, &[], 1e-9);
    Metric { format: Format::Decimals(4), ..Metric::plain(key, title, of) }
}

fn of_blocks() -> Vec<Metric> {
    let latencies = [
        ("p50_us", "p50 µs"),
        ("p99_us", "p99 µs"),
        ("p99_9_us", "p99.9 µs"),
        ("max_us", "max µs"),
    ];
    let latencies =
        latencies.into_iter().map(|(key, title)| Metric::plain(key, title, Formula::number(key)));
    let first = [rate(), megabytes(), cpu_each()].into_iter();
    first.chain(latencies).chain([real_each()]).collect()
}

fn of_streams() -> Vec<Metric> {
    vec![
        Metric { title: "CPU µs a file".into(), ..cpu_each() },
        Metric { title: "real µs a file".into(), columns: with_ratio(), ..real_each() },
        megabytes(),
        Metric { columns: Vec::new(), ..rate() },
    ]
}

/// The work of the contenders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Cycles, with one cell each.
    Cycles(Vec<Cycles>),
    /// Blocks of one file, or streams of the whole file.
    Blocks {
        /// The cell.
        cell: Blocks,
        /// The length of a slice.
        slice: Duration,
        /// The size of the file.
        file_size: u64,
        /// Whether to bypass the page cache.
        direct: bool,
    },
}

impl Work {
    /// Its cells.
    pub fn cells(&self) -> Vec<Cell> {
        match self {
            Work::Cycles(cells) => cells.iter().map(|cycles| cycles.cell()).collect(),
            Work::Blocks { cell, .. } => vec![cell.cell()],
        }
    }

    /// About how long a slice in each of them takes, together.
    pub fn cost(&self) -> Duration {
        match self {
            Work::Cycles(cells) => cells.iter().map(|cycles| cycles.cost()).sum(),
            Work::Blocks { slice, .. } => *slice,
        }
    }
}

/// A comparison.
#[derive(Debug)]
pub struct Setup {
    /// Its rounds.
    pub plan: Plan,
    /// Contenders by name.
    pub contenders: Vec<String>,
    /// The work.
    pub work: Work,
    /// The parent of the directory in which they work.
    pub directory: PathBuf,
    /// The driver of our tasks.
    pub driver: DriverChoice,
    /// The file policy of our tasks.
    pub policy: Policy,
    /// The core of all contenders.
    pub core: usize,
    /// The peers.
    pub peers: Option<Peers>,
}

impl Setup {
    /// Checks memory, disk and open files, and makes a directory.
    ///
    /// # Errors
    /// Names the invalid value, its limit and a remedy.
    pub fn check(&self) -> Result<Scratch> {
        match &self.work {
            Work::Cycles(cells) => cells.iter().try_for_each(|cell| {
                let requested = format!("{} workers × {}", cell.workers, disk::shown(cell.bytes));
                // Each worker has a buffer to write and one to read.
                let files = cell.workers.checked_mul(cell.bytes);
                let memory = files.and_then(|bytes| bytes.checked_mul(2));
                disk::check(&requested, memory, files, &self.directory)?;
                Ok::<_, anyhow::Error>(limits::reserve(cell.workers as usize)?)
            })?,
            Work::Blocks { cell, file_size, .. } => {
                let (bytes, file) = (disk::shown(cell.bytes), disk::shown(*file_size));
                let requested = format!("{} × {bytes} of a file of {file}", cell.depth);
                let more = match cell.pattern {
                    // Then fio has a file of its own.
                    Pattern::Mixed => u64::from(self.contenders.iter().any(|name| name == "fio")),
                    Pattern::Receive => cell.depth,
                    _ => 0,
                };
                let memory = cell.depth.checked_mul(cell.bytes);
                disk::check(&requested, memory, file_size.checked_mul(1 + more), &self.directory)?;
            }
        }
        Ok(Scratch::within(&self.directory).map_err(|error| {
            let directory = self.directory.display();
            UsageError(format!(
                "--dir {directory}: cannot make a directory there: {error}; choose another"
            ))
        })?)
    }

    /// Makes the files, builds peers and starts all contenders. A single contender has no control.
    ///
    /// # Errors
    /// If a file cannot be made, a contender cannot be built or started, or none is left.
    pub fn prepare(self, scratch: Scratch) -> Result<Prepared> {
        let arguments = self.arguments(&scratch)?;
        let found = self.contenders.iter().map(|name| {
            let known = jobs::find(&CONTENDERS, name)?;
            if name == "fio"
                && let Err(why) = fio::find()
            {
                return Ok(Err(why));
            }
            let own = ["bench", "file", "--contender", name].into_iter().map(OsString::from);
            let own = own.chain(arguments.iter().cloned()).collect();
            let arguments = known.arguments(own, vec![scratch.path().into()]);
            known.prepare(self.peers.as_ref(), Some(self.core), arguments)
        });
        let mut contenders = Contenders::gather(found, None)?;
        if contenders.specs.len() == 1 {
            contenders.control = None;
        }
        let (cells, jobs): (Vec<Cell>, Vec<Job>) = self.jobs().into_iter().unzip();
        let measure = Programs::start(&contenders, jobs, &["operations", "ns", "cpu_ns"])?;
        let file_system = disk::file_system(&self.directory)?;
        let driver = Runtime::builder().driver(self.driver).build()?.driver().kind.to_string();
        let Setup { plan, core, policy, work, .. } = self;
        let bench = Bench {
            plan,
            terms: format!(
                ", on core {core}, on {file_system}; tasks on {driver}, policy {policy}"
            ),
            legend: String::new(),
            layout: Layout::Cells,
            contenders,
            cells,
            metrics: metrics(&work),
            idle: None,
            cores: None,
            parameters: parameters(json!({
                "file_system": file_system,
                "driver": driver,
                "policy": policy.to_string(),
                "core": core,
            })),
        };
        Ok(Prepared { bench, measure: Box::new(measure), scratch: Some(scratch) })
    }

    /// Each cell with its job.
    fn jobs(&self) -> Vec<(Cell, Job)> {
        match &self.work {
            Work::Cycles(cells) => cells
                .iter()
                .map(|cycles| {
                    let cell = cycles.cell();
                    let job = Job { line: cell.job(), timeout: cycles.timeout() };
                    (cell, job)
                })
                .collect(),
            Work::Blocks { cell, slice, .. } => {
                let cell = cell.cell();
                let job = Job { line: cell.timed_job(*slice), timeout: *slice * 2 + ANSWER_SLACK };
                vec![(cell, job)]
            }
        }
    }

    /// The arguments of our contenders after their name. Makes the file and the peer end that they need.
    fn arguments(&self, scratch: &Scratch) -> Result<Vec<OsString>> {
        let (driver, policy) = (self.driver.to_string(), self.policy.to_string());
        let words = ["--driver", &driver, "--policy", &policy, "--dir"].map(OsString::from);
        let mut words: Vec<OsString> = words.into_iter().chain([scratch.path().into()]).collect();
        if let Work::Blocks { cell, file_size, direct, .. } = self.work {
            let file = blocks::TestFile::new(scratch.path(), file_size, direct);
            let mut files = vec![file.of_fio(cell.pattern), file];
            files.dedup_by(|one, other| one.path == other.path);
            let written = files.iter().try_for_each(blocks::TestFile::write_out);
            written.context("cannot write the file")?;
            let size = file_size.to_string();
            words.extend(["--pattern", cell.pattern.name(), "--file-size", &size].map(Into::into));
            if direct {
                words.push("--direct".into());
            }
            if cell.pattern.is_of_streams() {
                let allowed = affinity::allowed()?;
                let other = allowed.into_iter().find(|core| *core != self.core);
                let peer = peer_end::serve(file_size, other)?;
                words.extend(["--peer-end".into(), peer.to_string().into()]);
            }
        }
        Ok(words)
    }
}

fn metrics(work: &Work) -> Vec<Metric> {
    let metrics = match work {
        Work::Cycles(_) => of_cycles(),
        Work::Blocks { cell, .. } if cell.pattern.is_of_streams() => of_streams(),
        Work::Blocks { .. } => of_blocks(),
    };
    metrics.into_iter().chain(paths()).collect()
}

/// The settings of a contender.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its directory.
    pub directory: PathBuf,
    /// The driver of its tasks.
    pub driver: DriverChoice,
    /// The file policy of its tasks.
    pub policy: Policy,
}

/// Acts as a contender for cycles: answers jobs until there are no more.
///
/// # Errors
/// If a job is invalid, or its work fails.
pub fn answer_cycles(style: Style, settings: &Settings) -> Result<()> {
    let mut executor = executor::Executor::new(style, settings.driver, settings.policy)?;
    jobs::answer_all(|job| {
        let cell = Cycles::parse(job).ok_or_else(|| no_job(job, Cycles::JOB))?;
        cycles::answer(&mut executor, &settings.directory, cell)
    })
}

/// Acts as a contender for blocks of one file, or for whole files and a peer end: answers jobs until there are no more.
///
/// # Errors
/// If a job is invalid, or its work fails.
pub fn answer_blocks(
    style: Style,
    settings: &Settings,
    file_size: u64,
    direct: bool,
    peer: Option<SocketAddr>,
) -> Result<()> {
    let file = blocks::TestFile::new(Path::new(&settings.directory), file_size, direct);
    let mut executor = executor::Executor::new(style, settings.driver, settings.policy)?;
    jobs::answer_all(|job| {
        let (cell, slice) = Blocks::parse(job).ok_or_else(|| no_job(job, Blocks::JOB))?;
        match (style, peer) {
            (Style::Fio, _) => fio::answer(&file.of_fio(cell.pattern), cell, slice),
            (_, Some(peer)) => streams::answer(&mut executor, &file, peer, cell, slice),
            (_, None) => blocks::answer(&mut executor, &file, cell, slice),
        }
    })
}

fn no_job(line: &str, instead: &str) -> UsageError {
    UsageError(format!("'{line}' is not {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Sample;

    fn setup(work: Work) -> Setup {
        Setup {
            plan: Plan { name: "file".into(), rounds: crate::bench::Rounds::fixed(1), seed: 1 },
            contenders: vec!["threads".into()],
            work,
            directory: std::env::temp_dir(),
            driver: DriverChoice::Epoll,
            policy: Policy::Offload,
            core: 0,
            peers: None,
        }
    }

    #[test]
    fn each_contender_of_ours_has_a_style_and_peers_have_none() {
        for known in CONTENDERS {
            assert_eq!(known.name.parse::<Style>().is_err(), known.name == "tokio");
        }
    }

    #[test]
    fn our_contenders_get_directory_and_settings_as_arguments() {
        let cell = Blocks { pattern: Pattern::Read, depth: 1, bytes: 512 };
        let slice = Duration::from_secs(1);
        let blocks = Work::Blocks { cell, slice, file_size: 8192, direct: true };
        let setup = setup(blocks);
        let scratch = setup.check().expect("it fits");
        let arguments = setup.arguments(&scratch).expect("a file");
        let expected = "--driver epoll --policy offload --dir";
        assert_eq!(arguments[..5], expected.split(' ').collect::<Vec<_>>());
        let expected = "--pattern read --file-size 8192 --direct";
        assert_eq!(arguments[6..], expected.split(' ').collect::<Vec<_>>());
        let length = std::fs::metadata(scratch.path().join("blocks")).expect("written").len();
        assert_eq!(length, 8192);
    }

    #[test]
    fn metrics_follow_from_what_a_contender_answers() {
        let numbers = [("operations", 4.0), ("bytes", 80.0), ("ns", 2e9), ("cpu_ns", 1e9)];
        let sample = Sample::from(numbers);
        let value = |metrics: &[Metric], key: &str| {
            let metric = metrics.iter().find(|metric| metric.key == key).expect(key);
            metric.of.of(&sample)
        };
        let cycles = metrics(&Work::Cycles(Vec::new()));
        let keys = ["cpu_seconds", "real_seconds", "rate", "cpu_us", "real_us"];
        let values = keys.map(|key| value(&cycles, key).expect(key));
        assert_eq!(values, [1.0, 2.0, 2.0, 250_000.0, 500_000.0]);
        assert_eq!((value(&of_blocks(), "p50_us"), value(&cycles, "inline")), (None, None));
    }
}
