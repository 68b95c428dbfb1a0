//! One direction of a copy between streams, by polling.

use super::send::poll_room;
use super::{AsyncRecv, AsyncSend};
use crate::base::budget;
use crate::bytes::chunk::Chunk;
use crate::bytes::lease::Lease;
use crate::net::Link;
use std::cell::Cell;
use std::io;
use std::task::{Context, Poll, ready};

/// Bytes on their way to a sink, which may take parts.
pub(super) struct Outgoing {
    chunk: Chunk,
    /// Bytes that are not taken yet. A chunk that was sent may stay, to be dropped.
    left: usize,
}

impl Outgoing {
    const NONE: Self = Self { chunk: Chunk::EMPTY, left: 0 };

    pub(super) fn new(bytes: impl Into<Chunk>) -> Self {
        let chunk = bytes.into();
        Self { left: chunk.len(), chunk }
    }

    /// How many bytes were taken by this call; and whether that was the rest of them.
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

/// Bytes on their way from one stream to another.
pub(super) struct Transfer {
    /// Received and not sent on yet; only if the sink takes parts.
    received: Outgoing,
    copied: Cell<u64>,
    limit: u64,
    /// Bytes were taken since the last flush.
    unflushed: bool,
    /// While nothing is there, streams of this crate pass on new bytes without the task.
    link: Option<Link>,
}

impl Transfer {
    pub(super) fn new(limit: u64) -> Self {
        Self { received: Outgoing::NONE, copied: Cell::new(0), limit, unflushed: false, link: None }
    }

    /// Bytes that the sink has taken.
    pub(super) fn copied(&self) -> u64 {
        let forwarded = self.link.as_ref().map_or(0, Link::take_forwarded);
        self.copied.set(self.copied.get() + forwarded);
        self.copied.get()
    }

    /// Sets a limit, of which bytes that were taken before are a part.
    pub(super) fn set_limit(&mut self, limit: u64) {
        // A link knows the old one.
        self.stop();
        self.limit = limit;
    }

    /// How many more bytes may be copied.
    fn left(&self) -> u64 {
        if self.limit == u64::MAX { u64::MAX } else { self.limit.saturating_sub(self.copied()) }
    }

    /// Nothing is passed on any more without a poll.
    pub(super) fn stop(&mut self) {
        self.copied();
        self.link = None;
    }

    /// The sink has taken bytes.
    pub(super) fn note(&mut self, count: usize) {
        *self.copied.get_mut() += count as u64;
    }

    /// Ready at the end of the source, or at the limit, once the sink has taken all of it.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn AsyncRecv,
        to: &mut dyn AsyncSend,
    ) -> Poll<io::Result<()>> {
        loop {
            // The receive takes of the budget: the bytes that it has brought are sent without.
            let sent = budget::poll_free(|| {
                let (taken, sent) = self.received.poll_send(cx, to);
                self.note(taken);
                self.unflushed |= taken > 0;
                sent
            });
            ready!(sent)?;
            if self.left() == 0 {
                // This includes a copy that was made again, whose sink may know of the end.
                return Poll::Ready(Ok(()));
            }
            // With space for them, bytes that are received now are queued at once, and so not lost if this is dropped.
            if let Err(error) = ready!(budget::poll_free(|| self.poll_room(cx, to))) {
                return refused(cx, from, to, error);
            }
            // Linked only if the receive itself waits: else bytes that come would overtake those that are there. One that waits takes
            // nothing of the budget.
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

    /// Ready once received bytes are queued at once. If they go through a pipe, the pipe is taken once nothing else is unsent.
    fn poll_room(&self, cx: &mut Context<'_>, to: &mut dyn AsyncSend) -> Poll<io::Result<()>> {
        match (&self.link, to.own_stream()) {
            (Some(link), Some(stream)) if link.is_splicing() => stream.handle.poll_drain(cx),
            _ => poll_room(cx, to),
        }
    }

    /// Nothing has been received, and new bytes would be queued at once. Bytes that a sink of a program's own holds back leave now: the
    /// peer may wait for it before it sends more.
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

    /// The next bytes, as far as the limit allows; `None` at the end, and at the limit.
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
            // The bytes that are shown, and not those that `poll_recv` returns, which may be more.
            let shown = ready!(from.poll_fill_buf(cx))?.len();
            return match left.min(shown as u64) {
                0 => Poll::Ready(Ok(None)),
                count => from.poll_recv_exact(cx, count as usize).map_ok(Some),
            };
        }
        from.poll_recv(cx)
    }
}

/// The target takes nothing more. That is no error at the end of the source, as of a copy that was made again behind it; nor before
/// bytes come, if the target was shut down: the other direction goes on.
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

    /// Shows a few bytes, and receives all.
    struct Shy(&'static [u8]);

    impl AsyncRecv for Shy {
        fn poll_peek(&mut self, _: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
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
    fn a_source_that_shows_fewer_bytes_than_it_receives_is_read_up_to_the_limit() {
        let cx = &mut Context::from_waker(Waker::noop());
        let (mut from, mut to) = (Shy(b"a body, and what follows"), Vec::new());
        let mut transfer = Transfer::new(6);
        assert!(matches!(transfer.poll(cx, &mut from, &mut to), Poll::Ready(Ok(()))));
        assert_eq!((&to[..], from.0), (&b"a body"[..], &b", and what follows"[..]));
        assert_eq!(transfer.copied(), 6);
    }
}
