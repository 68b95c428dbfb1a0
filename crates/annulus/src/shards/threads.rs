//! The shards' threads. Each pins itself, builds its runtime, waits until all are ready, and runs
//! the program's main.

use super::error::{Cause, ShardError};
use super::pinning::Pinning;
use super::shard::Shard;
use super::start_barrier::{Ready, StartBarrier};
use crate::affinity::{self, Pinned};
use crate::runtime::{Builder, Runtime};
use std::fmt;
use std::future::Future;
use std::io;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Creates the builder of each shard's runtime.
type Make = Box<dyn Fn(usize) -> Builder + Send + Sync>;

/// Settings of several runtimes, one per thread.
pub struct Shards {
    count: usize,
    pinning: Pinning,
    make: Make,
}

impl Shards {
    /// Creates the settings for `count` shards with default runtimes, each pinned to a CPU.
    pub fn new(count: usize) -> Self {
        let make: Make = Box::new(|_| Runtime::builder());
        Self { count, pinning: Pinning::default(), make }
    }

    /// Sets the CPUs that the shards run on. The default is [`Pinning::Each`].
    pub fn pinning(mut self, pinning: Pinning) -> Self {
        self.pinning = pinning;
        self
    }

    /// Sets the settings of each shard's runtime, by index. `make` is called on the shard's thread.
    /// If one is [locked down](Builder::locked_down), further rings are denied to the process once
    /// all shards have their rings.
    pub fn runtime(mut self, make: impl Fn(usize) -> Builder + Send + Sync + 'static) -> Self {
        self.make = Box::new(make);
        self
    }

    /// Like [`run`](Self::run), but moves an input to each shard's thread, by index.
    ///
    /// ```
    /// use annulus::shards::Shards;
    ///
    /// let names = vec!["one".to_owned(), "two".to_owned()];
    /// let lengths = Shards::new(2).run_with(names, async |_shard, name| std::io::Result::Ok(name.len()))?;
    /// assert_eq!(lengths, [3, 3]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`run`](Self::run); `InvalidInput`, before any shard starts, if the numbers of
    /// inputs and shards differ.
    pub fn run_with<I, T, E, F, Fut>(
        self,
        inputs: impl IntoIterator<Item = I>,
        main: F,
    ) -> Result<Vec<T>, ShardError<E>>
    where
        F: Fn(Shard, I) -> Fut + Sync,
        Fut: Future<Output = Result<T, E>>,
        I: Send,
        T: Send,
        E: Send,
    {
        let inputs = inputs.into_iter().take(self.count.saturating_add(1));
        let inputs: Vec<_> = inputs.map(|input| Mutex::new(Some(input))).collect();
        if inputs.len() != self.count {
            let cause = Cause::Runtime(wrong_inputs(inputs.len(), self.count));
            return Err(ShardError { shard: 0, cause });
        }
        self.run(|shard| {
            let mut input = inputs[shard.index].lock().unwrap_or_else(PoisonError::into_inner);
            let input = input.take().expect("the shard has already run");
            main(shard, input)
        })
    }

    /// Runs `main` on every shard once all are set up, and returns their results by index. Shard 0
    /// runs on the calling thread, whose CPU affinity is restored at the end.
    ///
    /// # Errors
    /// The first failure, with its shard: a runtime that could not be built, an error of `main`, or
    /// a panic. The other shards are stopped.
    pub fn run<T, E, F, Fut>(self, main: F) -> Result<Vec<T>, ShardError<E>>
    where
        F: Fn(Shard) -> Fut + Sync,
        Fut: Future<Output = Result<T, E>>,
        T: Send,
        E: Send,
    {
        let failed = |error| ShardError { shard: 0, cause: Cause::Runtime(error) };
        let cpus = self.cpus().map_err(failed)?;
        let barrier = StartBarrier::new(self.count);
        let run = |index: usize| self.run_shard(index, cpus[index], &barrier, &main);
        let results = thread::scope(|scope| {
            let start = |index: usize| {
                let thread = thread::Builder::new().name(format!("shard {index}"));
                let started = thread.spawn_scoped(scope, move || run(index));
                let refused = |error| no_thread(self.count, &error);
                started.map_err(|error| barrier.fail(index, Cause::Runtime(refused(error)))).ok()
            };
            // Stops at the first thread that cannot be started.
            let threads: Vec<_> = (1..self.count).map_while(start).collect();
            let first = run(0);
            let others = threads.into_iter().zip(1..).map(|(thread, index)| {
                thread.join().unwrap_or_else(|panic| {
                    barrier.fail(index, Cause::Panicked(panic));
                    None
                })
            });
            iter::once(first).chain(others).collect::<Vec<Option<T>>>()
        });
        barrier.outcome(results)
    }

