//! Closing a stream: the receive is cancelled, queued bytes are still sent, and the descriptor is
//! closed once nothing is in flight.

use super::carriers::single;
use super::recv::RecvEnd;
use super::send::{SendPhase, SendState};
use super::{ReleasedStream, Stream, StreamResources, Streams, carriers};
use crate::errors::Operation;
use crate::slots::loop_state::LoopState;
use crate::timers::TimerAction;
use crate::waiters::note_waker;
use annulus_driver::{OpKind, SlotId};
use annulus_kernel::SocketOption;
use rustix::io::Errno;
use std::io;
use std::task::{Context, Poll, ready};

impl Stream {
    /// Ends the write side as soon as everything has been sent.
    pub(crate) fn end_when_sent(&mut self, state: &mut LoopState) {
        self.tx.ending = true;
        single::stop_waiting(self, state);
        self.end_if_sent(state);
    }

    pub(super) fn end_if_sent(&mut self, state: &mut LoopState) {
        if !self.tx.ended && self.tx.is_idle() {
            self.tx.ended = true;
            self.tx.error = self.tx.error.or(carriers::end(self, state).err());
            state.deferred.wakes.extend(self.tx.waker.take());
        }
    }

    /// Drops the unsent bytes, unless a send is in flight or will be retried.
    pub(super) fn discard_unsent(&mut self, state: &mut LoopState) {
        let tx = &mut self.tx;
        if tx.phase == SendPhase::Idle {
            while let Some(chunk) = tx.queue.pop() {
                chunk.retire_queued(&state.memory.meter, &mut state.spares, &mut state.deferred);
            }
            (tx.bytes, tx.first_sent) = (0, 0);
            carriers::discard(self);
        }
    }

    /// Gives up on all unsent bytes. If a send is in flight, they are discarded after it has ended.
    pub(super) fn stop_send(&mut self, shared: &mut StreamResources, state: &mut LoopState) {
        let tx = &mut self.tx;
        tx.error.get_or_insert(Errno::CANCELED);
        match tx.phase {
            SendPhase::Waiting => state.cancel(self.id.token(OpKind::Send)),
            SendPhase::Single(single) => single::stop(self, shared, state, single),
            SendPhase::Idle | SendPhase::Retrying => {
                tx.phase = SendPhase::Idle;
                self.discard_unsent(state);
            }
            // The outcome is known within this turn.
            SendPhase::Now => {}
        }
    }

    /// Starts the timer that limits how long a dropped stream may send its queued bytes.
    pub(super) fn start_linger(&mut self, state: &mut LoopState) {
        if self.dropped {
            state.start_linger(&mut self.tx.linger, TimerAction::Linger(self.id));
        }
    }

