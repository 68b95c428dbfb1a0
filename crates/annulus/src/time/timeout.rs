//! Futures with a time limit.

use super::sleep::{Sleep, sleep, sleep_until};
use crate::timers::Instant;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Runs a future for at most `duration`; then drops it and returns [`Elapsed`]. Each future
/// documents the effect of dropping it: dropped receives and accepts lose nothing.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(duration), elapsed: Elapsed { limit: Some(duration) } }
}

/// Like [`timeout`], but with a deadline.
pub fn timeout_at<F: Future>(deadline: Instant, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep_until(deadline), elapsed: Elapsed { limit: None } }
}

pin_project! {
    /// A future with a deadline.
    #[must_use = "a timeout does nothing unless awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        #[pin]
        sleep: Sleep,
        elapsed: Elapsed,
    }
}

impl<F> Timeout<F> {
    /// Returns the future without its deadline.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // The future is polled first: a result that is ready at the deadline counts.
        if let Poll::Ready(value) = this.future.poll(cx) {
            return Poll::Ready(Ok(value));
        }
        this.sleep.poll(cx).map(|()| Err(*this.elapsed))
    }
}

/// The error for a time limit that expired first. The message states the limit: `not ready within
/// 700ms`. Converted to [`io::Error`], the kind is `TimedOut` and the message is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    /// `None` for a deadline.
    limit: Option<Duration>,
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Some(limit) => write!(f, "not ready within {limit:?}"),
            None => f.write_str("not ready by the deadline"),
        }
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> Self {
        Self::new(io::ErrorKind::TimedOut, elapsed)
    }
}
