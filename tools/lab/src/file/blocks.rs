//! Blocks of one file, read and written for a while with many in flight, as fio does.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::ops::DerefMut;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annulus::fs::{AlignedBuf, DirectPool, IoBufMut, OpenOptions};
use annulus_load::clock::now;
use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use rustix::fs::{Advice, OFlags, fadvise};

use super::executor::Executor;
use crate::bench::{Cell, Sample};
use crate::usage::UsageError;

/// Each stretch of this many bytes starts with its number. Block sizes are multiples of it.
pub const STRETCH: u64 = 512;
/// The largest alignment that devices require for direct I/O.
const ALIGNMENT: usize = 4096;
/// Bytes written to a new file, or verified of a stream, at a time.
const PIECE: u64 = 1 << 20;

/// The order of the blocks, and the operation on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Random reads and writes alternately.
    Mixed,
    /// The whole file to a stream.
    Send,
    /// The whole file from a stream.
    Receive,
}

impl Pattern {
    /// Every pattern, by name.
    pub const ALL: [(&'static str, Pattern); 7] = [
        ("read", Pattern::Read),
        ("write", Pattern::Write),
        ("randread", Pattern::RandRead),
        ("randwrite", Pattern::RandWrite),
        ("mixed", Pattern::Mixed),
        ("send", Pattern::Send),
        ("receive", Pattern::Receive),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Pattern::ALL.iter().find(|(_, pattern)| *pattern == self).map_or("", |(name, _)| name)
    }

    /// Whether whole files are moved over streams, instead of blocks of one file.
    pub fn is_of_streams(self) -> bool {
        matches!(self, Pattern::Send | Pattern::Receive)
    }

    fn is_sequential(self) -> bool {
        matches!(self, Pattern::Read | Pattern::Write)
    }

    /// Whether this operation of a worker is a write.
    fn writes(self, number: u64) -> bool {
        match self {
            Pattern::Read | Pattern::RandRead | Pattern::Send => false,
            Pattern::Write | Pattern::RandWrite | Pattern::Receive => true,
            Pattern::Mixed => number % 2 == 1,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Pattern {
    type Err = UsageError;

    fn from_str(name: &str) -> Result<Pattern, UsageError> {
        let found = Pattern::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, pattern)| *pattern).ok_or_else(|| {
            let names = Pattern::ALL.map(|(name, _)| name).join(", ");
            UsageError(format!("unknown pattern `{name}`; choose one of {names}"))
        })
    }
}

/// A cell: a number of blocks of this size in flight, or of streams that move pieces of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The order and the operation.
    pub pattern: Pattern,
    /// Operations in flight.
    pub depth: u64,
    /// Bytes per block.
    pub bytes: u64,
}

impl Blocks {
    /// The form of a job.
    pub const JOB: &str = "PATTERN DEPTH BYTES SECONDS";

    /// The cell of the bench.
    pub fn cell(self) -> Cell {
        Cell::new([
            ("pattern", self.pattern.name().into()),
            ("depth", self.depth.into()),
            ("bytes", self.bytes.into()),
        ])
    }

    /// Parses a job: the cell and the length of the slice; `None` if it is invalid.
    pub fn parse(job: &str) -> Option<(Blocks, Duration)> {
        let mut words = job.split(' ');
        let pattern = words.next()?.parse().ok()?;
        let mut number = || words.next()?.parse().ok().filter(|&number: &u64| number > 0);
        let (depth, bytes) = (number()?, number()?);
        let slice = Duration::try_from_secs_f64(words.next()?.parse().ok()?).ok()?;
        words.next().is_none().then_some((Blocks { pattern, depth, bytes }, slice))
    }
}

/// The file of the blocks, and how it is opened.
#[derive(Clone, Debug)]
pub(super) struct TestFile {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Whether to bypass the page cache.
    pub(super) direct: bool,
}

impl TestFile {
    /// The file of a bench in its directory.
    pub(super) fn new(directory: &Path, bytes: u64, direct: bool) -> TestFile {
        TestFile { path: directory.join("blocks"), bytes, direct }
    }

    /// The file for fio: a separate one if our contenders verify what was written, as fio does not write numbers.
    pub(super) fn of_fio(&self, pattern: Pattern) -> TestFile {
        let name = if pattern == Pattern::Mixed { "blocks-fio" } else { "blocks" };
        TestFile { path: self.path.with_file_name(name), ..self.clone() }
    }