    fn cpus(&self) -> io::Result<Vec<Option<usize>>> {
        if self.count == 0 {
            let text = "0 shards would do nothing; use at least 1";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.pinning.cpus(self.count)
    }

    /// Runs a shard from set-up to end. Returns `None` if it failed.
    fn run_shard<T, E, F, Fut>(
        &self,
        index: usize,
        cpu: Option<usize>,
        barrier: &StartBarrier<E>,
        main: &F,
    ) -> Option<T>
    where
        F: Fn(Shard) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let mut local = None;
        let outcome = self.run_main(index, cpu, &mut local, barrier, main);
        // Report the failure before the runtime shuts down, so that the other shards need not wait
        // for that.
        outcome.map_err(|cause| barrier.fail(index, cause)).ok()
    }

    fn run_main<T, E, F, Fut>(
        &self,
        index: usize,
        cpu: Option<usize>,
        local: &mut Option<LocalRuntime>,
        barrier: &StartBarrier<E>,
        main: &F,
    ) -> Result<T, Cause<E>>
    where
        F: Fn(Shard) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let built = guarded(|| LocalRuntime::build((self.make)(index), cpu))?;
        let local = local.insert(built.map_err(Cause::Runtime)?);
        let LocalRuntime { runtime, locked_down, .. } = local;
        let ready = Ready { handle: runtime.handle(), locked_down: *locked_down };
        let handles = barrier.wait(index, ready).map_err(Cause::Runtime)?;
        let driver = Arc::new(runtime.driver().clone());
        let shard = Shard { index, cpu, driver, handles };
        let ended = guarded(|| runtime.try_block_on(async { main(shard).await }))?;
        ended.map_err(Cause::Runtime)?.map_err(Cause::Main)
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shards({}, {:?})", self.count, self.pinning)
    }
}

fn wrong_inputs(inputs: usize, count: usize) -> io::Error {
    let given = if inputs > count { format!("more than {count}") } else { inputs.to_string() };
    let text = format!("{given} inputs for {count} shards; each shard needs exactly one");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn no_thread(count: usize, error: &io::Error) -> io::Error {
    io::Error::other(format!(
        "its thread, one of {count}, cannot be started: {error}; use fewer shards, or raise the limit of threads (`ulimit -u`, or \
         pids.max of the control group)"
    ))
}

fn guarded<R, E>(f: impl FnOnce() -> R) -> Result<R, Cause<E>> {
    // Unwind-safe: after a panic, everything that `f` borrowed is only dropped.
    catch_unwind(AssertUnwindSafe(f)).map_err(Cause::Panicked)
}

/// The resources that a thread has set up. Fields drop in order: the runtime ends while the thread
/// is still pinned.
struct LocalRuntime {
    runtime: Runtime,
    locked_down: bool,
    _pinned: Option<Pinned>,
}

impl LocalRuntime {
    /// Builds the runtime. Does not deny further rings yet, because other shards may still have to
    /// set up theirs.
    fn build(builder: Builder, cpu: Option<usize>) -> io::Result<Self> {
        let pinned = cpu.map(affinity::pin).transpose().map_err(io::Error::other)?;
        let locked_down = builder.is_locked_down();
        let runtime = builder.build_unsealed()?;
        if !runtime.is_reachable() {
            let text = "a simulated kernel has no other threads; use a single runtime there";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Ok(Self { runtime, locked_down, _pinned: pinned })
    }
}
