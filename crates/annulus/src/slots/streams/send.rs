//! Sending: chunks are queued, and one send at the end of the turn sends them together. They are
//! freed once the kernel is done with them.
//!
//! At most one send is in flight on a stream. The first attempt (*now*) does not wait for space in
//! the socket and posts no event if all of its bytes were sent, so that the response to a request
//! does not wake the loop from its wait for the next request. If no event has arrived by the time
//! the driver has consumed all entries and taken all completions, the send is assumed complete.
//! After a short count, or if the socket was full, the rest is sent *waiting* for space. *Retrying*
//! waits for a timer with nothing in flight. A *single* send takes another path: see `carriers`.
//! Every phase returns to *idle*.
#![allow(unsafe_code)]

use super::carriers;
use super::carriers::single::{self, SingleSend, SingleSends};
use super::chunk_queue::{ChunkQueue, MAX_CHUNKS_PER_SEND};
use super::{Stream, StreamResources, Streams};
use crate::bytes::chunk::Chunk;
use crate::errors::Operation;
use crate::slots::find_or_late;
use crate::slots::loop_state::{LoopState, PREFETCH_EVENTS};
use crate::tasks::budget;
use crate::timers::{TimerAction, TimerKey};
use crate::waiters::note_waker;
use annulus_driver::{Event, MemoryOp, OpKind, SlotId};
use annulus_kernel::IoVec;
use rustix::io::Errno;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{io, iter, mem};

/// Delay before a send is retried after an out-of-memory error.
const RETRY_DELAY: Duration = Duration::from_millis(5);
/// Maximum size of a chunk that is copied to the end of the queue while the peer makes no room.
/// Otherwise each chunk would keep a buffer or an allocation.
const MAX_WAITING_COPY_BYTES: usize = 8 * 1024;
/// Maximum size of a chunk that is joined with the chunk before it, although the peer keeps up: a
/// queue entry and a vector per chunk cost more than the copy.
const MAX_JOINED_CHUNK_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SendPhase {
    #[default]
    Idle,
    /// In flight without waiting for space in the socket. Assumed complete if no event arrives.
    Now,
    /// In flight, waiting for space in the socket.
    Waiting,
    /// The system was out of memory or a limit had been reached; a timer retries.
    Retrying,
    /// In flight as a single send.
    Single(SingleSend),
}

/// The sending half of a stream's slot.
#[derive(Default)]
pub(super) struct SendState {
    pub(super) queue: ChunkQueue,
    /// Bytes of the first chunk that have been sent.
    pub(super) first_sent: usize,
    /// Unsent bytes, including those in flight: the bytes that a carrier holds, then the bytes of
    /// the queue. The queue contains no empty chunk.
    pub(super) bytes: usize,
    /// Unsent bytes that are in flight; `flying_chunks` counts their chunks.
    pub(super) flying: usize,
    pub(super) flying_chunks: u8,
    pub(super) phase: SendPhase,
    pub(super) single: SingleSends,
    /// Whether the write side ends once everything has been sent.
    pub(super) ending: bool,
    pub(super) ended: bool,
    pub(super) error: Option<Errno>,
    pub(super) waker: Option<Waker>,
    /// Timer that gives up on the unsent bytes of a dropped stream.
    pub(super) linger: Option<TimerKey>,
}

impl SendState {
    /// Returns true if a send is in flight that may take long, or waits to be retried.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !matches!(self.phase, SendPhase::Idle | SendPhase::Now)
    }

    /// Returns true if nothing is queued or in flight.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.phase == SendPhase::Idle && self.bytes == 0
    }

    /// Returns true if nothing is queued or in flight and the kernel holds no memory of earlier
    /// sends. Memory of a send that was given up does not count: closing the socket frees it.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_idle() && (self.error.is_some() || !self.single.hold_memory())
    }

    /// Returns true if nothing more can be sent.
    #[inline]
    pub(super) fn refuses(&self) -> bool {
        self.error.is_some() || self.ending
    }

    /// Records that nothing is in flight.
    #[inline]
    pub(super) fn set_idle(&mut self) {
        self.phase = SendPhase::Idle;
        (self.flying, self.flying_chunks) = (0, 0);
    }
}

pub(crate) enum SendMemory {
    Bytes { buffer: *const u8, len: u32 },
    Vector { header: *const u8 },
}

