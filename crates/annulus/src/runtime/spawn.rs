//! Spawns tasks on the runtime of this thread, and blocking calls on threads of its pool.

use crate::blocking::{AtEnd, BlockingCall};
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::tasks::{JoinHandle, refuse};
use crate::unwind::Panic;
use std::future::Future;
use std::io;
use std::panic::{Location, resume_unwind};

/// Spawns a task on the current runtime. The task starts in the next turn. Dropping the handle
/// detaches the task. If the runtime is ending, or belongs to the parent of this forked process,
/// the future is dropped at once, and the handle returns an error that [is a
/// cancellation](crate::task::JoinError::is_cancelled).
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    spawn_at(future, Location::caller())
}

/// The same as [`spawn`], under tokio's name: here all tasks stay on their thread, so no `LocalSet`
/// is needed.
///
/// ```
/// # annulus::run(async {
/// let shared = std::rc::Rc::new(7);
/// let task = annulus::task::spawn_local(async move { *shared + 1 });
/// assert_eq!(task.await.unwrap(), 8);
/// # });
/// ```
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    spawn_at(future, Location::caller())
}

/// Like [`spawn`], but records `spawned_at` as the place of the call.
#[track_caller]
pub(crate) fn spawn_at<F>(
    future: F,
    spawned_at: &'static Location<'static>,
) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    let core = current::expect("annulus::spawn");
    if core.request_turn().is_err() {
        refuse(future);
        return JoinHandle::new(None);
    }
    JoinHandle::new(core.run_queue.spawn(&core.remote, future, spawned_at))
}

/// Runs a call that blocks, or computes for a long time, on a thread of the runtime's pool, so that
/// the loop keeps running. Awaiting the handle returns the result; dropping the handle detaches the
/// call.
///
/// Threads start when they are needed, at most
/// [`blocking_threads`](crate::Builder::blocking_threads). Further calls wait for a thread in the
/// order in which they were made; none is refused because all threads are busy. To shed load
/// instead, acquire a permit from a `tokio::sync::Semaphore` with `try_acquire_owned`, and move it
/// into the call. File I/O does not need this: see [`fs`](crate::fs).
///
/// ```
/// # annulus::run(async {
/// let sum = annulus::task::spawn_blocking(|| (1..=1_000_000_u64).sum::<u64>());
/// assert_eq!(sum.await.unwrap(), 500_000_500_000);
/// # });
/// ```
///
/// If the call panics, the handle returns an error, as for a task. A call that is
/// [aborted](JoinHandle::abort) before it has begun is not made. One that has begun continues, and
/// its result is dropped on its thread. If no thread can be started, the handle returns an error
/// that [is a panic](crate::task::JoinError::is_panic) and says so.
///
/// When the runtime ends, it drops the calls that have not begun, and waits for the others for at
/// most its [`shutdown_timeout`](crate::Builder::shutdown_timeout). After that, a remaining call
/// continues until it returns or the process ends. On a simulated kernel the call is made on the
/// loop, in a turn of its own, so that the same seed produces the same run.
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn spawn_blocking<F, T>(call: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let core = current::expect("annulus::task::spawn_blocking");
    spawn_at(result_of(offload(&core, AtEnd::Waits, call)), Location::caller())
}

/// Prepares a call for the pool of this runtime, without a task.
pub(crate) fn offload<F, T>(core: &Core, at_end: AtEnd, call: F) -> BlockingCall<F, T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // A simulated kernel has no other threads.
    if core.remote.wake_fd().is_none() {
        return BlockingCall::inline(call);
    }
    BlockingCall::new(&core.blocking.pool, at_end, call)
}

/// Returns the result of a call. A panic of the call becomes a panic of the task.
pub(crate) async fn result_of<T>(call: impl Future<Output = io::Result<Result<T, Panic>>>) -> T {
    match call.await {
        Ok(Ok(value)) => value,
        // The panic hook has already run on the call's thread.
        Ok(Err(panic)) => resume_unwind(panic),
        Err(error) => panic!("{error}"),
    }
}
