//! One direction of a copy between streams, by polling.

use super::send::poll_room;
use super::{AsyncRecv, AsyncSend};
use crate::chunk::Chunk;
use crate::lease::Lease;
use crate::task::budget;
use std::io;
use std::task::{Context, Poll, ready};

/// Bytes on their way from one stream to another.
pub(super) struct Transfer {
    /// Received and not accepted yet; only if the sink accepts parts.
    chunk: Chunk,
    /// Length of `chunk` when it was received.
    taken: usize,
    copied: u64,
    limit: u64,
}

impl Transfer {
    pub(super) fn new(limit: u64) -> Self {
        Self { chunk: Chunk::EMPTY, taken: 0, copied: 0, limit }
    }

    /// Bytes that were accepted.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    /// Bytes were accepted.
    pub(super) fn note(&mut self, count: usize) {
        self.copied += count as u64;
    }

    /// Ready at the end of the source, or at the limit, once all of it was accepted.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn AsyncRecv,
        to: &mut dyn AsyncSend,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx, to))?;
            // With space for them, bytes that are received now are accepted at once, and so not lost if this is dropped.
            if let Err(error) = ready!(poll_room(cx, to)) {
                return Poll::Ready(if is_at_end(cx, from) { Ok(()) } else { Err(error) });
            }
            let Some(lease) = ready!(self.poll_next(cx, from))? else {
                return Poll::Ready(Ok(()));
            };
            self.taken = lease.len();
            self.chunk = lease.into();
        }
    }

    /// Sends what was received.
    fn poll_send(&mut self, cx: &mut Context<'_>, to: &mut dyn AsyncSend) -> Poll<io::Result<()>> {
        if self.taken == 0 {
            return Poll::Ready(Ok(()));
        }
        let sent = to.poll_send(cx, &mut self.chunk);
        // A chunk that was sent may stay, to be dropped.
        let left = if matches!(sent, Poll::Ready(Ok(()))) { 0 } else { self.chunk.len() };
        self.note(self.taken - left);
        self.taken = left;
        sent
    }

    /// The next bytes, as far as the limit allows; `None` at the end, and at the limit.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn AsyncRecv,
    ) -> Poll<io::Result<Option<Lease>>> {
        let left = self.limit - self.copied;
        if left == 0 {
            return Poll::Ready(Ok(None));
        }
        ready!(budget::poll_take(cx));
        if self.limit < u64::MAX {
            let shown = ready!(from.poll_fill_buf(cx))?.len();
            if shown as u64 > left {
                return from.poll_recv_exact(cx, left as usize).map_ok(Some);
            }
        }
        from.poll_recv(cx)
    }
}

/// Whether the source has ended: then a copy that was dropped and made again may find that its end was passed on.
#[cold]
fn is_at_end(cx: &mut Context<'_>, from: &mut dyn AsyncRecv) -> bool {
    matches!(from.poll_fill_buf(cx), Poll::Ready(Ok([])))
}
