//! What is asked of the sending half: chunks and copies are accepted within the bound, and somebody waits for room, for the
//! kernel, for the end.

use super::Transmit;
use crate::chunk::Chunk;
use crate::runtime::after::note_waker;
use crate::runtime::inner::Inner;
use std::io;
use std::task::{Context, Poll};

/// Chunks up to this size are copied together while a peer makes no room: each would keep a buffer, or an allocation.
const PIECE: usize = 8 * 1024;

impl Inner {
    /// Accepts a chunk for sending, unless so much is queued already that the caller has to wait.
    ///
    /// # Errors
    /// What an earlier send ran into, or that the stream was shut down.
    #[inline]
    pub(crate) fn poll_accept_chunk(
        &mut self,
        slot: u32,
        chunk: &mut Option<Chunk>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        let bound = self.io.send_bound();
        let tx = &mut self.streams.get(slot).tx;
        if let Some(error) = tx.refusal() {
            return Poll::Ready(Err(error));
        }
        if tx.bytes > bound {
            note_waker(&mut tx.waker, &mut self.io.after.drops, cx);
            self.wait_for_memory(slot);
            return Poll::Pending;
        }
        let Some(chunk) = chunk.take() else { return Poll::Ready(Ok(())) };
        if chunk.is_empty() || tx.is_stuck() {
            self.accept_aside(slot, chunk);
        } else {
            self.io.memory.meter.add(chunk.weight());
            tx.push(chunk);
            self.agenda.list_send(tx, slot);
        }
        Poll::Ready(Ok(()))
    }

    /// Ready once what is queued fits the bound.
    ///
    /// # Errors
    /// What a send ran into.
    #[inline]
    pub(crate) fn poll_room(&mut self, slot: u32, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let bound = self.io.send_bound();
        let polled = self.poll_sent(slot, cx, |tx| tx.bytes <= bound);
        if polled.is_pending() {
            self.wait_for_memory(slot);
        }
        polled
    }

    /// Ready once the kernel has taken everything.
    ///
    /// # Errors
    /// What a send ran into.
    pub(crate) fn poll_flush(&mut self, slot: u32, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(slot, cx, Transmit::is_idle)
    }

    /// Ready once the kernel has taken everything, and has none of the memory any more.
    ///
    /// # Errors
    /// What a send ran into.
    pub(crate) fn poll_over(&mut self, slot: u32, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(slot, cx, Transmit::is_over)
    }

    /// Ready once everything was sent and the write side has ended.
    ///
    /// # Errors
    /// What a send ran into.
    pub(crate) fn poll_end(&mut self, slot: u32, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.end_when_sent(slot);
        self.poll_sent(slot, cx, |tx| tx.ended)
    }

    /// Ends the write side as soon as everything has gone.
    pub(crate) fn end_when_sent(&mut self, slot: u32) {
        self.streams.get(slot).tx.ending = true;
        self.end_if_sent(slot);
    }

    #[inline]
    fn poll_sent(
        &mut self,
        slot: u32,
        cx: &Context<'_>,
        done: impl Fn(&Transmit) -> bool,
    ) -> Poll<io::Result<()>> {
        let tx = &mut self.streams.get(slot).tx;
        if let Some(errno) = tx.error {
            return Poll::Ready(Err(errno.into()));
        }
        if done(tx) {
            return Poll::Ready(Ok(()));
        }
        note_waker(&mut tx.waker, &mut self.io.after.drops, cx);
        Poll::Pending
    }

    /// Sees to it that a send that waits for memory, and not for its peer, is woken when there is some.
    #[inline]
    fn wait_for_memory(&mut self, slot: u32) {
        if self.streams.get(slot).tx.bytes <= self.io.bounds.send {
            self.hold_back(slot);
        }
    }

    /// Accepts a chunk that is empty, or behind one that waits for its peer: small ones are copied together.
    #[inline(never)]
    fn accept_aside(&mut self, slot: u32, chunk: Chunk) {
        if chunk.is_empty() {
            return chunk.retire(&mut self.io.spares, &mut self.io.after);
        }
        if chunk.len() <= PIECE && chunk.control().is_empty() {
            self.append_copy(slot, chunk.as_ref());
            return chunk.retire(&mut self.io.spares, &mut self.io.after);
        }
        // A send is in flight: what it leaves is sent when it has ended.
        self.io.memory.meter.add(chunk.weight());
        self.streams.get(slot).tx.push(chunk);
    }

    /// Copies as much of `bytes` as the bound leaves room for into a buffer of the runtime's own.
    ///
    /// # Errors
    /// As [`poll_accept_chunk`](Self::poll_accept_chunk).
    pub(crate) fn poll_copy(
        &mut self,
        slot: u32,
        bytes: &[u8],
        cx: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let bound = self.io.send_bound();
        let tx = &mut self.streams.get(slot).tx;
        if let Some(error) = tx.refusal() {
            return Poll::Ready(Err(error));
        }
        let count = bytes.len().min(bound.saturating_sub(tx.bytes));
        if count == 0 && !bytes.is_empty() {
            note_waker(&mut tx.waker, &mut self.io.after.drops, cx);
            self.wait_for_memory(slot);
            return Poll::Pending;
        }
        self.append_copy(slot, &bytes[..count]);
        Poll::Ready(Ok(count))
    }

    /// Copies bytes to the end of the queue, into the last buffer of the runtime's own if the kernel does not have that.
    fn append_copy(&mut self, slot: u32, part: &[u8]) {
        let tx = &mut self.streams.get(slot).tx;
        let at_rest = tx.queue.len() > usize::from(tx.flying_chunks);
        match tx.queue.last_mut().and_then(Chunk::copied_mut) {
            Some(buffer) if at_rest => {
                buffer.extend_from_slice(part);
                self.io.memory.meter.add(part.len());
                tx.bytes += part.len();
            }
            _ => {
                let mut buffer = self.io.spares.take();
                buffer.extend_from_slice(part);
                let chunk = Chunk::copied(buffer);
                tx.bytes += part.len();
                self.io.memory.meter.add(chunk.weight());
                tx.queue.push(chunk);
            }
        }
        self.list_send(slot);
    }
}