    /// Writes the whole file to the device; for direct I/O, removes it from the cache.
    pub(super) fn write_out(&self) -> Result<()> {
        let mut file = File::create(&self.path)?;
        for (start, mut piece) in pieces(self.bytes) {
            stamp(&mut piece, start);
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        if self.direct {
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    }

    fn refused(&self) -> &'static str {
        if self.direct {
            "cannot open the file for direct I/O here"
        } else {
            "cannot open the file"
        }
    }
}

/// The start of each piece of a file, and memory for it.
pub(super) fn pieces(bytes: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let starts = (0..bytes).step_by(PIECE as usize);
    starts.map(move |start| (start, vec![0; PIECE.min(bytes - start) as usize]))
}

/// Writes the number of each stretch into a block that starts at `offset`.
pub(super) fn stamp(block: &mut [u8], offset: u64) {
    for (number, stretch) in (offset / STRETCH..).zip(block.chunks_mut(STRETCH as usize)) {
        stretch[..8].copy_from_slice(&number.to_le_bytes());
    }
}

/// Checks that a block is the one that starts at `offset`.
pub(super) fn check(block: &[u8], offset: u64) -> Result<()> {
    for (number, stretch) in (offset / STRETCH..).zip(block.chunks(STRETCH as usize)) {
        ensure!(stretch[..8] == number.to_le_bytes(), "stretch {number} was read as another one");
    }
    Ok(())
}

/// Reads and writes blocks for the length of a slice.
pub(super) fn answer(
    executor: &mut Executor,
    file: &TestFile,
    cell: Blocks,
    slice: Duration,
) -> Result<Sample> {
    let next = Arc::new(AtomicU64::new(0));
    let worker = |number: u64, began: Duration| Worker {
        cell,
        blocks: file.bytes / cell.bytes,
        next: next.clone(),
        random: Rng::with_seed(number ^ began.as_nanos() as u64),
        done: 0,
        end: began + slice,
        took: Vec::new(),
    };
    let (workers, mut sample) = executor.measure(
        |executor, began| {
            let workers = (0..cell.depth).map(|number| worker(number, began.wall)).collect();
            run(executor, workers, file, cell)
        },
        |workers: &Vec<Worker>| workers.iter().map(|worker| worker.took.len() as u64).sum(),
    )?;
    let took: Vec<u64> = workers.into_iter().flat_map(|worker| worker.took).collect();
    sample.set("bytes", took.len() as f64 * cell.bytes as f64);
    set_latency(&mut sample, took);
    Ok(sample)
}

/// Sets the percentiles of these times in ns.
fn set_latency(sample: &mut Sample, mut all: Vec<u64>) {
    all.sort_unstable();
    let Some(last) = all.len().checked_sub(1) else { return };
    for (name, share) in [("p50_us", 0.5), ("p99_us", 0.99), ("p99_9_us", 0.999), ("max_us", 1.0)] {
        sample.set(name, all[(last as f64 * share) as usize] as f64 / 1e3);
    }
}

fn run(
    executor: &mut Executor,
    workers: Vec<Worker>,
    file: &TestFile,
    cell: Blocks,
) -> Result<Vec<Worker>> {
    let flags = if file.direct { OFlags::DIRECT } else { OFlags::empty() };
    let mut plain = File::options();
    plain.read(true).write(true).custom_flags(flags.bits() as i32);
    let plain = match executor {
        Executor::Threads => Some(plain.open(&file.path).with_context(|| file.refused())?),
        Executor::Tasks(_) => None,
    };
    let run_plain = |worker: Worker| match &plain {
        Some(file) => worker.run_plain(file),
        None => Ok(worker),
    };
    executor.run(workers, run_plain, async |workers: Vec<Worker>| {
        let options = OpenOptions::new().read(true).write(true).direct(file.direct);
        let opened = options.open(&file.path).await.with_context(|| file.refused())?;
        let bytes = cell.bytes as usize;
        // No pool if the size is not aligned, or above the limit of a pool.
        let pool = DirectPool::new(workers.len(), bytes).ok().filter(|_| file.direct);
        let task = |worker: Worker| {
            let file = opened.try_clone()?;
            let block = pool.as_ref().and_then(DirectPool::try_take);
            Ok(async move {
                match block {
                    Some(block) => worker.run_as_task(file, block).await,
                    None => worker.run_as_task(file, AlignedBuf::new(bytes, ALIGNMENT)?).await,
                }
            })
        };
        workers.into_iter().map(task).collect()
    })
}

/// A worker, which reads and writes one block at a time.
struct Worker {
    cell: Blocks,
    /// Blocks in the file.
    blocks: u64,
    /// The next sequential block of all workers.
    next: Arc<AtomicU64>,
    random: Rng,
    done: u64,
    end: Duration,
    /// The time of each operation, in ns.
    took: Vec<u64>,
}

impl Worker {
    /// The start of the next operation, its offset, and whether it is a write. `None` after the end, but not before the
    /// first.
    fn step(&mut self) -> Option<(Duration, u64, bool)> {
        let began = now();
        if began >= self.end && self.done > 0 {
            return None;
        }
        let writes = self.cell.pattern.writes(self.done);
        let block = match self.cell.pattern.is_sequential() {
            true => self.next.fetch_add(1, Ordering::Relaxed) % self.blocks,
            false => self.random.u64(..self.blocks),
        };
        self.done += 1;
        Some((began, block * self.cell.bytes, writes))
    }

