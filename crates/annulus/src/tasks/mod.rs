//! Tasks: their memory, the run queue, and the inbox that other threads wake and spawn through.

pub(crate) mod budget;
mod join;
mod late;
pub(crate) mod local;
mod raw;
mod refs;
pub(crate) mod remote;
pub(crate) mod run_queue;
#[cfg(test)]
mod tests;

/// The atomics of reference counts and remote flags. The model in `tests/task_refs.rs` replaces
/// them with loom's.
mod atomic {
    pub(crate) use std::cell::Cell;
    pub(crate) use std::sync::atomic::{AtomicI64, AtomicU8, Ordering, fence};
}

pub use join::{AbortHandle, Id, JoinError, JoinHandle};
pub(crate) use join::{JoinState, Outcome, panic_message};
pub(crate) use late::spawn_late;
pub(crate) use raw::{TaskRef, is_done};
pub(crate) use remote::RootWaker;
pub use run_queue::Tasks;
pub(crate) use run_queue::{EVENT_INTERVAL, RunQueue, TaskSnapshot, refuse};

use crate::tasks::remote::Remote;
use pin_project_lite::pin_project;
use std::future::{Future, IntoFuture, poll_fn};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

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

pin_project! {
    /// A future that uses the task's budget: see [`cooperative`].
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is awaited"]
    pub struct Cooperative<F> {
        #[pin]
        future: F,
    }
}

/// Makes a future consume one unit of the task's [budget](crate::Builder::task_budget) when it is
/// ready, like the futures of this crate. Use it for futures of other crates, such as the channels
/// of `tokio::sync`, in loops that may never run out of work. Once the budget is spent, the future
/// is not polled, and the task continues after the other ready tasks. It is as cancel-safe as the
/// inner future.
///
/// ```
/// # annulus::run(async {
/// use annulus::task::cooperative;
/// use tokio::sync::broadcast;
///
/// let (sender, mut prices) = broadcast::channel(8);
/// sender.send(7).unwrap();
/// drop(sender);
/// let mut sum = 0;
/// while let Ok(price) = cooperative(prices.recv()).await {
///     sum += price;
/// }
/// assert_eq!(sum, 7);
/// # });
/// ```
pub fn cooperative<F: IntoFuture>(future: F) -> Cooperative<F::IntoFuture> {
    Cooperative { future: future.into_future() }
}

impl<F: Future> Future for Cooperative<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        ready!(budget::poll_left(cx));
        let polled = self.project().future.poll(cx);
        if polled.is_ready() {
            budget::take();
        }
        polled
    }
}
