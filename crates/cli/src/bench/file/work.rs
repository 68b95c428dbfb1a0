//! Our own contenders at work: a question a line, an answer a line.

use super::blocks::{self, Ground};
use super::fio;
use super::streams;
use super::worker::Worker;
use crate::bench::moment::Moment;
use crate::output;
use crate::usage::Misuse;
use annulus::fs::Policy;
use annulus::{DriverChoice, Runtime};
use annulus_lab::file::{Blocks, Burst, Cycles, Paths};
use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::path::Path;
use std::thread;

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Style {
    /// A thread a worker, and plain calls
    Threads,
    /// A task a worker, all on one thread
    Tasks,
    /// What fio does, of blocks
    Fio,
}

/// Hands for the work: threads come and go, the runtime stays.
pub(super) enum Hands {
    Threads,
    Tasks(Runtime),
}

/// Answers questions about files, until there are no more.
pub(super) fn answer_cycles(
    style: Style,
    folder: &Path,
    driver: DriverChoice,
    policy: Policy,
) -> Result<()> {
    let mut hands = Hands::new(style, driver, policy)?;
    answer_all(|question| {
        let cell =
            Cycles::parse(question).ok_or_else(|| no_question(question, "WORKERS CYCLES BYTES"))?;
        hands.answer(folder, cell)
    })
}

/// Answers questions about blocks of one file, or about whole ones that go to the far end, until there are no more.
pub(super) fn answer_blocks(
    style: Style,
    ground: &Ground,
    far: Option<SocketAddr>,
    driver: DriverChoice,
    policy: Policy,
) -> Result<()> {
    let mut hands = Hands::new(style, driver, policy)?;
    answer_all(|question| {
        let (cell, slice) = Blocks::parse(question)
            .ok_or_else(|| no_question(question, "PATTERN DEPTH BYTES SECONDS"))?;
        match style {
            Style::Fio => fio::answer(&ground.of_fio(cell.pattern), cell, slice),
            Style::Threads | Style::Tasks => match far {
                Some(far) => streams::answer(&mut hands, ground, far, cell, slice),
                None => blocks::answer(&mut hands, ground, cell, slice),
            },
        }
    })
}

fn answer_all(mut answer: impl FnMut(&str) -> Result<Burst>) -> Result<()> {
    for question in io::stdin().lock().lines() {
        let burst = answer(&question.context("cannot read the next question")?)?;
        output::print(&(serde_json::to_string(&burst)? + "\n"))?;
    }
    Ok(())
}

fn no_question(line: &str, instead: &str) -> Misuse {
    Misuse(format!("'{line}' is not {instead}"))
}

impl Hands {
    fn new(style: Style, driver: DriverChoice, policy: Policy) -> Result<Hands> {
        Ok(match style {
            Style::Tasks => {
                Hands::Tasks(Runtime::builder().driver(driver).file_policy(policy).build()?)
            }
            Style::Threads | Style::Fio => Hands::Threads,
        })
    }

    /// Does the work of a cell; files and memory are made before, and go afterwards.
    fn answer(&mut self, folder: &Path, cell: Cycles) -> Result<Burst> {
        let workers = (0..cell.workers).map(|number| Worker::new(folder, number, cell));
        let workers = workers.collect::<Result<Vec<_>>>().context("cannot make the files")?;
        let (before, began) = (self.paths(), Moment::now());
        let workers = self.run(workers)?;
        let spent = Moment::now() - began;
        let paths = self.paths().since(before);
        workers.into_iter().try_for_each(Worker::clean_up).context("cannot remove the files")?;
        let operations = cell.workers * cell.cycles;
        let (ns, cpu_ns) = (spent.wall.as_nanos() as u64, spent.cpu.as_nanos() as u64);
        Ok(Burst {
            operations,
            bytes: 2 * operations * cell.bytes,
            ns,
            cpu_ns,
            paths,
            latency: None,
        })
    }

    fn run(&mut self, workers: Vec<Worker>) -> Result<Vec<Worker>> {
        match self {
            Hands::Threads => in_threads(workers),
            Hands::Tasks(runtime) => runtime.block_on(in_tasks(workers))?,
        }
    }

    pub(super) fn paths(&self) -> Paths {
        let Hands::Tasks(runtime) = self else { return Paths::default() };
        let counters = runtime.counters();
        Paths {
            inline: counters.file_inline,
            misses: counters.file_misses,
            ring: counters.file_ring,
            registered: counters.file_registered,
            worker: counters.file_worker,
        }
    }
}

fn in_threads(workers: Vec<Worker>) -> Result<Vec<Worker>> {
    let start = |worker: Worker| thread::Builder::new().spawn(|| worker.run_plain());
    let threads = workers.into_iter().map(start).collect::<Result<Vec<_>, _>>();
    let threads = threads.context("cannot start so many threads: ask for fewer workers")?;
    let join = |thread: thread::JoinHandle<_>| thread.join().expect("a worker does not panic");
    threads.into_iter().map(join).collect()
}

async fn in_tasks(workers: Vec<Worker>) -> Result<Vec<Worker>> {
    let tasks: Vec<_> =
        workers.into_iter().map(|worker| annulus::spawn(worker.run_as_task())).collect();
    let mut done = Vec::with_capacity(tasks.len());
    for task in tasks {
        done.push(task.await.map_err(|error| anyhow!("{error}"))??);
    }
    Ok(done)
}
