//! One direction of a copy between streams, as a state machine that is polled.

use super::send::poll_room;
use super::{AsyncRecv, AsyncSend};
use crate::bytes::chunk::Chunk;
use crate::bytes::lease::Lease;
use crate::net::Link;
use crate::tasks::budget;
use std::cell::Cell;
use std::io;
use std::task::{Context, Poll, ready};

/// Bytes on their way to a sink, which may accept them in parts.
pub(super) struct Outgoing {
    chunk: Chunk,
    /// Number of bytes that have not been accepted yet. It is 0 once the sink has accepted the
    /// chunk, even if the chunk still contains its bytes.
    left: usize,
}

impl Outgoing {
    const NONE: Self = Self { chunk: Chunk::EMPTY, left: 0 };

    pub(super) fn new(bytes: impl Into<Chunk>) -> Self {
        let chunk = bytes.into();
        Self { left: chunk.len(), chunk }
    }

    /// Returns the number of bytes accepted by this call, and whether all bytes have now been
    /// accepted.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut dyn AsyncSend,
    ) -> (usize, Poll<io::Result<()>>) {
        if self.left == 0 {
            return (0, Poll::Ready(Ok(())));
        }
        let sent = to.poll_send(cx, &mut self.chunk);
        let left = if matches!(sent, Poll::Ready(Ok(()))) { 0 } else { self.chunk.len() };
        let taken = self.left.saturating_sub(left);
        self.left = left;
        (taken, sent)
    }
}

pub(super) struct Transfer {
    /// Bytes that were received but not yet accepted by the sink.
    received: Outgoing,
    copied: Cell<u64>,
    limit: u64,
    /// Whether bytes have been accepted since the last flush.
    unflushed: bool,
    /// The link between two streams of this crate, made when the source has to wait. New bytes are
    /// then passed on without waking the task.
    link: Option<Link>,
}

impl Transfer {
    pub(super) fn new(limit: u64) -> Self {
        Self { received: Outgoing::NONE, copied: Cell::new(0), limit, unflushed: false, link: None }
    }

    /// Returns the number of bytes that the sink has accepted, including those of the link.
    pub(super) fn copied(&self) -> u64 {
        let forwarded = self.link.as_ref().map_or(0, Link::take_forwarded);
        self.copied.set(self.copied.get() + forwarded);
        self.copied.get()
    }

    /// Sets the limit. Bytes that have already been accepted count towards it.
    pub(super) fn set_limit(&mut self, limit: u64) {
        // The link still uses the old limit.
        self.stop();
        self.limit = limit;
    }

    fn left(&self) -> u64 {
        if self.limit == u64::MAX { u64::MAX } else { self.limit.saturating_sub(self.copied()) }
    }

    /// Removes the link, so that the runtime no longer passes on bytes by itself.
    pub(super) fn stop(&mut self) {
        self.copied();
        self.link = None;
    }

    /// Records that the sink has accepted bytes.
    pub(super) fn note(&mut self, count: usize) {
        *self.copied.get_mut() += count as u64;
    }

