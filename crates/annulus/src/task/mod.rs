//! Tasks: futures that run concurrently on the runtime's thread.
//!
//! | to | use |
//! |---|---|
//! | run a future beside this one | [`spawn`] |
//! | take the results of many tasks as they come | [`JoinSet`] |
//! | wait until all tasks of a part of the program have ended | [`scope`] |
//! | end a task | [`JoinHandle::abort`], [`AbortHandle`]; or ask it to, by [`CancellationToken`](crate::sync::CancellationToken) |
//! | make a call that blocks | [`spawn_blocking`] |
//! | run two futures in one task, without spawning | `join!` and `select!` of the crates `futures` and `tokio` |
//! | let the other tasks run | [`yield_now`], [`consume_budget`] |
//!
//! The `select!` of `futures` takes fused futures: `pin!(future.fuse())`, and `stream.select_next_some()` of a
//! stream (feature `stream`). That of `tokio` takes any, and works outside of its runtime.
//!
//! ```
//! # annulus::run(async {
//! use annulus::sync::CancellationToken;
//! use futures_util::{FutureExt, select_biased};
//! use std::pin::pin;
//!
//! let stop = CancellationToken::new();
//! let child = stop.child_token();
//! let task = annulus::spawn(async move {
//!     let mut stopped = pin!(child.cancelled().fuse());
//!     let mut work = pin!(std::future::pending::<u32>().fuse());
//!     select_biased! {
//!         () = stopped => None,
//!         result = work => Some(result),
//!     }
//! });
//! stop.cancel();
//! assert_eq!(task.await.unwrap(), None);
//! # });
//! ```

mod abort;
mod blocking;
mod body;
pub(crate) mod budget;
mod guarded;
mod join;
mod join_error;
mod join_set;
mod join_state;
pub(crate) mod owner;
mod raw;
mod refs;
pub(crate) mod refused;
mod remote_flags;
mod root;
mod run_queue;
mod scope;
#[cfg(test)]
mod tests;

/// The atomics of reference counts and remote flags. The model in `tests/task_refs.rs` puts loom's in their place.
mod atomic {
    pub(crate) use std::cell::Cell;
    pub(crate) use std::sync::atomic::{AtomicI64, AtomicU8, Ordering, fence};
}

pub use abort::AbortHandle;
pub(crate) use blocking::offload;
pub use blocking::{PoolFull, spawn_blocking, try_spawn_blocking};
pub(crate) use body::panic_message;
pub use join::JoinHandle;
pub use join_error::JoinError;
pub use join_set::JoinSet;
pub(crate) use raw::TaskRef;
pub(crate) use root::RootWaker;
pub(crate) use run_queue::{EVENT_INTERVAL, RunQueue, Task};
pub use scope::{Scope, scope};

use crate::runtime::current;
use crate::runtime::remote::Remote;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Spawns a task on the current runtime. It starts with the next turn; dropping the handle detaches it. If the runtime is
/// ending, the future is dropped at once, and the handle gives an error that [is a cancellation](JoinError::is_cancelled).
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

/// Spawns a task from another thread.
#[track_caller]
pub(crate) fn spawn_remotely<F>(remote: &Arc<Remote>, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    JoinHandle::new(Some(raw::send(future, remote, Location::caller())))
}

/// Takes one unit of the task's [budget](crate::Builder::task_budget): at zero, the other ready tasks run first. For loops that
/// may always find something to do.
pub async fn consume_budget() {
    poll_fn(|cx| budget::poll_take(cx)).await;
}

/// Lets the other ready tasks run first.
pub async fn yield_now() {
    struct Yield(bool);

    impl Future for Yield {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }

    Yield(false).await;
}
