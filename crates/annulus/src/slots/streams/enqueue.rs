//! Queueing for sending: chunks and copies within the bound. Tasks wait here for space, until the kernel has taken everything, or for the end.

use super::carriers::LEAST;
use super::send_state::SendState;
use super::stream::{Shared, Stream};
use crate::base::budget;
use crate::base::io::Io;
use crate::base::op_error::Operation;
use crate::bytes::after::note_waker;
use crate::bytes::chunk::Chunk;
use std::io::{self, IoSlice};
use std::ops::Range;
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
            note_waker(&mut self.tx.waker, &mut io.after.drops, cx);
            self.wait_for_memory(shared, io);
            return Poll::Pending;
        }
        let Some(chunk) = chunk.take() else { return Poll::Ready(Ok(())) };
        budget::take();
        self.enqueue(shared, io, chunk);
        Poll::Ready(Ok(()))
    }

    /// Whether a chunk can be queued now.
    #[inline]
    pub(super) fn takes_more(&self, io: &Io) -> bool {
        self.is_live() && !self.tx.refuses() && !self.is_at_send_bound(io)
    }

    /// So much is queued that a send has to wait.
    #[inline]
    fn is_at_send_bound(&self, io: &Io) -> bool {
        let bytes = self.tx.bytes;
        bytes > io.memory.waiting_bound && bytes > self.send_bound(io)
    }

    /// The bound of the queued bytes.
    fn send_bound(&self, io: &Io) -> usize {
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
        let tx = &mut self.tx;
        if let Some(errno) = tx.error {
            return Poll::Ready(Err(self.failed(io, Operation::Send, errno)));
        }
        if done(tx) {
            return Poll::Ready(Ok(()));
        }
        note_waker(&mut tx.waker, &mut io.after.drops, cx);
        Poll::Pending
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
    fn refusal(&self, io: &Io) -> io::Error {
        let ended =
            || io::Error::new(io::ErrorKind::BrokenPipe, "the stream was shut down for sending");
        self.tx.error.map_or_else(ended, |errno| self.failed(io, Operation::Send, errno))
    }

    /// Ready once [`try_copy`](Self::try_copy) accepts something.
    ///
    /// # Errors
    /// As [`poll_enqueue`](Self::poll_enqueue).
    pub(crate) fn poll_space(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.tx.refuses() {
            return Poll::Ready(Err(self.refusal(io)));
        }
        if self.room(io) > 0 {
            return Poll::Ready(Ok(()));
        }
        self.wait_for_room(shared, io, cx);
        Poll::Pending
    }

    /// Bytes that are accepted now.
    fn room(&self, io: &Io) -> usize {
        self.send_bound(io).saturating_sub(self.tx.bytes)
    }

    #[cold]
    fn wait_for_room(&mut self, shared: &mut Shared, io: &mut Io, cx: &Context<'_>) {
        note_waker(&mut self.tx.waker, &mut io.after.drops, cx);
        self.wait_for_memory(shared, io);
    }

    /// As [`try_copy`](Self::try_copy), once that accepts something.
    ///
    /// # Errors
    /// As [`try_copy`](Self::try_copy).
    pub(crate) fn poll_copy(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        slices: &[IoSlice<'_>],
        cx: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Some(count) = self.try_copy(shared, io, slices)? {
            return Poll::Ready(Ok(count));
        }
        self.wait_for_room(shared, io, cx);
        Poll::Pending
    }

    /// Sends the slices directly if that is worth it, and copies as much of the rest as the bound leaves room for into a buffer of
    /// the runtime's own. `None` if it leaves none.
    ///
    /// # Errors
    /// As [`poll_enqueue`](Self::poll_enqueue).
    #[inline]
    pub(crate) fn try_copy(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        slices: &[IoSlice<'_>],
    ) -> io::Result<Option<usize>> {
        if self.tx.refuses() {
            return Err(self.refusal(io));
        }
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let direct =
            if total >= LEAST { self.send_directly(shared, io, slices, total)? } else { 0 };
        let count = (total - direct).min(self.room(io));
        if count > 0 {
            self.append_copy(shared, io, slices, direct..direct + count);
        } else if total > direct && direct == 0 {
            return Ok(None);
        }
        Ok(Some(direct + count))
    }

    /// Copies the bytes of a range, which begins at the first of several slices, to the end of the queue: into the last buffer of the
    /// runtime's own if the kernel does not have that.
    fn append_copy(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        slices: &[IoSlice<'_>],
        range: Range<usize>,
    ) {
        let tx = &mut self.tx;
        let count = range.len();
        io.driver.counters().copied_bytes += count as u64;
        tx.bytes += count;
        let at_rest = tx.queue.len() > usize::from(tx.flying_chunks);
        match tx.queue.last_mut().filter(|_| at_rest).and_then(Chunk::copied_mut) {
            Some(buffer) => {
                copy_range(buffer, slices, range);
                io.memory.meter.add(count);
            }
            None => {
                let mut buffer = io.spares.take();
                copy_range(&mut buffer, slices, range);
                let chunk = Chunk::copied(buffer);
                io.memory.meter.add(chunk.weight());
                tx.queue.push(chunk);
            }
        }
        self.list_send(shared);
    }
}

/// Appends the bytes of a range, which begins at the first of several slices, to a buffer.
#[inline]
fn copy_range(buffer: &mut Vec<u8>, slices: &[IoSlice<'_>], range: Range<usize>) {
    if let [all] = slices {
        return buffer.extend_from_slice(&all[range]);
    }
    let Range { start: mut skip, end } = range;
    let mut left = end - skip;
    for slice in slices {
        let start = skip.min(slice.len());
        let part = &slice[start..slice.len().min(start + left)];
        skip -= start;
        left -= part.len();
        buffer.extend_from_slice(part);
    }
}