    /// Returns `Ready` at the end of the source or at the limit, once the sink has accepted
    /// everything.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn AsyncRecv,
        to: &mut dyn AsyncSend,
    ) -> Poll<io::Result<()>> {
        loop {
            // Receiving consumes budget; sending the received bytes does not.
            let sent = budget::poll_free(|| {
                let (taken, sent) = self.received.poll_send(cx, to);
                self.note(taken);
                self.unflushed |= taken > 0;
                sent
            });
            ready!(sent)?;
            if self.left() == 0 {
                // Returns before asking the sink for space: a copy that is called again after it
                // reached its limit succeeds even if the sink has been shut down.
                return Poll::Ready(Ok(()));
            }
            // Receive only once the sink has space. A sink of this crate then queues the received
            // bytes at once, so dropping the copy does not lose them.
            if let Err(error) = ready!(budget::poll_free(|| self.poll_room(cx, to))) {
                return refused(cx, from, to, error);
            }
            // Link the streams only if the receive itself waits; otherwise new bytes would overtake
            // bytes that have already arrived. A receive that waits consumes no budget.
            ready!(budget::poll_left(cx));
            match self.poll_received(cx, from)? {
                Poll::Ready(Some(lease)) => {
                    _ = budget::poll_take(cx);
                    self.received = Outgoing::new(lease);
                }
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => return self.wait(cx, from, to),
            }
        }
    }

    /// Returns `Ready` once received bytes would be queued at once. If the link splices bytes
    /// through a pipe, also waits until the sink has nothing left to send.
    fn poll_room(&self, cx: &mut Context<'_>, to: &mut dyn AsyncSend) -> Poll<io::Result<()>> {
        match (&self.link, to.own_stream()) {
            (Some(link), Some(stream)) if link.is_splicing() => stream.handle.poll_drain(cx),
            _ => poll_room(cx, to),
        }
    }

    /// Waits for the source, which has nothing to read. Links the streams if both belong to this
    /// crate. A sink of another crate is flushed, because the source's peer may be waiting for
    /// bytes that the sink holds back.
    fn wait<T>(
        &mut self,
        cx: &mut Context<'_>,
        from: &dyn AsyncRecv,
        to: &mut dyn AsyncSend,
    ) -> Poll<io::Result<T>> {
        match (from.own_source(), to.own_stream()) {
            (Some(from), Some(to)) => from.handle.link(to.handle, self.left(), &mut self.link),
            (_, None) if self.unflushed => {
                ready!(to.poll_flush(cx))?;
                self.unflushed = false;
            }
            _ => {}
        }
        Poll::Pending
    }

    /// Returns the next bytes, at most as many as the limit allows, or `None` at the end of the
    /// source and at the limit.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn AsyncRecv,
    ) -> Poll<io::Result<Option<Lease>>> {
        ready!(budget::poll_left(cx));
        let received = ready!(self.poll_received(cx, from));
        _ = budget::poll_take(cx);
        Poll::Ready(received)
    }

    fn poll_received(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn AsyncRecv,
    ) -> Poll<io::Result<Option<Lease>>> {
        let left = self.left();
        if left == 0 {
            return Poll::Ready(Ok(None));
        }
        if self.limit < u64::MAX {
            // Count the shown bytes first, because `poll_recv` may return more than `left`.
            let shown = ready!(from.poll_fill_buf(cx))?.len();
            return match left.min(shown as u64) {
                0 => Poll::Ready(Ok(None)),
                count => from.poll_recv_exact(cx, count as usize).map_ok(Some),
            };
        }
        from.poll_recv(cx)
    }
}

/// Handles a sink that failed with `error`. At the end of the source, the copy succeeds, so that a
/// finished copy can be repeated. While the source is idle, it waits if the sink was shut down, so
/// that the copy in the other direction continues.
#[cold]
fn refused(
    cx: &mut Context<'_>,
    from: &mut dyn AsyncRecv,
    to: &dyn AsyncSend,
    error: io::Error,
) -> Poll<io::Result<()>> {
    ready!(budget::poll_left(cx));
    match budget::poll_free(|| from.poll_fill_buf(cx)) {
        Poll::Ready(Ok([])) => budget::poll_take(cx).map(Ok),
        Poll::Pending if to.own_stream().is_some_and(|to| to.handle.is_shut_down()) => {
            Poll::Pending
        }
        _ => budget::poll_take(cx).map(|()| Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// A source that shows only a few bytes at a time, but returns all of them from `poll_recv`.
    struct ShowsFewBytes(&'static [u8]);

    impl AsyncRecv for ShowsFewBytes {
        fn poll_fill_at_least(&mut self, _: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
            Poll::Ready(Ok(&self.0[..n.max(4).min(self.0.len())]))
        }

        fn consume(&mut self, n: usize) {
            self.0 = &self.0[n..];
        }

        fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
            self.0.poll_recv(cx)
        }
    }

    #[test]
    fn copy_from_a_source_that_shows_few_bytes_stops_at_the_limit() {
        let cx = &mut Context::from_waker(Waker::noop());
        let (mut from, mut to) = (ShowsFewBytes(b"a body, and what follows"), Vec::new());
        let mut transfer = Transfer::new(6);
        assert!(matches!(transfer.poll(cx, &mut from, &mut to), Poll::Ready(Ok(()))));
        assert_eq!((&to[..], from.0), (&b"a body"[..], &b", and what follows"[..]));
        assert_eq!(transfer.copied(), 6);
    }
}