impl Stream {
    /// Queues a chunk for sending once the queue is within its bound. Takes task budget; the caller
    /// has checked that some is left.
    ///
    /// # Errors
    /// The error of an earlier send, or `BrokenPipe` after the stream has been shut down.
    #[inline]
    pub(crate) fn poll_enqueue(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        chunk: &mut Option<Chunk>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.tx.refuses() {
            budget::take();
            return Poll::Ready(Err(self.refusal(state)));
        }
        if self.is_at_send_bound(state) {
            return self.wait_for_room(shared, state, cx);
        }
        let Some(chunk) = chunk.take() else { return Poll::Ready(Ok(())) };
        budget::take();
        self.enqueue(shared, state, chunk);
        Poll::Ready(Ok(()))
    }

    /// Returns true if the queue is so full that the caller has to wait.
    #[inline]
    pub(super) fn is_at_send_bound(&self, state: &LoopState) -> bool {
        let bytes = self.tx.bytes;
        bytes > state.memory.waiting_bound && bytes > self.send_bound(state)
    }

    /// Returns the bound on queued bytes, which is lower while a send waits.
    pub(super) fn send_bound(&self, state: &LoopState) -> usize {
        if self.tx.is_waiting() { state.memory.waiting_bound } else { state.memory.send_bound }
    }

    /// Queues a chunk; the caller has checked that there is room. Small chunks may be copied to the
    /// end of the queue instead.
    #[inline]
    pub(super) fn enqueue(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        chunk: Chunk,
    ) {
        if self.tx.bytes > 0 || chunk.is_empty() {
            return self.enqueue_behind(shared, state, chunk);
        }
        self.push(shared, state, chunk);
    }

    /// Adds a chunk that is not empty to the queue.
    #[inline]
    pub(super) fn push(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        chunk: Chunk,
    ) {
        state.memory.meter.add(chunk.weight());
        self.tx.bytes += chunk.len();
        self.tx.queue.push(chunk);
        self.list_send(shared);
    }

    /// Queues a chunk behind unsent bytes. Drops an empty chunk.
    #[inline(never)]
    fn enqueue_behind(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        chunk: Chunk,
    ) {
        let (bytes, is_plain) = (chunk.as_ref(), chunk.control().is_empty());
        let (len, tx) = (bytes.len(), &mut self.tx);
        let last = tx.queue.last_at_rest(tx.flying_chunks);
        let is_small = len <= MAX_JOINED_CHUNK_BYTES && is_plain;
        // The usual case for many small chunks comes first.
        if is_small && let Some(buffer) = last.and_then(Chunk::copied_mut) {
            buffer.extend_from_slice(bytes);
            tx.bytes += len;
            state.memory.meter.add(len);
            state.driver.counters().copied_bytes += len as u64;
            self.list_send(shared);
        } else if len > 0 {
            let is_copied = if tx.is_waiting() {
                len <= MAX_WAITING_COPY_BYTES && is_plain
            } else {
                is_small && self.join_last(state)
            };
            if !is_copied {
                return self.push(shared, state, chunk);
            }
            self.enqueue_copy(shared, state, len, iter::once(chunk.as_ref()));
        }
        chunk.retire(&mut state.spares, &mut state.deferred);
    }

    /// Copies the last chunk into a buffer of the runtime if it is small and not in flight, so
    /// that the next chunk can be appended. Returns false if it stays as it is.
    fn join_last(&mut self, state: &mut LoopState) -> bool {
        let tx = &mut self.tx;
        let last = tx.queue.last_at_rest(tx.flying_chunks);
        // The sent bytes of the first chunk are counted from its start.
        let Some(last) = last.filter(|last| {
            last.len() <= MAX_JOINED_CHUNK_BYTES && last.control().is_empty() && tx.first_sent == 0
        }) else {
            return false;
        };
        let mut buffer = state.spares.take();
        buffer.extend_from_slice(last.as_ref());
        state.driver.counters().copied_bytes += buffer.len() as u64;
        let joined = Chunk::copied(buffer);
        state.memory.meter.add(joined.weight());
        let replaced = mem::replace(last, joined);
        replaced.retire_queued(&state.memory.meter, &mut state.spares, &mut state.deferred);
        true
    }

