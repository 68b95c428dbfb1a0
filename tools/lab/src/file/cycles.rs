//! Cycles of open, write, read and close, as in the published tables.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use annulus::Runtime;
use annulus::fs::OpenOptions;
use anyhow::{Context, Result, anyhow, ensure};

use crate::bench::{Cell, Sample};
use crate::jobs::ClockSample;

/// The slowest device that the timeout of an answer allows for, in bytes per second.
const MIN_BYTES_PER_SECOND: u64 = 1 << 20;
const MIN_CYCLES_PER_SECOND: u64 = 100;
const MIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Every block of this many bytes begins with the number of its cycle, so that bytes of an older
/// cycle are detected.
const STAMP_SPACING_BYTES: usize = 4096;

/// A cell: workers that each repeatedly open, write, read and close a file of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycles {
    /// The number of threads or tasks.
    pub workers: u64,
    /// Cycles per worker.
    pub cycles: u64,
    /// The bytes that each cycle writes and then reads.
    pub bytes: u64,
}

impl Cycles {
    /// The format of a job.
    pub const JOB: &str = "WORKERS CYCLES BYTES";

    /// Reads the cycles from a cell.
    pub(super) fn of(cell: &Cell) -> Cycles {
        let number = |name| cell.number(name).unwrap_or_default();
        Cycles { workers: number("workers"), cycles: number("cycles"), bytes: number("bytes") }
    }

    /// Returns the cell of the bench.
    pub fn cell(self) -> Cell {
        Cell::new([
            ("workers", self.workers.into()),
            ("cycles", self.cycles.into()),
            ("bytes", self.bytes.into()),
        ])
    }

    /// Parses a job; `None` if it is invalid or its total bytes overflow.
    pub fn parse(job: &str) -> Option<Cycles> {
        let number = |word: &str| word.parse().ok().filter(|&number| number > 0);
        let numbers: Vec<u64> = job.split(' ').map(number).collect::<Option<_>>()?;
        let &[workers, cycles, bytes] = numbers.as_slice() else { return None };
        let total = workers.checked_mul(cycles)?;
        total.checked_mul(bytes)?.checked_mul(2).map(|_| Cycles { workers, cycles, bytes })
    }

    /// Returns the cycles of all workers together.
    pub(super) fn total(self) -> u64 {
        self.workers.saturating_mul(self.cycles)
    }

    /// Returns how long an answer may take.
    pub(super) fn timeout(self) -> Duration {
        let (cycles, bytes) = (self.total(), self.total().saturating_mul(self.bytes));
        MIN_TIMEOUT
            + Duration::from_secs(cycles / MIN_CYCLES_PER_SECOND + bytes / MIN_BYTES_PER_SECOND)
    }

    /// Returns roughly how long a slice takes.
    pub fn cost(self) -> Duration {
        /// Typical values, for the estimate.
        const TIME_PER_CYCLE: Duration = Duration::from_micros(5);
        const BYTES_PER_SECOND: f64 = 2e9;
        let cycles = self.total() as f64;
        TIME_PER_CYCLE.mul_f64(cycles)
            + Duration::from_secs_f64(cycles * self.bytes as f64 / BYTES_PER_SECOND)
    }
}

/// The executor of the workers: a thread each with blocking calls, or a task each on a runtime that
/// is reused for all jobs.
pub(super) enum Executor {
    Threads,
    Tasks(Runtime),
}

impl Executor {
    fn run(&mut self, workers: Vec<Worker>) -> Result<Vec<Worker>> {
        let Executor::Tasks(runtime) = self else { return in_threads(workers) };
        runtime.try_block_on(async {
            let tasks = workers.into_iter().map(|worker| annulus::spawn(worker.run_as_task()));
            let mut done = Vec::new();
            for task in tasks.collect::<Vec<_>>() {
                done.push(task.await.map_err(|error| anyhow!("{error}"))??);
            }
            Ok(done)
        })?
    }
}

