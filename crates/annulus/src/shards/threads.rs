//! The shards' threads, and what each of them does.

use super::error::{Cause, ShardError};
use super::pinning::Pinning;
use super::shard::Shard;
use super::start_barrier::{Muster, Ready};
use crate::affinity::{self, Pinned};
use crate::runtime::{Builder, Runtime};
use std::fmt;
use std::future::Future;
use std::io;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

/// Makes each shard's runtime.
type Make = Box<dyn Fn(usize) -> Builder + Send + Sync>;

/// Settings of several runtimes, a thread each.
pub struct Shards {
    count: usize,
    pinning: Pinning,
    make: Make,
}

impl Shards {
    /// So many shards, with default runtimes, pinned to a CPU each.
    pub fn new(count: usize) -> Self {
        Self { count, pinning: Pinning::default(), make: Box::new(|_| Runtime::builder()) }
    }

    /// Which CPUs they run on. [`Pinning::Each`] by default.
    pub fn pinning(mut self, pinning: Pinning) -> Self {
        self.pinning = pinning;
        self
    }

    /// The settings of each shard's runtime, by index; asked for on the shard's own thread. Where one is to be
    /// [locked down](Builder::locked_down), the process is denied further rings once all have theirs.
    pub fn runtime(mut self, make: impl Fn(usize) -> Builder + Send + Sync + 'static) -> Self {
        self.make = Box::new(make);
        self
    }

    /// Runs `main` on every shard, at once when all are set up; returns what each returned, by index. Shard 0 runs on the
    /// calling thread, which gets its CPUs back at the end.
    ///
    /// # Errors
    /// The first failure of all, with its shard: a runtime that could not be built, an error of its main, a panic. The
    /// others are stopped.
    pub fn run<T, E, F, Fut>(self, main: F) -> Result<Vec<T>, ShardError<E>>
    where
        F: Fn(Shard) -> Fut + Sync,
        Fut: Future<Output = Result<T, E>>,
        T: Send,
        E: Send,
    {
        let failed = |error| ShardError { shard: 0, cause: Cause::Runtime(error) };
        let cpus = self.cpus().map_err(failed)?;
        let muster = Muster::new(self.count);
        let work = |index: usize| self.work(index, cpus[index], &muster, &main);
        let results = thread::scope(|scope| {
            let start = |index: usize| {
                let thread = thread::Builder::new().name(format!("shard {index}"));
                let started = thread.spawn_scoped(scope, move || work(index));
                let refused = |error| no_thread(self.count, &error);
                started.map_err(|error| muster.fail(index, Cause::Runtime(refused(error)))).ok()
            };
            // All of them, or up to the first that cannot be had.
            let threads: Vec<_> = (1..self.count).map_while(start).collect();
            let first = work(0);
            let others = threads.into_iter().zip(1..).map(|(thread, index)| {
                thread.join().unwrap_or_else(|panic| {
                    muster.fail(index, Cause::Panicked(panic));
                    None
                })
            });
            iter::once(first).chain(others).collect::<Vec<Option<T>>>()
        });
        muster.outcome(results)
    }

    fn cpus(&self) -> io::Result<Vec<Option<usize>>> {
        if self.count == 0 {
            let text = "0 shards would do nothing; take at least 1";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.pinning.cpus(self.count)
    }

    /// The whole life of a shard; `None` where it failed.
    fn work<T, E, F, Fut>(
        &self,
        index: usize,
        cpu: Option<usize>,
        muster: &Muster<E>,
        main: &F,
    ) -> Option<T>
    where
        F: Fn(Shard) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let mut house = None;
        let outcome = self.serve(index, cpu, &mut house, muster, main);
        // Told before the runtime ends, so that the others need not wait for that.
        outcome.map_err(|cause| muster.fail(index, cause)).ok()
    }

    fn serve<T, E, F, Fut>(
        &self,
        index: usize,
        cpu: Option<usize>,
        house: &mut Option<House>,
        muster: &Muster<E>,
        main: &F,
    ) -> Result<T, Cause<E>>
    where
        F: Fn(Shard) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let built = guarded(|| House::build((self.make)(index), cpu))?;
        let House { runtime, locked_down, .. } = house.insert(built.map_err(Cause::Runtime)?);
        let ready = Ready { handle: runtime.handle(), locked_down: *locked_down };
        let crew = muster.report(index, ready).map_err(Cause::Runtime)?;
        let shard = Shard { index, cpu, driver: Arc::new(runtime.driver().clone()), crew };
        let ended = guarded(|| runtime.block_on(async { main(shard).await }))?;
        ended.map_err(Cause::Runtime)?.map_err(Cause::Main)
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shards({}, {:?})", self.count, self.pinning)
    }
}

/// Why a shard's thread could not be started.
fn no_thread(count: usize, error: &io::Error) -> io::Error {
    io::Error::other(format!(
        "its thread, one of {count}, cannot be started: {error}; take fewer shards, or raise the limit of threads (`ulimit -u`, or \
         pids.max of the control group)"
    ))
}

fn guarded<R, E>(f: impl FnOnce() -> R) -> Result<R, Cause<E>> {
    // What a panic leaves behind is only dropped.
    catch_unwind(AssertUnwindSafe(f)).map_err(Cause::Panicked)
}

/// What a thread has set up. The runtime ends first, where it ran.
struct House {
    runtime: Runtime,
    locked_down: bool,
    _pinned: Option<Pinned>,
}

impl House {
    /// Further rings are not denied yet: the others may still need theirs.
    fn build(builder: Builder, cpu: Option<usize>) -> io::Result<Self> {
        let pinned = cpu.map(affinity::pin).transpose().map_err(io::Error::other)?;
        let locked_down = builder.is_locked_down();
        let runtime = builder.build_unsealed()?;
        if !runtime.is_reachable() {
            let text = "a simulated kernel has no other threads; run one runtime there";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Ok(Self { runtime, locked_down, _pinned: pinned })
    }
}