    /// Copies `count` bytes to the end of the queue: into the last chunk, if the runtime owns its
    /// buffer and the kernel does not read it.
    pub(super) fn enqueue_copy<'a>(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        count: usize,
        bytes: impl Iterator<Item = &'a [u8]>,
    ) {
        let tx = &mut self.tx;
        state.driver.counters().copied_bytes += count as u64;
        tx.bytes += count;
        let last = tx.queue.last_at_rest(tx.flying_chunks);
        if let Some(buffer) = last.and_then(Chunk::copied_mut) {
            bytes.for_each(|part| buffer.extend_from_slice(part));
            state.memory.meter.add(count);
        } else {
            let mut buffer = state.spares.take();
            bytes.for_each(|part| buffer.extend_from_slice(part));
            let chunk = Chunk::copied(buffer);
            state.memory.meter.add(chunk.weight());
            tx.queue.push(chunk);
        }
        self.list_send(shared);
    }

    /// Lists the stream for a send, unless one is in flight or will be retried.
    #[inline]
    pub(super) fn list_send(&mut self, shared: &mut StreamResources) {
        if self.tx.phase == SendPhase::Idle && !self.listed {
            self.listed = true;
            shared.turn_lists.sends.push(self.id.index);
        }
    }

    /// Sends the queued bytes: up to [`MAX_CHUNKS_PER_SEND`] chunks in one operation.
    #[inline]
    fn send(&mut self, shared: &mut StreamResources, state: &mut LoopState, phase: SendPhase) {
        if self.carrier.is_some() && carriers::send(self, shared, state, phase) {
            return;
        }
        let gathered = self.gather(shared);
        if single::is_for(self, state) {
            return single::send(self, shared, state, gathered);
        }
        self.submit(shared, state, gathered, phase);
    }

    #[inline(always)]
    pub(super) fn submit(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        gathered: SendMemory,
        phase: SendPhase,
    ) {
        let (fd, token) = (self.fd, self.id.token(OpKind::Send));
        self.tx.phase = phase;
        let is_now = phase == SendPhase::Now;
        let op = match gathered {
            SendMemory::Bytes { buffer, len } if is_now => MemoryOp::SendNow { fd, buffer, len },
            SendMemory::Bytes { buffer, len } => MemoryOp::Send { fd, buffer, len },
            SendMemory::Vector { header } if is_now => MemoryOp::SendVectorNow { fd, header },
            SendMemory::Vector { header } => MemoryOp::SendVector { fd, header },
        };
        if is_now {
            self.await_settling(shared);
            // SAFETY: the chunks stay in the slot's queue and their bytes do not move until the
            // event arrives or the send is assumed complete. The same holds for the vectors.
            unsafe { state.driver.submit_memory(token, op) };
        } else {
            self.start_linger(state);
            // SAFETY: the chunks stay in the slot's queue and their bytes do not move until the
            // terminal event. The vectors stay until the kernel has consumed the entry.
            unsafe { state.start_memory(token, op) };
        }
    }

    /// Adds the send to those that may complete without an event. The loop must not sleep in this
    /// turn if a task waits for the send, the stream was dropped, its write side is ending, or more
    /// bytes are queued.
    #[inline(always)]
    pub(super) fn await_settling(&mut self, shared: &mut StreamResources) {
        let is_awaited = self.dropped || self.tx.ending || self.tx.waker.is_some();
        shared.turn_lists.must_not_sleep |= is_awaited || self.tx.bytes > self.tx.flying;
        shared.turn_lists.unconfirmed_sends.push(self.id.index);
    }

    /// Gathers the queued bytes for a send and marks them as in flight.
    #[inline]
    fn gather(&mut self, shared: &mut StreamResources) -> SendMemory {
        let tx = &mut self.tx;
        if let Some(only) = tx.queue.only() {
            let bytes = &only.as_ref()[tx.first_sent..];
            let buffer = bytes.as_ptr();
            // A chunk of more than 1 GiB is sent in several sends.
            let part = bytes.len().min(1 << 30);
            (tx.flying, tx.flying_chunks) = (part, 1);
            return SendMemory::Bytes { buffer, len: part as u32 };
        }
        let (mut bytes, mut chunks) = (0, 0);
        let parts = tx.queue.unsent(tx.first_sent).take(MAX_CHUNKS_PER_SEND).map(|part| {
            bytes += part.len();
            chunks += 1;
            IoVec { base: part.as_ptr(), len: part.len() }
        });
        let header = shared.vectors.describe(parts, &[]);
        (tx.flying, tx.flying_chunks) = (bytes, chunks);
        SendMemory::Vector { header }
    }

    /// Handles the outcome of a send whose memory the kernel no longer reads.
    #[inline]
    pub(super) fn on_sent(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        result: Result<u32, Errno>,
    ) {
        match result {
            Ok(count) => self.sent(shared, state, count as usize),
            Err(Errno::AGAIN | Errno::INTR) => self.sent(shared, state, 0),
            // The last: too many descriptors of this user have been sent and not received yet.
            Err(Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS) => self.send_later(state),
            Err(errno) => self.fail_send(shared, state, errno),
        }
    }

    /// Accounts for `count` sent bytes. After a short count, sends the rest and waits for space.
    /// Otherwise continues with what was queued in the meantime.
    #[inline]
    pub(super) fn sent(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        count: usize,
    ) {
        let bound = state.send_bound();
        let tx = &mut self.tx;
        let short = count < tx.flying;
        tx.bytes -= count;
        let mut gone = tx.first_sent + count;
        // Usually nothing is left. Then every chunk was sent, and their lengths need not be read.
        let all_went = tx.bytes == 0;
        while let Some(chunk) = tx.queue.pop_if(|first| all_went || first.len() <= gone) {
            gone = if all_went { 0 } else { gone - chunk.len() };
            chunk.retire_queued(&state.memory.meter, &mut state.spares, &mut state.deferred);
        }
        tx.first_sent = gone;
        tx.set_idle();
        if tx.bytes <= bound {
            state.deferred.wakes.extend(tx.waker.take());
        }
        if tx.bytes == 0 && !tx.refuses() && !self.memory_paused {
            return;
        }
        if short && tx.error.is_none() {
            self.send(shared, state, SendPhase::Waiting);
            self.recv_if_memory_paused(shared, state);
        } else {
            self.resume_send(shared, state);
        }
    }

    /// Retries after a moment, because the system is out of memory or a limit has been reached. A
    /// dropped stream retries until its linger time expires.
    #[cold]
    pub(super) fn send_later(&mut self, state: &mut LoopState) {
        self.start_linger(state);
        self.tx.set_idle();
        self.tx.phase = SendPhase::Retrying;
        state.timers.insert(state.now() + RETRY_DELAY, TimerAction::Send(self.id));
    }

    /// Continues when nothing is in flight: sends the queued bytes, or ends the write side.
    #[inline]
    pub(super) fn resume_send(&mut self, shared: &mut StreamResources, state: &mut LoopState) {
        if self.tx.error.is_some() {
            // After an error, nothing more is sent.
            self.discard_unsent(state);
        }
        if self.tx.bytes == 0 {
            state.deferred.wakes.extend(self.tx.waker.take());
            if self.tx.ending {
                self.end_if_sent(state);
            }
        } else {
            self.list_send(shared);
        }
        self.recv_if_memory_paused(shared, state);
    }

    /// Resumes receiving if the memory limit has paused the stream, which holds less after a send.
    #[inline]
    fn recv_if_memory_paused(&mut self, shared: &mut StreamResources, state: &mut LoopState) {
        if self.memory_paused {
            self.recv_more(shared, state);
        }
    }

    #[cold]
    pub(super) fn fail_send(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        errno: Errno,
    ) {
        self.tx.error.get_or_insert(errno);
        self.tx.set_idle();
        self.resume_send(shared, state);
    }
}

