//! Tasks: their memory, the run queue, and the inbox that other threads wake and spawn through.

mod body;
pub(crate) mod budget;
mod cooperative;
mod id;
mod join;
mod join_error;
mod join_state;
pub(crate) mod owner;
pub(crate) mod probe;
mod raw;
mod refs;
pub(crate) mod remote;
mod remote_flags;
mod root;
mod run_queue;
#[cfg(test)]
mod tests;

/// The atomics of reference counts and remote flags. The model in `tests/task_refs.rs` replaces
/// them with loom's.
mod atomic {
    pub(crate) use std::cell::Cell;
    pub(crate) use std::sync::atomic::{AtomicI64, AtomicU8, Ordering, fence};
}

pub(crate) use body::panic_message;
pub use cooperative::{Cooperative, cooperative};
pub use id::Id;
pub use join::{AbortHandle, JoinHandle};
pub use join_error::JoinError;
pub(crate) use raw::TaskRef;
pub(crate) use root::RootWaker;
pub use run_queue::Tasks;
pub(crate) use run_queue::{EVENT_INTERVAL, RunQueue, TaskSnapshot, refuse};

use crate::tasks::remote::Remote;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Spawns a task from another thread.
#[track_caller]
pub(crate) fn spawn_remotely<F>(remote: &Arc<Remote>, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    JoinHandle::new(Some(raw::send(future, remote, Location::caller())))
}

/// Consumes one unit of the task's [budget](crate::Builder::task_budget). If none is left, the
/// other ready tasks run first. Use it in loops that may always find something to do.
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
