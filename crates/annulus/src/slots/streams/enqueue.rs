//! Queueing for sending: chunks and copies within the bound. Tasks wait here for space, until the kernel has taken everything, or for the end.

use super::send_state::SendState;
use super::{Shared, Stream};
use crate::base::budget;
use crate::base::io::Io;
use crate::base::op_error::Operation;
use crate::bytes::after::note_waker;
use crate::bytes::chunk::Chunk;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

/// Chunks up to this size are copied together while a peer makes no room: each would keep a buffer, or an allocation.
const PIECE: usize = 8 * 1024;

impl Stream {
    /// Queues a chunk for sending, unless so much is queued already that the caller has to wait.
    ///
    /// # Errors
    /// The error that an earlier send failed with, or that the stream was shut down.
    #[inline]
    pub(crate) fn poll_enqueue(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        chunk: &mut Option<Chunk>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(io.poll_budget(cx));
        if self.tx.refuses() {
            budget::take();
            return Poll::Ready(Err(self.refusal(io)));
        }
        if self.is_at_send_bound(io) {
            self.wait_for_room(shared, io, cx);
            return Poll::Pending;
        }
        let Some(chunk) = chunk.take() else { return Poll::Ready(Ok(())) };
        budget::take();
        self.enqueue(shared, io, chunk);
        Poll::Ready(Ok(()))
    }

    /// So much is queued that a send has to wait.
    #[inline]
    pub(super) fn is_at_send_bound(&self, io: &Io) -> bool {
        let bytes = self.tx.bytes;
        bytes > io.memory.waiting_bound && bytes > self.send_bound(io)
    }

    /// The bound of the queued bytes.
    pub(super) fn send_bound(&self, io: &Io) -> usize {
        if self.tx.is_waiting() { io.memory.waiting_bound } else { io.memory.send_bound }
    }

    /// Queues a chunk; the caller has asked whether it can.
    #[inline]
    pub(super) fn enqueue(&mut self, shared: &mut Shared, io: &mut Io, chunk: Chunk) {
        if chunk.is_empty() || self.tx.is_waiting() {
            return self.enqueue_aside(shared, io, chunk);
        }
        io.memory.meter.add(chunk.weight());
        self.tx.push(chunk);
        self.list_send(shared);
    }

    /// Ready once the queued bytes fit the bound.
    ///
    /// # Errors
    /// The error that a send failed with.
    #[inline]
    pub(crate) fn poll_room(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        let bound = io.send_bound();
        let polled = self.poll_sent(io, cx, |tx| tx.bytes <= bound);
        if polled.is_pending() {
            self.wait_for_memory(shared, io);
        }
        polled
    }

    /// Ready once the kernel has taken everything.
    ///
    /// # Errors
    /// The error that a send failed with.
    pub(crate) fn poll_drain(&mut self, io: &mut Io, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(io, cx, SendState::is_drained)
    }

    /// Ready once everything was sent and the write side has ended.
    ///
    /// # Errors
    /// The error that a send failed with.
    pub(crate) fn poll_end(&mut self, io: &mut Io, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.end_when_sent(io);
        self.poll_sent(io, cx, |tx| tx.ended)
    }

    /// Ready once `done` holds of the sending half.
    ///
    /// # Errors
    /// The error that a send failed with.
    #[inline]
    pub(super) fn poll_sent(
        &mut self,
        io: &mut Io,
        cx: &Context<'_>,
        done: impl Fn(&SendState) -> bool,
    ) -> Poll<io::Result<()>> {
        self.check_sent(io)?;
        if done(&self.tx) {
            return Poll::Ready(Ok(()));
        }
        note_waker(&mut self.tx.waker, &mut io.after.drops, cx);
        Poll::Pending
    }

    #[cold]
    pub(super) fn wait_for_room(&mut self, shared: &mut Shared, io: &mut Io, cx: &Context<'_>) {
        note_waker(&mut self.tx.waker, &mut io.after.drops, cx);
        self.wait_for_memory(shared, io);
    }

    /// Sees to it that a send that waits for memory, and not for its peer, is woken when there is some.
    #[inline]
    fn wait_for_memory(&mut self, shared: &mut Shared, io: &mut Io) {
        let memory = &io.memory;
        if self.tx.bytes > memory.allowance && self.tx.bytes <= memory.most.send {
            self.hold_back(shared, io);
        }
    }

    /// Accepts a chunk that is empty, or behind one that waits for its peer: small ones are copied together.
    #[inline(never)]
    fn enqueue_aside(&mut self, shared: &mut Shared, io: &mut Io, chunk: Chunk) {
        if chunk.is_empty() {
            return chunk.retire(&mut io.spares, &mut io.after);
        }
        if chunk.len() <= PIECE && chunk.control().is_empty() {
            self.append_copy(shared, io, &[IoSlice::new(chunk.as_ref())], 0..chunk.len());
            return chunk.retire(&mut io.spares, &mut io.after);
        }
        // A send is in flight: bytes that it leaves are sent when it has ended.
        io.memory.meter.add(chunk.weight());
        self.tx.push(chunk);
    }

    /// The error of a send, if there was one.
    ///
    /// # Errors
    /// The error of the send.
    #[inline]
    pub(crate) fn check_sent(&self, io: &Io) -> io::Result<()> {
        self.tx.error.map_or(Ok(()), |errno| Err(self.failed(io, Operation::Send, errno)))
    }

    /// Why nothing can be sent any more.
    #[cold]
    pub(super) fn refusal(&self, io: &Io) -> io::Error {
        let ended =
            || io::Error::new(io::ErrorKind::BrokenPipe, "the stream was shut down for sending");
        self.tx.error.map_or_else(ended, |errno| self.failed(io, Operation::Send, errno))
    }
}
