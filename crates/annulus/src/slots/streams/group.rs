//! Sends of a group: a member's queue is bounded without waiting, and a member that is behind can
//! lose its queued messages or its connection.

use super::{Stream, StreamResources};
use crate::bytes::chunk::Chunk;
use crate::slots::loop_state::LoopState;
use annulus_kernel::Shutdown;
use std::io;

impl Stream {
    /// Queues a chunk and returns true, unless the stream is slow: a send waits, and the unsent
    /// bytes would exceed `limit` or have reached the stream's memory allowance. The chunk is not
    /// copied here, because all members of the group share its memory.
    ///
    /// # Errors
    /// The error of an earlier send, or `BrokenPipe` if the stream has been shut down.
    pub(crate) fn enqueue_within(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        chunk: Chunk,
        limit: usize,
    ) -> io::Result<bool> {
        if self.tx.refuses() {
            return Err(self.refusal(state));
        }
        let bytes = self.tx.bytes;
        let is_full = bytes + chunk.len() > limit || bytes >= state.memory.allowance;
        if bytes > 0 && self.tx.is_waiting() && is_full {
            return Ok(false);
        }
        self.push(shared, state, chunk);
        Ok(true)
    }

    /// Discards the queued chunks, except those that are in flight or partly sent, and queues
    /// `chunk`.
    ///
    /// # Errors
    /// The error of an earlier send, or `BrokenPipe` if the stream has been shut down.
    pub(crate) fn replace_queued(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        chunk: Chunk,
    ) -> io::Result<()> {
        if self.tx.refuses() {
            return Err(self.refusal(state));
        }
        let tx = &mut self.tx;
        let kept = usize::from(tx.flying_chunks).max(usize::from(tx.first_sent > 0));
        while let Some(discarded) = tx.queue.pop_back_beyond(kept) {
            tx.bytes -= discarded.len();
            discarded.retire_queued(&state.memory.meter, &mut state.spares, &mut state.deferred);
        }
        self.push(shared, state, chunk);
        Ok(())
    }

    /// Resets the connection once both of its halves have been dropped: discards the queued bytes,
    /// and ends the receiving half, which wakes its task.
    pub(crate) fn give_up_half(&mut self, shared: &mut StreamResources, state: &mut LoopState) {
        self.give_up(shared, state);
        // Counts as ended already, so that no FIN is sent: the peer must see the reset and not EOF.
        (self.tx.ending, self.tx.ended) = (true, true);
        _ = state.driver.kernel().shutdown(self.fd, Shutdown::Read);
    }
}
