//! The shards' threads: starting them, the barrier at which they wait until all are set up, and the
//! error of a run.

use super::Pinning;
use super::shard::Shard;
use crate::errors::with_text;
use crate::runtime::Handle;
use crate::runtime::{Builder, Runtime, deny_further_rings};
use crate::tasks::panic_message;
use crate::unwind::dispose_each;
use annulus_kernel::Linux;
use annulus_kernel::affinity::{self, Pinned};
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{fmt, io, iter, thread};

/// Runs `main` on `count` threads, each with a runtime of default settings. To change the settings,
/// or to pin the threads to CPUs, use [`Shards`].
///
/// ```
/// let squares = annulus::shards(3, async |shard| std::io::Result::Ok(shard.index() * shard.index()));
/// assert_eq!(squares.unwrap(), [0, 1, 4]);
/// ```
///
/// # Errors
/// The errors of [`Shards::run`].
pub fn shards<T, E, F, Fut>(count: usize, main: F) -> Result<Vec<T>, ShardError<E>>
where
    F: Fn(Shard) -> Fut + Sync,
    Fut: Future<Output = Result<T, E>>,
    T: Send,
    E: Send,
{
    Shards::new(count).run(main)
}

/// Far more shards than any machine has CPUs. A larger number is a mistake, such as a subtraction
/// that has underflowed, and would take all memory before the first thread starts.
const MAX_SHARDS: usize = 65_536;

/// Returns the builder of a shard's runtime, given the shard's index.
type Make = Box<dyn Fn(usize) -> Builder + Send + Sync>;

/// Settings of several runtimes, one per thread.
pub struct Shards {
    count: usize,
    pinning: Pinning,
    make: Make,
}

impl Shards {
    /// Creates the settings for `count` shards with default runtimes, which are not pinned to CPUs.
    pub fn new(count: usize) -> Self {
        let make: Make = Box::new(|_| Runtime::builder());
        Self { count, pinning: Pinning::default(), make }
    }

    /// Sets the CPUs that the shards run on. The default is [`Pinning::None`].
    pub fn pinning(mut self, pinning: Pinning) -> Self {
        self.pinning = pinning;
        self
    }