impl Streams {
    #[inline]
    pub(crate) fn start_sends(&mut self, state: &mut LoopState) {
        if state.has_checked_events {
            self.shared.turn_lists.sent_directly = 0;
        }
        let mut sends = mem::take(&mut self.shared.turn_lists.sends);
        for slot in sends.drain(..) {
            let Some(stream) = self.slots.peek(slot) else { continue };
            let listed = mem::take(&mut stream.listed);
            let tx = &stream.tx;
            if listed && tx.phase == SendPhase::Idle && tx.bytes > 0 {
                stream.send(&mut self.shared, state, SendPhase::Now);
                // If a carrier's system call has failed, nothing is in flight, so no event will
                // close the stream.
                if stream.dropped && stream.tx.is_idle() {
                    self.close_if_done(state, slot);
                }
            }
        }
        // Nothing was listed in the meantime. Putting the list back keeps its memory.
        self.shared.turn_lists.sends = sends;
    }

    /// Completes the sends that posted no event, after all entries were consumed and all
    /// completions taken.
    #[inline]
    pub(crate) fn assume_sends_complete(&mut self, state: &mut LoopState) {
        self.shared.turn_lists.must_not_sleep = false;
        // The kernel's copying may have evicted the slots from the cache.
        (1..=PREFETCH_EVENTS as usize).for_each(|ahead| self.prefetch_unconfirmed(ahead));
        while let Some(slot) = self.shared.turn_lists.unconfirmed_sends.pop() {
            self.prefetch_unconfirmed(PREFETCH_EVENTS as usize);
            let is_now = |stream: &&mut Stream| stream.tx.phase == SendPhase::Now;
            let Some(stream) = self.slots.peek(slot).filter(is_now) else { continue };
            let all = stream.tx.flying;
            stream.sent(&mut self.shared, state, all);
            if stream.dropped {
                self.close_if_done(state, slot);
            }
        }
    }

