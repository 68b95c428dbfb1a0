//! Implementations of `futures_core::Stream`, for the combinators of `futures` and for libraries
//! that take streams. Feature `stream`.
//!
//! | stream | items |
//! |---|---|
//! | [`shards::Receiver`] | values, until all senders are gone |
//! | [`time::Interval`](Interval) | the time at which each tick was due, forever |
//! | [`signal::Signals`](Signals) | signals, forever |
//!
//! A stream of connections is `futures::stream::poll_fn(|cx| listener.poll_accept(cx).map(Some))`.
//!
//! All of them implement `FusedStream`, so that they work in the `select!` of `futures`. An item
//! uses one unit of the task's [budget](crate::Builder::task_budget), as with the type's own
//! method.
//!
//! ```
//! # annulus::run(async {
//! use annulus::shards;
//! use futures_util::{StreamExt, select};
//!
//! let (sender, mut numbers) = shards::channel(8);
//! let mut ticks = annulus::time::interval(std::time::Duration::from_secs(3600));
//! annulus::spawn(async move { sender.send(7).await });
//! let (mut seen, mut ticked) = (None, false);
//! while seen.is_none() || !ticked {
//!     select! {
//!         number = numbers.select_next_some() => seen = Some(number),
//!         _due = ticks.select_next_some() => ticked = true,
//!     }
//! }
//! assert_eq!(seen, Some(7));
//! # });
//! ```

use crate::shards;
use crate::signal::{Signal, Signals};
use crate::time::Interval;
use crate::timers::Instant;
use futures_core::{FusedStream, Stream};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

impl<T> Stream for shards::Receiver<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let polled = self.poll_recv(cx);
        self.is_over = matches!(polled, Poll::Ready(None));
        polled
    }
}

impl<T> FusedStream for shards::Receiver<T> {
    fn is_terminated(&self) -> bool {
        self.is_over
    }
}

impl Stream for Interval {
    type Item = Instant;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        self.poll_tick(cx).map(Some)
    }
}

impl FusedStream for Interval {
    fn is_terminated(&self) -> bool {
        false
    }
}

impl Stream for Signals {
    type Item = io::Result<Signal>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_recv(cx).map(Some)
    }
}

impl FusedStream for Signals {
    fn is_terminated(&self) -> bool {
        false
    }
}
