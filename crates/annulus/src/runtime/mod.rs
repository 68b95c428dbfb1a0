//! The runtime: one thread, one driver, one loop.

mod blocked;
mod builder;
mod choice;
pub(crate) mod core;
pub(crate) mod current;
mod guest;
mod handle;
mod inspect;
pub(crate) mod join_set;
pub(crate) mod nop;
#[cfg(feature = "macros")]
pub(crate) mod select;
pub(crate) mod shutdown;
pub(crate) mod signals;
pub(crate) mod spawn;
mod turn;
mod zero_copy_receive;

pub use builder::Builder;
pub(crate) use builder::deny_further_rings;
pub use choice::{DriverChoice, DriverInfo};
pub use current::EnterGuard;
pub use guest::{Guest, GuestNext};
pub use handle::Handle;
pub use zero_copy_receive::ZeroCopyReceive;

use crate::stats::Stats;
use annulus_driver::Counters;
use core::Core;
use std::future::Future;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

/// Builds a runtime with default settings on this thread, runs a future on it, drops the runtime,
/// and returns the future's output.
///
/// ```
/// let sum = annulus::run(async { 1 + annulus::spawn(async { 2 }).await.unwrap() });
/// assert_eq!(sum, 3);
/// ```
///
/// # Panics
/// If no runtime can be built, if one is already running on this thread, or for the reasons given
/// at [`Runtime::block_on`]. To handle these as errors, use [`Runtime::new`] and
/// [`Runtime::try_block_on`].
#[track_caller]
pub fn run<F: Future>(future: F) -> F::Output {
    match Runtime::new().and_then(|mut runtime| runtime.try_block_on(future)) {
        Ok(output) => output,
        Err(error) => failed("annulus::run", "Runtime::new and try_block_on", &error),
    }
}

/// A runtime for one thread: the ring belongs to the thread that built it.
///
/// Dropping the runtime drops its tasks, sends what streams have queued within the [shutdown
/// timeout](Builder::shutdown_timeout), cancels all other operations and waits for them, and then
/// frees the memory that the kernel has used. Any time left of that timeout goes to [blocking
/// calls](crate::task::spawn_blocking) that have begun.
pub struct Runtime {
    core: Rc<Core>,
    info: DriverInfo,
    shutdown_timeout: Duration,
    _stays_here: PhantomData<*const ()>,
}

impl Runtime {
    /// Creates a runtime with default settings.
    ///
    /// # Errors
    /// If no driver can be set up, with the reason and a remedy.
    pub fn new() -> std::io::Result<Self> {
        Self::builder().build()
    }

    /// Returns a builder with default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Runs a future to completion, and tasks in the meantime. Returns the future's output.
    /// Unfinished tasks continue with the next call.
    ///
    /// ```
    /// let mut runtime = annulus::Runtime::new()?;
    /// let name = runtime.block_on(async { "annulus" });
    /// assert_eq!(name, "annulus");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the loop cannot run or continue, for the reasons that are errors of
    /// [`try_block_on`](Self::try_block_on); and if the future panics.
    #[track_caller]
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        match self.try_block_on(future) {
            Ok(output) => output,
            Err(error) => failed("Runtime::block_on", "try_block_on", &error),
        }
    }

    /// Like [`block_on`](Self::block_on), but returns an error if the loop ends before the future
    /// does.
    ///
    /// # Errors
    /// If a runtime is already running on this thread, in a destructor of thread-local data, in a
    /// forked child, after [`Handle::stop`] (`Interrupted`), or if the driver fails permanently.
    /// The future is then dropped.
    pub fn try_block_on<F: Future>(&mut self, future: F) -> std::io::Result<F::Output> {
        let _entered = current::set_current(&self.core)?;
        self.core.run(future)
    }

    /// Makes this the current runtime of the thread until the guard is dropped, so that sockets and
    /// files can be created and tasks spawned outside of [`block_on`](Self::block_on). They make
    /// progress only within `block_on`, which may be called while the guard exists; until then,
    /// what would have to wait for the loop returns an error.
    ///
    /// ```
    /// use annulus::{Runtime, net::{TcpListener, TcpStream}};
    ///
    /// let mut runtime = Runtime::new()?;
    /// let entered = runtime.enter();
    /// let listener = TcpListener::bind("127.0.0.1:0")?; // Before any task runs.
    /// let address = listener.local_addr()?;
    /// let server = annulus::spawn(async move { listener.accept().await });
    /// drop(entered);
    /// runtime.block_on(async {
    ///     TcpStream::connect(address).await?;
    ///     server.await.unwrap()
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    /// If a runtime is running on this thread. The guard panics on drop if a guard that was created
    /// later still exists.
    #[track_caller]
    pub fn enter(&self) -> EnterGuard {
        match current::enter(&self.core) {
            Ok(guard) => guard,
            Err(error) => panic!("Runtime::enter failed: {error}"),
        }
    }

    /// Returns the driver in use and the reason for it.
    pub fn driver(&self) -> &DriverInfo {
        &self.info
    }

    /// Returns the driver's counters, or zeroes in a forked child.
    pub fn counters(&self) -> Counters {
        self.core.counters().unwrap_or_default()
    }

    /// Returns the state and counters of the runtime, or `None` in a forked child.
    pub fn stats(&self) -> Option<Stats> {
        self.core.stats()
    }

    /// Returns one line per task: the events it waits for and where it was spawned. For debugging a
    /// runtime that hangs. While the runtime runs, use [`Handle::tasks`].
    pub fn waiting(&self) -> Vec<String> {
        self.core.waiting()
    }

    /// Returns true if other threads can wake the runtime. They cannot under a simulated kernel.
    pub(crate) fn is_reachable(&self) -> bool {
        self.core.remote.wake_fd().is_some()
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// Returns a handle for other threads.
    pub fn handle(&self) -> Handle {
        Handle::new(self.core.remote.clone())
    }
}

/// Panics with the error of a call that cannot return one.
#[cold]
#[track_caller]
pub(crate) fn failed(call: &str, instead: &str, error: &std::io::Error) -> ! {
    panic!("{call} cannot run the future: {error}; to handle this as an error, use {instead}")
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.core.in_owner_process() {
            self.core.end_in_order(self.shutdown_timeout);
        } else {
            // The ring, the sockets and the memory belong to the parent process.
            std::mem::forget(self.core.clone());
        }
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runtime({})", self.info)
    }
}

/// Returns the counters of the current runtime's driver, or `None` outside a runtime and in a
/// forked child.
pub fn counters() -> Option<Counters> {
    current::with(|core| core.counters()).flatten()
}

/// Returns the number of turns that the loop of the current runtime has made, or `None` outside a
/// runtime. Everything that tasks send within one turn is submitted together at its end.
#[inline]
pub fn turns() -> Option<u64> {
    current::with(|core| core.turns())
}

/// Returns the stats of the current runtime, or `None` outside a runtime and in a forked child.
/// Other threads use [`Handle::stats`].
pub fn stats() -> Option<Stats> {
    current::with(|core| core.stats()).flatten()
}

/// Returns a handle to the current runtime, for other threads.
///
/// # Errors
/// Outside a runtime.
pub fn handle() -> std::io::Result<Handle> {
    current::get().map(|core| Handle::new(core.remote.clone()))
}
