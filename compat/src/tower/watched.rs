//! A stream whose peer must go on reading.

use annulus::io::{AsyncRecv, AsyncSend};
use annulus::time::{Sleep, sleep};
use annulus::{Chunk, Lease};
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

pub(super) struct WriteLimit<S> {
    stream: S,
    limit: Option<Duration>,
    /// Set while a write waits.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteLimit<S> {
    pub(super) fn new(stream: S, limit: Option<Duration>) -> Self {
        Self { stream, limit, waits: None }
    }

    /// What came of a call, or the limit's error if it has waited for too long.
    fn within_limit<T>(
        &mut self,
        cx: &mut Context<'_>,
        called: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(limit) = self.limit.filter(|_| called.is_pending()) else {
            self.waits = None;
            return called;
        };
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(limit)));
        waits.as_mut().poll(cx).map(|()| Err(stopped_reading(limit)))
    }
}

fn stopped_reading(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the peer has read nothing for {limit:?}"))
}

impl<S: AsyncRecv> AsyncRecv for WriteLimit<S> {
    fn poll_peek(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        self.stream.poll_peek(cx, n)
    }

    fn consume(&mut self, n: usize) {
        self.stream.consume(n);
    }

    fn poll_fill_buf(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.stream.poll_fill_buf(cx)
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        self.stream.poll_recv(cx)
    }
}

impl<S: AsyncSend> AsyncSend for WriteLimit<S> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let called = self.stream.poll_write(cx, bytes);
        self.within_limit(cx, called)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let called = self.stream.poll_flush(cx);
        self.within_limit(cx, called)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let called = self.stream.poll_shutdown(cx);
        self.within_limit(cx, called)
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let called = self.stream.poll_write_vectored(cx, slices);
        self.within_limit(cx, called)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<()>> {
        let called = self.stream.poll_send(cx, chunk);
        self.within_limit(cx, called)
    }
}