    fn note(&mut self, began: Duration) {
        self.took.push((now() - began).as_nanos() as u64);
    }

    /// Runs with blocking calls.
    fn run_plain(mut self, file: &File) -> Result<Worker> {
        let mut block = AlignedBuf::new(self.cell.bytes as usize, ALIGNMENT)?;
        while let Some((began, offset, writes)) = self.step() {
            if writes {
                stamp(&mut block, offset);
                file.write_all_at(&block, offset)?;
            } else {
                file.read_exact_at(&mut block, offset)?;
                check(&block, offset)?;
            }
            self.note(began);
        }
        Ok(self)
    }

    /// Runs with awaited calls.
    async fn run_as_task<B>(mut self, file: annulus::fs::File, mut block: B) -> Result<Worker>
    where
        B: IoBufMut + DerefMut<Target = [u8]>,
    {
        while let Some((began, offset, writes)) = self.step() {
            let done;
            if writes {
                stamp(&mut block, offset);
                (done, block) = file.write_all_at(block, offset).await;
                done?;
            } else {
                (done, block) = file.read_exact_at(block, offset).await;
                done?;
                check(&block, offset)?;
            }
            self.note(began);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_comes_back() {
        for (_, pattern) in Pattern::ALL {
            let cell = Blocks { pattern, depth: 32, bytes: 4096 };
            let slice = Duration::from_millis(300);
            assert_eq!(Blocks::parse(&cell.cell().timed_job(slice)), Some((cell, slice)));
        }
        for wrong in ["", "randread", "dance 1 1 1", "read 0 1 1", "read 1 1 -1", "read 1 1 1 1"] {
            assert_eq!(Blocks::parse(wrong), None, "{wrong}");
        }
    }

    /// On a busy machine a slice may end before a worker runs.
    #[test]
    fn each_worker_does_one_operation_at_least() {
        let scratch = crate::scratch::tests::directory();
        let file = TestFile::new(scratch.path(), 8192, false);
        file.write_out().expect("it is written");
        let cell = Blocks { pattern: Pattern::Write, depth: 3, bytes: 4096 };
        let sample = answer(&mut Executor::Threads, &file, cell, Duration::ZERO);
        assert_eq!(sample.expect("an answer").get("operations"), Some(3.0));
    }

    #[test]
    fn half_of_a_mixed_pattern_is_writes() {
        assert_eq!((0..10).filter(|number| Pattern::Mixed.writes(*number)).count(), 5);
        let error = "dance".parse::<Pattern>().expect_err("no such pattern").to_string();
        assert!(error.contains("`dance`") && error.contains("randread"), "{error}");
    }

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let mut sample = Sample::default();
        set_latency(&mut sample, (0..=1000).rev().map(|n| n * 1000).collect());
        let at = |name| sample.get(name).expect("set");
        assert_eq!((at("p50_us"), at("p99_us"), at("max_us")), (500.0, 990.0, 1000.0));
        set_latency(&mut sample, Vec::new());
    }
}