    /// Configures the shards' runtimes: `make` is called on each shard's thread with the shard's
    /// index, and returns the builder for its runtime. If any builder is [locked
    /// down](Builder::locked_down), the process cannot create further rings once all shards have
    /// theirs.
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
        if self.count > MAX_SHARDS {
            let text = format!(
                "{} shards are above the maximum of {MAX_SHARDS}; use one per CPU",
                self.count
            );
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

/// A shard whose runtime has been built.
pub(super) struct Ready {
    pub(super) handle: Handle,
    pub(super) locked_down: bool,
}

/// The state that the threads share until they end.
pub(super) struct StartBarrier<E> {
    state: Mutex<StartState<E>>,
    changed: Condvar,
}

struct StartState<E> {
    ready: Vec<Option<Ready>>,
    /// The handles of all shards, once all are ready.
    handles: Option<Arc<[Handle]>>,
    error: Option<ShardError<E>>,
}

impl<E> StartBarrier<E> {
    pub(super) fn new(count: usize) -> Self {
        let ready = (0..count).map(|_| None).collect();
        let state = StartState { ready, handles: None, error: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Records that a shard is ready, and waits until all are. Returns the handles of all shards.
    ///
    /// # Errors
    /// `Interrupted` if another shard failed; or an error if the process could not be locked down.
    pub(super) fn wait(&self, index: usize, ready: Ready) -> io::Result<Arc<[Handle]>> {
        let mut state = self.lock();
        state.ready[index] = Some(ready);
        if state.error.is_none() && state.ready.iter().all(Option::is_some) {
            state.start()?;
            self.changed.notify_all();
        }
        let waits = |state: &mut StartState<E>| state.handles.is_none() && state.error.is_none();
        let state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.handles.clone().ok_or_else(|| {
            io::Error::new(io::ErrorKind::Interrupted, "another shard could not be set up")
        })
    }

    /// Stops all shards. Keeps the first failure, because later ones result from it.
    pub(super) fn fail(&self, shard: usize, cause: Cause<E>) {
        let mut error = Some(ShardError { shard, cause });
        let mut state = self.lock();
        state.ready.iter().flatten().for_each(|ready| ready.handle.stop());
        if state.error.is_none() {
            state.error = error.take();
        }
        self.changed.notify_all();
        drop(state);
        // Dropping the program's error or panic payload runs the program's code, so this happens
        // after unlocking.
        dispose_each(error);
    }

    /// Returns the results or the first failure. Called once every thread has ended.
    pub(super) fn outcome<T>(self, results: Vec<Option<T>>) -> Result<Vec<T>, ShardError<E>> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = state.error {
            dispose_each(results);
            return Err(error);
        }
        let result = |result: Option<T>| result.expect("a shard without an error has no result");
        Ok(results.into_iter().map(result).collect())
    }

    fn lock(&self) -> MutexGuard<'_, StartState<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E> StartState<E> {
    fn start(&mut self) -> io::Result<()> {
        if self.ready.iter().flatten().any(|ready| ready.locked_down) {
            deny_further_rings(&Linux)?;
        }
        self.handles =
            Some(self.ready.iter().flatten().map(|ready| ready.handle.clone()).collect());
        Ok(())
    }
}

/// The first failure of a shard. It stopped all shards.
#[derive(Debug)]
pub struct ShardError<E> {
    /// The index of the shard that failed first.
    pub shard: usize,
    /// The reason why that shard failed.
    pub cause: Cause<E>,
}

/// The reason why a shard failed.
///
/// ```
/// use annulus::shards::{Cause, Shards};
///
/// let shards = Shards::new(2);
/// let failed = shards.run(async |shard| match shard.index() {
///     0 => std::future::pending::<Result<(), String>>().await,
///     _ => Err("no such upstream".to_owned()),
/// });
/// let error = failed.unwrap_err(); // Shard 0 was stopped.
/// match error.cause {
///     Cause::Main(why) => assert_eq!((error.shard, &*why), (1, "no such upstream")),
///     Cause::Panicked(payload) => std::panic::resume_unwind(payload),
///     other => panic!("{other}"),
/// }
/// ```
#[non_exhaustive]
pub enum Cause<E> {
    /// The thread could not be started or pinned, the runtime could not be built, or the driver
    /// failed permanently. `Interrupted` if [`Handle::stop`](crate::Handle::stop) stopped it.
    Runtime(io::Error),
    /// The shard's main returned this error.
    Main(E),
    /// The shard's main panicked with this payload. The panic hook has already run. Pass it to
    /// [`std::panic::resume_unwind`].
    Panicked(Box<dyn Any + Send>),
}

impl<E: fmt::Display> fmt::Display for ShardError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}: {}", self.shard, self.cause)
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for ShardError<E> {}

impl<E: fmt::Display> fmt::Display for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(error) => error.fmt(f),
            Self::Main(error) => error.fmt(f),
            Self::Panicked(panic) => write!(f, "panicked: {}", panic_message(panic)),
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(error) => f.debug_tuple("Runtime").field(error).finish(),
            Self::Main(error) => f.debug_tuple("Main").field(error).finish(),
            Self::Panicked(panic) => {
                f.debug_tuple("Panicked").field(&panic_message(panic)).finish()
            }
        }
    }
}

impl From<ShardError<io::Error>> for io::Error {
    /// Keeps the kind of an I/O error, and adds the shard to the text.
    fn from(error: ShardError<io::Error>) -> Self {
        let text = error.to_string();
        match error.cause {
            Cause::Runtime(cause) | Cause::Main(cause) => with_text(cause, text),
            Cause::Panicked(_) => Self::other(text),
        }
    }
}
