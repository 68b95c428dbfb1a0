//! Spawning on the runtime of this thread: tasks, and calls that block, on threads beside the loop.

use crate::blocking::BlockingCall;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::tasks::JoinHandle;
use crate::unwind::Panic;
use std::future::Future;
use std::io;
use std::panic::{Location, resume_unwind};

/// Spawns a task on the current runtime. It starts with the next turn; dropping the handle detaches it. If the runtime is
/// ending, the future is dropped at once, and the handle gives an error that [is a cancellation](crate::JoinError::is_cancelled).
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

/// As [`spawn`], called from this location.
#[track_caller]
pub(crate) fn spawn_at<F>(
    future: F,
    spawned_at: &'static Location<'static>,
) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    let Ok(core) = current::get() else {
        panic!("annulus::spawn was called outside a runtime; call it inside annulus::run");
    };
    core.request_turn();
    JoinHandle::new(core.run_queue.spawn(&core.remote, future, spawned_at))
}

/// Runs a call that blocks, or computes for long, on a thread of the runtime's pool, so that the loop goes on meanwhile. Awaiting the
/// handle gives its result; dropping the handle lets it go on.
///
/// Threads start when they are needed, [`blocking_threads`](crate::Builder::blocking_threads) at most. Further calls wait for one in the
/// order in which they were made: none is refused or lost. To shed load instead, take a permit of a `Semaphore` of `tokio::sync` with
/// `try_acquire_owned`, and move it into the call. Reading a file needs none of this: see [`fs`](crate::fs).
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
    spawn_at(result_of(offload(&core, call)), Location::caller())
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
