//! A stream whose bytes are counted, and whose peer must go on reading.

use super::activity::Activity;
use super::open::Open;
use crate::hyper::WriteLimit;
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::{Chunk, Lease};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

pub(super) struct CountedStream<S> {
    stream: S,
    activity: Rc<Activity>,
    /// Counted until the stream is dropped, by what has upgraded it too.
    _open: Open,
    limit: WriteLimit,
}

impl<S> CountedStream<S> {
    pub(super) fn new(
        stream: S,
        activity: Rc<Activity>,
        open: Open,
        limit: Option<Duration>,
    ) -> Self {
        Self { stream, activity, _open: open, limit: WriteLimit::new(limit) }
    }

    /// Counts what a call has written, within the limit.
    fn counted(
        &mut self,
        cx: &mut Context<'_>,
        called: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = called {
            self.activity.add_written(count);
        }
        self.limit.within(cx, called)
    }
}

impl<S: AsyncRecv> AsyncRecv for CountedStream<S> {
    fn poll_peek(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        self.stream.poll_peek(cx, n)
    }

    fn consume(&mut self, n: usize) {
        self.activity.add_read(n);
        self.stream.consume(n);
    }

    fn poll_fill_buf(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.stream.poll_fill_buf(cx)
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        let received = self.stream.poll_recv(cx);
        if let Poll::Ready(Ok(Some(lease))) = &received {
            self.activity.add_read(lease.len());
        }
        received
    }
}

impl<S: AsyncSend> AsyncSend for CountedStream<S> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let called = self.stream.poll_write(cx, bytes);
        self.counted(cx, called)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let called = self.stream.poll_flush(cx);
        self.limit.within(cx, called)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let called = self.stream.poll_shutdown(cx);
        self.limit.within(cx, called)
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let called = self.stream.poll_write_vectored(cx, slices);
        self.counted(cx, called)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<()>> {
        let before = chunk.len();
        let called = self.stream.poll_send(cx, chunk);
        self.activity.add_written(before.saturating_sub(chunk.len()));
        self.limit.within(cx, called)
    }
}