    /// Cancels the receive and waits until everything has been sent and no operation is in flight.
    /// From the first call on, no new receive starts.
    ///
    /// # Errors
    /// The error of a send or of the receive.
    fn poll_quiet(&mut self, state: &mut LoopState, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.closing = true;
        single::stop_waiting(self, state);
        self.stop_recv(state);
        ready!(self.poll_sent(state, cx, SendState::is_quiet))?;
        if let Some(RecvEnd::Failed(errno)) = self.rx.end {
            return Poll::Ready(Err(self.failed(state, Operation::Recv, errno)));
        }
        if !self.rx.arming.is_idle() {
            // The cancelled receive may still deliver bytes, so wait for its last event.
            note_waker(&mut self.rx.waker, &mut state.deferred.drops, cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// Gives up the queued bytes. Closing the socket then resets the connection, so that the peer
    /// does not take a truncated stream for a complete one.
    pub(super) fn give_up(&mut self, shared: &mut StreamResources, state: &mut LoopState) {
        // A socket that no longer accepts options does not need the reset either.
        _ = state.driver.kernel().set_option(self.fd, SocketOption::Linger, 0);
        self.stop_send(shared, state);
    }
}

impl Streams {
    /// Handles a dropped handle. Queued bytes are still sent until the linger time expires.
    pub(crate) fn drop_stream(&mut self, state: &mut LoopState, slot: u32) {
        let stream = self.slots.get(slot);
        (stream.dropped, stream.closing) = (true, true);
        state.deferred.drops.extend(stream.rx.waker.take());
        state.deferred.drops.extend(stream.tx.waker.take());
        stream.stop_recv(state);
        stream.discard_received(&self.shared);
        single::stop_waiting(stream, state);
        // Bytes that are sent at the first attempt need no linger; a send with a short count starts
        // it.
        if stream.tx.is_waiting() {
            stream.start_linger(state);
        }
        self.close_if_done(state, slot);
    }

    /// Drops a handle and discards its queued bytes, which resets the connection.
    pub(crate) fn abort(&mut self, state: &mut LoopState, slot: u32) {
        let stream = self.slots.get(slot);
        stream.give_up(&mut self.shared, state);
        self.drop_stream(state, slot);
    }

    /// Gives up the queued bytes when the linger time expires.
    pub(crate) fn on_linger(&mut self, state: &mut LoopState, id: SlotId) {
        if let Some(stream) = self.slots.find(id) {
            stream.tx.linger = None;
            stream.give_up(&mut self.shared, state);
            stream.end_closing_wait(state);
            self.close_if_done(state, id.index);
        }
    }

    /// Closes a dropped stream if nothing is in flight.
    pub(super) fn close_if_done(&mut self, state: &mut LoopState, slot: u32) {
        let stream = self.slots.get(slot);
        if !(stream.dropped && stream.rx.arming.is_idle() && stream.tx.is_idle()) {
            return;
        }
        if !stream.tx.is_quiet() {
            // The kernel may still read memory of zero-copy sends. The peer sees EOF now. If the
            // memory is not free when the linger time expires, a reset frees it.
            stream.end_when_sent(state);
            return stream.start_linger(state);
        }
        stream.discard_received(&self.shared);
        if !stream.can_close(&self.shared, state) {
            return;
        }
        let stream = self.remove(state, slot);
        if let Some(key) = stream.tx.linger {
            state.timers.remove(key);
        }
        state.close_accepted(stream.fd, stream.permit.counted());
    }

    fn remove(&mut self, state: &mut LoopState, slot: u32) -> Stream {
        let stream = self.slots.remove(slot);
        if let Some(key) = stream.closing_wait.as_ref().and_then(|wait| wait.timer) {
            state.timers.remove(key);
        }
        if stream.memory_paused {
            state.memory.sub_paused();
        }
        stream
    }

    /// Removes a stream from the runtime. Returns `Ready` once none of its operations is in flight
    /// and the kernel holds none of its memory.
    ///
    /// # Errors
    /// The error of a send or of the receive.
    pub(crate) fn poll_release(
        &mut self,
        state: &mut LoopState,
        slot: u32,
        cx: &Context<'_>,
    ) -> Poll<io::Result<ReleasedStream>> {
        let stream = self.slots.get(slot);
        ready!(stream.poll_quiet(state, cx))?;
        let mut received = Vec::with_capacity(stream.rx.bytes as usize);
        while let Some(lease) = stream.take_received(&mut self.shared, state) {
            received.extend_from_slice(&lease);
        }
        let mut stream = self.remove(state, slot);
        state.deferred.drops.extend(stream.rx.waker.take());
        state.deferred.drops.extend(stream.tx.waker.take());
        state.release(stream.fd);
        Poll::Ready(Ok((stream.fd, received, stream.permit.counted())))
    }

    /// Like [`poll_release`](Self::poll_release), but for a stream that will be closed: also waits
    /// until [`can_close`](Stream::can_close) returns true.
    pub(crate) fn poll_close(
        &mut self,
        state: &mut LoopState,
        slot: u32,
        cx: &Context<'_>,
    ) -> Poll<io::Result<ReleasedStream>> {
        let (stream, shared) = self.get(slot);
        let waits = stream.closing_wait.is_some() && !stream.rx.arming.is_idle();
        if !waits {
            ready!(stream.poll_quiet(state, cx))?;
        }
        if waits || !stream.can_close(shared, state) {
            note_waker(&mut stream.rx.waker, &mut state.deferred.drops, cx);
            return Poll::Pending;
        }
        self.poll_release(state, slot, cx)
    }

    /// Returns true if no stream has to wait any longer for the kernel to take its bytes and free
    /// its memory, or for its peer to acknowledge sent bytes before a close.
    pub(crate) fn all_sent(&mut self) -> bool {
        let is_sent =
            |stream: &mut Stream| stream.tx.is_quiet() && !stream.awaits_acknowledgement();
        self.slots.values().all(is_sent)
    }

    /// Closes all streams. Resets those with unsent bytes and those whose memory the kernel still
    /// holds. Handles that outlive the runtime return errors.
    pub(crate) fn stop_all(&mut self, state: &mut LoopState) {
        self.shared.is_ending = true;
        for slot in self.slots.indices() {
            if self.slots.get(slot).tx.is_quiet() {
                self.drop_stream(state, slot);
            } else {
                self.abort(state, slot);
            }
        }
    }
}
