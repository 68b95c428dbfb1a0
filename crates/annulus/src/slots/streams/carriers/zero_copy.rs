//! Zero-copy sends: the kernel reads their memory until it posts a notification.
//!
//! A zero-copy send usually has two events. The first has the result; if all bytes were sent, the
//! next send may then start. The second, the notification, says that the memory is free. It may
//! arrive much later, when the peer has acknowledged the bytes. Until then the send keeps a slot of
//! its own, whatever happens to the stream.
//!
//! If everything was sent, the chunks move from the queue to that slot at the first event.
//! Otherwise they stay in the queue until the notification and are then handled as for any other
//! send, so that no chunk is partly free. A stream that was given up does not wait for that:
//! closing it with a reset frees the memory.
#![allow(unsafe_code)]

use super::single::SingleSend;
use crate::bytes::chunk::Chunk;
use crate::slots::find_or_late;
use crate::slots::loop_state::LoopState;
use crate::slots::streams::chunk_queue::{ChunkQueue, SendVector};
use crate::slots::streams::send::SendMemory;
use crate::slots::streams::send::SendPhase;
use crate::slots::streams::{Stream, StreamResources, Streams};
use annulus_driver::{Event, MemoryOp, OpKind, SlotId, Token};
use rustix::io::Errno;

const AWAITING_MEMORY: SendPhase = SendPhase::Single(SingleSend::AwaitingMemory);

/// A zero-copy send whose notification has not arrived yet.
pub(super) struct ZeroCopySend {
    stream: SlotId,
    /// Sent chunks that the kernel may still read.
    chunks: ChunkQueue,
    vector: Option<SendVector>,
    /// The result from the first event.
    result: Option<Result<u32, Errno>>,
}

impl StreamResources {
    fn zero_copy_token(&self, id: u32) -> Token {
        self.carriers.zero_copy.id(id).token(OpKind::SendZeroCopy)
    }
}

/// Returns true if the gathered bytes should be sent without a copy.
#[inline]
pub(crate) fn is_for(stream: &Stream, state: &LoopState) -> bool {
    let Some(least) = state.bounds.zero_copy_threshold else { return false };
    stream.tx.flying >= least && !stream.tx.single.copies
}

/// Sends the gathered bytes without copying them.
pub(crate) fn send(
    stream: &mut Stream,
    shared: &mut StreamResources,
    state: &mut LoopState,
    gathered: SendMemory,
) {
    let fd = stream.fd;
    let (op, vector) = match gathered {
        SendMemory::Bytes { buffer, len } => (MemoryOp::SendZeroCopy { fd, buffer, len }, None),
        SendMemory::Vector { header } => {
            (MemoryOp::SendVectorZeroCopy { fd, header }, Some(shared.vectors.keep()))
        }
    };
    let chunks = ChunkQueue::default();
    let zero_copy = ZeroCopySend { stream: stream.id, chunks, vector, result: None };
    let id = shared.carriers.zero_copy.insert(zero_copy);
    stream.tx.phase = SendPhase::Single(SingleSend::ZeroCopy);
    stream.tx.single.zero_copy = id;
    stream.tx.single.unnotified += 1;
    state.driver.counters().zero_copy_sends += 1;
    stream.start_linger(state);
    // SAFETY: until the terminal event, the chunks stay in the queue and then in the send's own
    // slot, which also keeps the header. The bytes of a chunk do not move when the chunk does.
    unsafe { state.start_memory(shared.zero_copy_token(id), op) };
}

impl Stream {
    /// Handles the result: the stream continues unless it has to wait until its memory is free.
    fn on_result(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        result: Result<u32, Errno>,
    ) {
        let tx = &mut self.tx;
        let count = result.map_or(0, |count| count as usize);
        let in_flight = tx.queue.iter().take(tx.flying_chunks.into());
        let all_went = in_flight.map(Chunk::len).sum::<usize>() == tx.first_sent + count;
        if all_went || tx.error.is_some() {
            self.hand_over(shared, state, count);
            self.resume_send(shared, state);
        } else {
            tx.phase = AWAITING_MEMORY;
        }
    }

    /// Moves the chunks in flight from the stream to the slot of their send.
    fn hand_over(&mut self, shared: &mut StreamResources, state: &mut LoopState, count: usize) {
        let tx = &mut self.tx;
        let send = shared.carriers.zero_copy.get(tx.single.zero_copy);
        let in_flight = (0..tx.flying_chunks).filter_map(|_| tx.queue.pop());
        in_flight.for_each(|chunk| send.chunks.push(chunk));
        tx.bytes -= count;
        tx.first_sent = 0;
        tx.set_idle();
        if tx.bytes <= state.send_bound() {
            state.deferred.wakes.extend(tx.waker.take());
        }
    }

    /// Handles the notification that the memory of a send is free.
    fn on_notification(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        id: u32,
        result: Option<Result<u32, Errno>>,
    ) {
        let tx = &mut self.tx;
        tx.single.unnotified -= 1;
        match result {
            Some(result) if tx.phase == AWAITING_MEMORY && tx.single.zero_copy == id => {
                self.on_sent_partly(shared, state, result);
            }
            _ if !tx.single.hold_memory() => state.deferred.wakes.extend(tx.waker.take()),
            _ => {}
        }
    }

    /// Handles a send that did not send everything. If nothing can be sent without a copy, because
    /// the socket does not support it or no more memory may be locked, the stream copies from now
    /// on.
    fn on_sent_partly(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        result: Result<u32, Errno>,
    ) {
        if let Err(Errno::OPNOTSUPP | Errno::NOBUFS | Errno::NOMEM) = result {
            self.tx.single.copies = true;
            return self.on_sent(shared, state, Ok(0));
        }
        self.on_sent(shared, state, result);
    }
}

/// Cancels a zero-copy send whose result is not known.
pub(super) fn cancel(stream: &Stream, shared: &StreamResources, state: &mut LoopState) {
    state.cancel(shared.zero_copy_token(stream.tx.single.zero_copy));
}

/// Gives up a partly sent zero-copy send: its slot keeps the chunks that the kernel may still read,
/// and the stream's other unsent bytes are discarded.
pub(super) fn leave_to_slot(
    stream: &mut Stream,
    shared: &mut StreamResources,
    state: &mut LoopState,
) {
    stream.hand_over(shared, state, 0);
    stream.discard_unsent(state);
}

impl Streams {
    pub(crate) fn on_zero_copy(&mut self, state: &mut LoopState, event: Event) {
        let Some(send) = find_or_late(&mut self.shared.carriers.zero_copy, state, &event) else {
            return;
        };
        let is_first = send.result.is_none();
        send.result.get_or_insert(event.result);
        let (id, owner) = (event.token.slot(), send.stream);
        let mut stream = self.slots.find(owner);
        if is_first && let Some(stream) = &mut stream {
            stream.on_result(&mut self.shared, state, event.result);
        }
        if !event.more {
            let ZeroCopySend { mut chunks, vector, result, .. } =
                self.shared.carriers.zero_copy.remove(id);
            state.in_flight -= 1;
            vector.into_iter().for_each(|vector| self.shared.vectors.free(vector));
            while let Some(chunk) = chunks.pop() {
                chunk.retire_queued(&state.memory.meter, &mut state.spares, &mut state.deferred);
            }
            if let Some(stream) = &mut stream {
                stream.on_notification(&mut self.shared, state, id, result);
            }
        }
        if stream.is_some_and(|stream| stream.dropped) {
            self.close_if_done(state, owner.index);
        }
    }
}
