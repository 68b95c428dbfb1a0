//! Executes the work of a contender: a thread per worker, or a task per worker on one thread.

use std::future::Future;
use std::str::FromStr;
use std::thread;

use annulus::fs::Policy;
use annulus::{DriverChoice, Runtime};
use anyhow::{Context, Result, anyhow};

use crate::bench::Sample;
use crate::clock::ClockSample;
use crate::usage::{UsageError, own};

/// A contender of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A thread per worker, with blocking calls.
    Threads,
    /// A task per worker, all on one thread.
    Tasks,
    /// fio, started for each slice.
    Fio,
}

impl FromStr for Style {
    type Err = UsageError;

    fn from_str(name: &str) -> Result<Style, UsageError> {
        own(&[("threads", Style::Threads), ("tasks", Style::Tasks), ("fio", Style::Fio)], name)
    }
}

/// Executes workers. Threads are started for each slice; the runtime is kept.
pub(super) enum Executor {
    Threads,
    Tasks(Runtime),
}

impl Executor {
    pub(super) fn new(style: Style, driver: DriverChoice, policy: Policy) -> Result<Executor> {
        Ok(match style {
            Style::Tasks => {
                let builder = Runtime::builder().driver(driver).file_policy(policy);
                Executor::Tasks(builder.build()?)
            }
            Style::Threads | Style::Fio => Executor::Threads,
        })
    }

    /// Runs each worker: by `plain` on a thread of its own, or as one of the tasks that `task` makes on the runtime.
    pub(super) fn run<W: Send, T: Send + 'static, F>(
        &mut self,
        workers: Vec<W>,
        plain: impl Fn(W) -> Result<T> + Sync,
        task: impl AsyncFnOnce(Vec<W>) -> Result<Vec<F>>,
    ) -> Result<Vec<T>>
    where
        F: Future<Output = Result<T>> + 'static,
    {
        let Executor::Tasks(runtime) = self else { return in_threads(workers, plain) };
        runtime.try_block_on(async {
            let tasks: Vec<_> = task(workers).await?.into_iter().map(annulus::spawn).collect();
            let mut done = Vec::with_capacity(tasks.len());
            for task in tasks {
                done.push(task.await.map_err(|error| anyhow!("{error}"))??);
            }
            Ok(done)
        })?
    }

    /// Does some work; returns its result, its time and the paths of its calls. `operations` counts the result.
    pub(super) fn measure<T>(
        &mut self,
        work: impl FnOnce(&mut Executor, ClockSample) -> Result<T>,
        operations: impl FnOnce(&T) -> u64,
    ) -> Result<(T, Sample)> {
        let (before, began) = (self.paths(), ClockSample::now());
        let done = work(self, began)?;
        let spent = ClockSample::now() - began;
        let mut sample = spent.sample(operations(&done));
        for ((name, now), (_, before)) in self.paths().into_iter().zip(before) {
            sample.set(name, (now - before) as f64);
        }
        Ok((done, sample))
    }

    /// How many calls took which path; zero for threads.
    fn paths(&self) -> [(&'static str, u64); 5] {
        let counters = match self {
            Executor::Tasks(runtime) => runtime.counters(),
            Executor::Threads => Default::default(),
        };
        [
            ("inline", counters.file_inline),
            ("misses", counters.file_misses),
            ("ring", counters.file_ring),
            ("registered", counters.file_registered),
            ("worker", counters.file_worker),
        ]
    }
}

fn in_threads<W: Send, T: Send>(
    workers: Vec<W>,
    run: impl Fn(W) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let run = &run;
        let start = |worker| thread::Builder::new().spawn_scoped(scope, move || run(worker));
        let threads = workers.into_iter().map(start).collect::<Result<Vec<_>, _>>();
        let threads = threads.context("cannot start so many threads: ask for fewer")?;
        threads.into_iter().map(|t| t.join().expect("a worker does not panic")).collect()
    })
}
