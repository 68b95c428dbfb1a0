//! Sources of values as `Stream` of `futures-core`, for the combinators of `futures` and for libraries that take streams. Feature
//! `stream`.
//!
//! | stream | items |
//! |---|---|
//! | [`shards::Receiver`] | values, until the senders are gone |
//! | [`time::Interval`](Interval) | when each tick was due, for ever |
//! | [`Incoming`], of `incoming` and `into_incoming` of listeners | connections, or errors of single ones, for ever |
//! | [`signal::Signals`](Signals) | signals, for ever |
//!
//! All are `FusedStream`, so that they work in `select!` of `futures`. An item takes a unit of the task's
//! [budget](crate::Builder::task_budget), as by the stream's own method.
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

use crate::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use crate::shards;
use crate::signal::{Signal, Signals};
use crate::time::Interval;
use crate::timers::Instant;
use futures_core::{FusedStream, Stream};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

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

/// The connections of a listener, which it holds or borrows. It never ends; an item is an error as that of `accept` is.
///
/// ```
/// # annulus::run(async {
/// use annulus::net::{TcpListener, TcpStream};
/// use futures_util::StreamExt;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let client = TcpStream::connect(listener.local_addr()?).await?;
/// let mut incoming = listener.incoming();
/// let served = incoming.next().await.expect("it never ends")?;
/// assert_eq!(served.peer_addr()?, client.local_addr()?);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Incoming<L> {
    listener: L,
}

macro_rules! incoming {
    ($listener:ident, $stream:ident) => {
        impl $listener {
            /// A stream of the connections, which borrows this listener. Feature `stream`.
            pub fn incoming(&self) -> Incoming<&Self> {
                Incoming { listener: self }
            }

            /// A stream of the connections, which holds this listener. Feature `stream`.
            pub fn into_incoming(self) -> Incoming<Self> {
                Incoming { listener: self }
            }
        }

        incoming!(item $listener, $stream);
        incoming!(item &$listener, $stream);
    };
    (item $listener:ty, $stream:ident) => {
        impl Stream for Incoming<$listener> {
            type Item = io::Result<$stream>;

            fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
                let accepted = ready!(self.listener.poll_accept(cx));
                Poll::Ready(Some(accepted.map(|(stream, _peer)| stream)))
            }
        }

        impl FusedStream for Incoming<$listener> {
            fn is_terminated(&self) -> bool {
                false
            }
        }
    };
}

incoming!(TcpListener, TcpStream);
incoming!(UnixListener, UnixStream);
