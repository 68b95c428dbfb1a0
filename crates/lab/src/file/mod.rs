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
    Bench, CPU, Cell, Column, Contenders, Fold, Format, Layout, MB, Metric, PLAIN, Plan, Prepared,
    RATE, Role, Sample, parameters,
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

const RATIO: &[Column] = &[Column::Ratio];
const SHOWN: &[Column] = &[Column::Value, Column::Ratio];

/// CPU time per operation, which chooses the winner …
const CPU_EACH: Metric = Metric { role: Role::Primary, columns: SHOWN, ..CPU };

/// … and time per operation, by which the control must be equal, too.
const REAL_EACH: Metric = Metric {
    key: "real_us",
    title: "real µs",
    noun: "real",
    of: |sample| sample.per("ns", "operations").map(|ns| ns / 1e3),
    role: Role::Checked,
    columns: RATIO,
    ..PLAIN
};

/// How many calls took which path.
const PATHS: [Metric; 5] = [
    Metric { key: "inline", of: |sample| sample.get("inline"), ..PATH },
    Metric { key: "misses", of: |sample| sample.get("misses"), ..PATH },
    Metric { key: "ring", of: |sample| sample.get("ring"), ..PATH },
    Metric { key: "registered", of: |sample| sample.get("registered"), ..PATH },
    Metric { key: "worker", of: |sample| sample.get("worker"), ..PATH },
];

const PATH: Metric = Metric { columns: &[], fold: Fold::Sum, ..PLAIN };

const OF_CYCLES: [Metric; 6] = [
    seconds("cpu_seconds", "CPU s", |sample| sample.get("cpu_ns").map(|ns| ns / 1e9)),
    seconds("real_seconds", "real s", |sample| sample.get("ns").map(|ns| ns / 1e9)),
    Metric { title: "cycles/s", ..RATE },
    MB,
    Metric { columns: RATIO, ..CPU_EACH },
    REAL_EACH,
];

const fn seconds(key: &'static str, title: &'static str, of: fn(&Sample) -> Option<f64>) -> Metric {
    Metric { key, title, of, format: Format::Decimals(4), ..PLAIN }
}

const OF_BLOCKS: [Metric; 8] = [
    RATE,
    MB,
    CPU_EACH,
    Metric { key: "p50_us", title: "p50 µs", of: |sample| sample.get("p50_us"), ..PLAIN },
    Metric { key: "p99_us", title: "p99 µs", of: |sample| sample.get("p99_us"), ..PLAIN },
    Metric { key: "p99_9_us", title: "p99.9 µs", of: |sample| sample.get("p99_9_us"), ..PLAIN },
    Metric { key: "max_us", title: "max µs", of: |sample| sample.get("max_us"), ..PLAIN },
    REAL_EACH,
];

const OF_STREAMS: [Metric; 4] = [
    Metric { title: "CPU µs a file", ..CPU_EACH },
    Metric { title: "real µs a file", columns: SHOWN, ..REAL_EACH },
    MB,
    Metric { columns: &[], ..RATE },
];

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
            legend: "",
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
        Work::Cycles(_) => &OF_CYCLES[..],
        Work::Blocks { cell, .. } if cell.pattern.is_of_streams() => &OF_STREAMS,
        Work::Blocks { .. } => &OF_BLOCKS,
    };
    [metrics, &PATHS].concat()
}

/// About how long a slice of cycles takes.
pub fn cost(cell: Cycles) -> Duration {
    cell.cost()
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
            (metric.of)(&sample)
        };
        let cycles = metrics(&Work::Cycles(Vec::new()));
        let keys = ["cpu_seconds", "real_seconds", "rate", "cpu_us", "real_us"];
        let values = keys.map(|key| value(&cycles, key).expect(key));
        assert_eq!(values, [1.0, 2.0, 2.0, 250_000.0, 500_000.0]);
        assert_eq!((value(&OF_BLOCKS, "p50_us"), value(&PATHS, "inline")), (None, None));
    }
}