fn in_threads(workers: Vec<Worker>) -> Result<Vec<Worker>> {
    thread::scope(|scope| {
        let start =
            |worker: Worker| thread::Builder::new().spawn_scoped(scope, || worker.run_plain());
        let threads = workers.into_iter().map(start).collect::<Result<Vec<_>, _>>();
        let threads = threads.context("cannot start the threads: use fewer workers")?;
        threads.into_iter().map(|t| t.join().expect("a worker panicked")).collect()
    })
}

/// Runs a cell. Files and buffers are created before the measured time and removed after it.
pub(super) fn answer(executor: &mut Executor, directory: &Path, cell: Cycles) -> Result<Sample> {
    let workers = (0..cell.workers).map(|number| Worker::new(directory, number, cell));
    let workers = workers.collect::<Result<Vec<_>>>().context("cannot create the files")?;
    let began = ClockSample::now();
    let workers = executor.run(workers)?;
    let mut sample = (ClockSample::now() - began).sample(cell.total());
    workers.into_iter().try_for_each(Worker::clean_up).context("cannot remove the files")?;
    sample.set("bytes", 2.0 * cell.total() as f64 * cell.bytes as f64);
    Ok(sample)
}

/// A worker with its file and its buffers.
struct Worker {
    path: PathBuf,
    cycles: u64,
    written: Vec<u8>,
    read: Vec<u8>,
}

impl Worker {
    fn new(directory: &Path, number: u64, cell: Cycles) -> Result<Worker> {
        let noise = |at: u64| ((at + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        let written: Vec<u8> = (0..cell.bytes).map(noise).collect();
        let read = written.clone();
        let path = directory.join(format!("worker-{number}"));
        fs::write(&path, &written)?;
        Ok(Worker { path, cycles: cell.cycles, written, read })
    }

    /// Runs all cycles with blocking calls.
    fn run_plain(mut self) -> Result<Worker> {
        for cycle in 0..self.cycles {
            self.stamp(cycle);
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).truncate(false);
            let file = options.open(&self.path)?;
            file.write_all_at(&self.written, 0)?;
            file.read_exact_at(&mut self.read, 0)?;
            drop(file);
            self.check(cycle)?;
        }
        Ok(self)
    }

    /// Runs all cycles with awaited calls.
    async fn run_as_task(mut self) -> Result<Worker> {
        let options = OpenOptions::new().read(true).write(true).create(true);
        for cycle in 0..self.cycles {
            self.stamp(cycle);
            let file = options.open(&self.path).await?;
            let (written, bytes) = file.write_all_at(std::mem::take(&mut self.written), 0).await;
            (_, self.written) = (written?, bytes);
            let (read, bytes) = file.read_exact_at(std::mem::take(&mut self.read), 0).await;
            (_, self.read) = (read?, bytes);
            drop(file);
            self.check(cycle)?;
        }
        Ok(self)
    }

    fn clean_up(self) -> Result<()> {
        Ok(fs::remove_file(&self.path)?)
    }

    fn stamp(&mut self, cycle: u64) {
        for stretch in self.written.chunks_mut(STAMP_SPACING_BYTES) {
            let length = stretch.len().min(8);
            stretch[..length].copy_from_slice(&cycle.to_le_bytes()[..length]);
        }
    }

    fn check(&self, cycle: u64) -> Result<()> {
        let path = self.path.display();
        ensure!(
            self.read == self.written,
            "cycle {cycle} of {path}: the bytes read differ from the bytes written"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_parses_to_the_same_cell() {
        let cell = Cycles { workers: 20, cycles: 40_960, bytes: 4096 };
        assert_eq!(Cycles::parse(&cell.cell().job()), Some(cell));
        assert_eq!(cell.cell().to_string(), "20 workers × 40960 cycles × 4096 bytes");
        assert!(cell.timeout() > Duration::from_secs(3600));
    }

    #[test]
    fn invalid_jobs_and_counts_out_of_range_are_refused() {
        for wrong in ["", "20 1", "0 1 1", "1 0 1", "1 1 0", "1 1 1 1", "a b c"] {
            assert_eq!(Cycles::parse(wrong), None, "{wrong}");
        }
        let beyond = format!("{} {} 16", 1u64 << 32, 1u64 << 31);
        assert_eq!(Cycles::parse(&beyond), None);
    }
}
