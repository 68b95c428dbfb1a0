//! A stream that counts bytes and limits how long the peer may go without reading.

use super::activity::Activity;
use super::open::{Direction, Open};
use crate::hyper::WriteLimit;
use annulus::io::{AsyncRecv, AsyncSend};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};

pub(super) struct CountedStream<S> {
    pub(super) stream: S,
    pub(super) activity: Rc<Activity>,
    /// Counts the connection as open until the stream is dropped, even after an upgrade.
    pub(super) open: Rc<Open>,
    pub(super) limit: WriteLimit,
}

impl<S> CountedStream<S> {
    /// Counts the bytes that a call has written, and applies the write limit.
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
    fn poll_fill_at_least(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        self.open.check_cut(Direction::Read, cx)?;
        self.stream.poll_fill_at_least(cx, n)
    }

    fn consume(&mut self, n: usize) {
        self.activity.add_read(n);
        self.stream.consume(n);
    }

    fn poll_fill_buf(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.open.check_cut(Direction::Read, cx)?;
        self.stream.poll_fill_buf(cx)
    }
}

impl<S: AsyncSend> AsyncSend for CountedStream<S> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.open.check_cut(Direction::Write, cx)?;
        let called = self.stream.poll_write(cx, bytes);
        self.counted(cx, called)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open.check_cut(Direction::Write, cx)?;
        let called = self.stream.poll_flush(cx);
        self.limit.within(cx, called)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open.check_cut(Direction::Write, cx)?;
        let called = self.stream.poll_shutdown(cx);
        self.limit.within(cx, called)
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.open.check_cut(Direction::Write, cx)?;
        let called = self.stream.poll_write_vectored(cx, slices);
        self.counted(cx, called)
    }
}
