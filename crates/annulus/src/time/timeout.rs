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

/// Runs a future for at most `duration`; then drops it and returns [`Elapsed`]. The effect of dropping is documented at each future:
/// dropped receives and accepts lose nothing.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(duration), elapsed: Elapsed { limit: Some(duration) } }
}

/// As [`timeout`], until a moment.
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
    /// The future, without its deadline.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // The future first: a result that is there at the deadline counts.
        if let Poll::Ready(value) = this.future.poll(cx) {
            return Poll::Ready(Ok(value));
        }
        this.sleep.poll(cx).map(|()| Err(*this.elapsed))
    }
}

/// The time limit came first; the text names it: `not ready within 700ms`. As an [`io::Error`] it is `TimedOut`, with the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    /// `None` for a moment.
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
