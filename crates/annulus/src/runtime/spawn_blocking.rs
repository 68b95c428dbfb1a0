//! Calls that block, beside the loop.

use crate::blocking::{BlockingCall, Full};
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::runtime::spawn::spawn_at;
use crate::tasks::JoinHandle;
use crate::unwind::Panic;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{Location, resume_unwind};

/// Runs a call that blocks, or computes for long, on a thread of the runtime's pool, so that the loop goes on meanwhile. Awaiting the
/// handle gives its result; dropping the handle lets it go on.
///
/// Threads start when they are needed, [`blocking_threads`](crate::Builder::blocking_threads) at most. Further calls wait for one in the
/// order in which they were made: none is refused or lost. [`try_spawn_blocking`] refuses instead. Reading a file needs none of this:
/// see [`fs`](crate::fs).
///
/// ```
/// # annulus::run(async {
/// let sum = annulus::spawn_blocking(|| (1..=1_000_000_u64).sum::<u64>());
/// assert_eq!(sum.await.unwrap(), 500_000_500_000);
/// # });
/// ```
///
/// A panic of the call is an error of the handle, as for a task. [Aborted](JoinHandle::abort) before it has begun, the call is not made;
/// later, it goes on, and its result is dropped on its thread. If no thread can be started, the handle gives a panic that says so.
///
/// The end of the runtime drops the calls that have not begun, and waits for those that have within its
/// [`shutdown_timeout`](crate::Builder::shutdown_timeout). Then it leaves them behind: such a call goes on until the process ends. On a
/// simulated kernel the call is made on the loop, in a turn of its own, so that the same seed gives the same run.
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn spawn_blocking<F, T>(call: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let core = current::get().expect(
        "annulus::spawn_blocking was called outside a runtime; call it inside annulus::run",
    );
    spawn_on(&core, call, Location::caller())
}

/// As [`spawn_blocking`], but refuses the call if all threads are in calls, no further one can be started, and as many calls wait for
/// one as [`blocking_queue`](crate::Builder::blocking_queue) says: for programs that shed load instead of letting it queue up.
///
/// ```
/// # annulus::run(async {
/// match annulus::task::try_spawn_blocking(|| 6 * 7) {
///     Ok(answer) => assert_eq!(answer.await.unwrap(), 42),
///     Err(full) => println!("try again later: {full}"),
/// }
/// # });
/// ```
///
/// # Errors
/// The call, if the pool is full.
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn try_spawn_blocking<F, T>(call: F) -> Result<JoinHandle<T>, PoolFull<F>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let core = current::get().expect(
        "annulus::task::try_spawn_blocking was called outside a runtime; call it inside annulus::run",
    );
    match core.blocking.pool.make_room() {
        Err(full) => Err(PoolFull { call, full }),
        Ok(()) => Ok(spawn_on(&core, call, Location::caller())),
    }
}

/// Spawns a task that makes the call in the runtime's pool.
fn spawn_on<F, T>(core: &Core, call: F, caller: &'static Location<'static>) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    spawn_at(result_of(offload(core, call)), caller)
}

/// A call for the current runtime's pool, which need not be a task.
pub(crate) fn offload<F, T>(core: &Core, call: F) -> BlockingCall<F, T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // A simulated kernel has no other threads.
    if core.remote.wake_fd().is_none() {
        return BlockingCall::inline(call);
    }
    BlockingCall::new(&core.blocking.pool, call)
}

/// The result of a call, whose panic becomes one of the task.
pub(crate) async fn result_of<T>(call: impl Future<Output = io::Result<Result<T, Panic>>>) -> T {
    match call.await {
        Ok(Ok(value)) => value,
        // The panic hook has seen it on the call's thread.
        Ok(Err(panic)) => resume_unwind(panic),
        Err(error) => panic!("{error}"),
    }
}

/// A call that was refused because the pool is full: see [`try_spawn_blocking`].
///
/// ```
/// # use annulus::Runtime;
/// let mut runtime = Runtime::builder().blocking_threads(1).blocking_queue(0).build()?;
/// runtime.block_on(async {
///     let (sender, receiver) = std::sync::mpsc::channel::<()>();
///     let waits = annulus::spawn_blocking(move || receiver.recv());
///     let refused = annulus::task::try_spawn_blocking(|| 7).unwrap_err();
///     assert_eq!(refused.into_call()(), 7, "nothing is lost");
///     drop(sender);
///     waits.await.unwrap().unwrap_err();
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PoolFull<F> {
    call: F,
    full: Full,
}

impl<F> PoolFull<F> {
    /// The call, which was not made.
    pub fn into_call(self) -> F {
        self.call
    }
}

impl<F> fmt::Display for PoolFull<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Full { threads, waiting, start_error } = &self.full;
        write!(
            f,
            "the blocking pool is full: its {threads} threads are in calls, and {waiting} more wait; "
        )?;
        match start_error {
            None => f.write_str(
                "raise blocking_threads or blocking_queue of the Builder, or make fewer calls at once",
            ),
            Some(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl<F> fmt::Debug for PoolFull<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<F> std::error::Error for PoolFull<F> {}

impl<F> From<PoolFull<F>> for io::Error {
    fn from(full: PoolFull<F>) -> Self {
        Self::new(io::ErrorKind::ResourceBusy, full.to_string())
    }
}
