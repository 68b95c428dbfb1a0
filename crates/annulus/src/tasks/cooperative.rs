//! Task budget for the futures of other crates.

use crate::tasks::budget;
use pin_project_lite::pin_project;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// See [`cooperative`].
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
        std::task::ready!(budget::poll_left(cx));
        let polled = self.project().future.poll(cx);
        if polled.is_ready() {
            budget::take();
        }
        polled
    }
}