    /// Prefetches the slot of the `ahead`-th send that will be assumed complete next.
    #[inline]
    fn prefetch_unconfirmed(&self, ahead: usize) {
        if let Some(slot) = self.shared.turn_lists.unconfirmed_sends.iter().nth_back(ahead - 1) {
            self.slots.prefetch(*slot);
        }
    }

    #[inline]
    pub(crate) fn on_send(&mut self, state: &mut LoopState, event: Event) {
        let slot = event.token.slot();
        let Some(stream) = find_or_late(&mut self.slots, state, &event) else { return };
        match stream.tx.phase {
            SendPhase::Now => {}
            SendPhase::Waiting => state.in_flight -= 1,
            SendPhase::Single(single) => return single::on_event(self, state, event, single),
            _ => return state.late(event),
        }
        let result = carriers::on_writable(stream, &mut self.shared, state, event.result);
        stream.on_sent(&mut self.shared, state, result);
        if stream.dropped {
            self.close_if_done(state, slot);
        }
    }

    /// Retries a send that failed because the system was out of memory.
    pub(crate) fn on_send_retry(&mut self, state: &mut LoopState, id: SlotId) {
        if let Some(stream) = self.slots.find(id)
            && stream.tx.phase == SendPhase::Retrying
        {
            stream.tx.phase = SendPhase::Idle;
            stream.resume_send(&mut self.shared, state);
            self.close_if_done(state, id.index);
        }
    }
}

impl Stream {
    /// Returns `Ready` once the queued bytes are within the bound.
    ///
    /// # Errors
    /// The error of an earlier send.
    #[inline]
    pub(crate) fn poll_room(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_sent(state)?;
        if self.tx.bytes <= state.send_bound() {
            return Poll::Ready(Ok(()));
        }
        self.wait_for_room(shared, state, cx)
    }

    /// Returns `Ready` once the kernel has taken all queued bytes.
    ///
    /// # Errors
    /// The error of an earlier send.
    pub(crate) fn poll_drain(
        &mut self,
        state: &mut LoopState,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_sent(state, cx, |tx| tx.bytes == 0)
    }

    /// Ends the write side. Returns `Ready` once everything has been sent and the write side has
    /// ended.
    ///
    /// # Errors
    /// The error of an earlier send.
    pub(crate) fn poll_end(
        &mut self,
        state: &mut LoopState,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.end_when_sent(state);
        self.poll_sent(state, cx, |tx| tx.ended)
    }

    /// Returns `Ready` once `done` returns true for the sending half.
    ///
    /// # Errors
    /// The error of an earlier send.
    #[inline]
    pub(super) fn poll_sent(
        &mut self,
        state: &mut LoopState,
        cx: &Context<'_>,
        done: impl Fn(&SendState) -> bool,
    ) -> Poll<io::Result<()>> {
        self.check_sent(state)?;
        if done(&self.tx) {
            return Poll::Ready(Ok(()));
        }
        note_waker(&mut self.tx.waker, &mut state.deferred.drops, cx);
        Poll::Pending
    }

    /// Registers the task, which is woken once there is room. If the stream waits for memory rather
    /// than for its peer, it is paused until memory is available.
    #[cold]
    pub(super) fn wait_for_room<T>(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        cx: &Context<'_>,
    ) -> Poll<T> {
        note_waker(&mut self.tx.waker, &mut state.deferred.drops, cx);
        let memory = &state.memory;
        if self.tx.bytes > memory.allowance && self.tx.bytes <= memory.most.send {
            self.pause_for_memory(shared, state);
        }
        Poll::Pending
    }

    /// Checks that no earlier send has failed.
    ///
    /// # Errors
    /// The error of an earlier send.
    #[inline]
    pub(crate) fn check_sent(&self, state: &LoopState) -> io::Result<()> {
        self.tx.error.map_or(Ok(()), |errno| Err(self.failed(state, Operation::Send, errno)))
    }

    /// Returns the reason why nothing more can be sent.
    #[cold]
    pub(super) fn refusal(&self, state: &LoopState) -> io::Error {
        let text = "the stream was shut down for sending";
        self.check_sent(state)
            .err()
            .unwrap_or_else(|| io::Error::new(io::ErrorKind::BrokenPipe, text))
    }
}
