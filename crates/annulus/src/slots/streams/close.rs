//! How a stream ends: stop starting operations, cancel those in flight, wait for their terminal
//! events, close.

use super::carriers::single;
use super::recv::End;
use super::send::{SendPhase, SendState};
use super::{Released, Shared, Stream, Streams, carriers};
use crate::base::io::Io;
use crate::base::op_error::Operation;
use crate::bytes::after::note_waker;
use crate::timers::TimerAction;
use annulus_driver::{Kind, SlotId};
use annulus_kernel::SocketOption;
use rustix::io::Errno;
use std::io;
use std::task::{Context, Poll, ready};

impl Stream {
    /// Ends the write side as soon as everything has been sent.
    pub(crate) fn end_when_sent(&mut self, io: &mut Io) {
        self.tx.ending = true;
        single::stop_waiting(self, io);
        self.end_if_sent(io);
    }

    pub(super) fn end_if_sent(&mut self, io: &mut Io) {
        if !self.tx.ended && self.tx.is_idle() {
            self.tx.ended = true;
            self.tx.error = self.tx.error.or(carriers::end(self, io).err());
            io.after.wakes.extend(self.tx.waker.take());
        }
    }

    /// Drops queued bytes that are not in flight.
    pub(super) fn discard_unsent(&mut self, io: &mut Io) {
        let tx = &mut self.tx;
        if tx.phase == SendPhase::Idle {
            while let Some(chunk) = tx.queue.pop() {
                chunk.retire_queued(&io.memory.meter, &mut io.spares, &mut io.after);
            }
            (tx.bytes, tx.first_sent) = (0, 0);
            carriers::discard(self);
        }
    }

    /// Gives up on all queued bytes: cancels a send that waits for space and discards the rest.
    pub(super) fn stop_send(&mut self, shared: &mut Shared, io: &mut Io) {
        let tx = &mut self.tx;
        tx.error.get_or_insert(Errno::CANCELED);
        match tx.phase {
            SendPhase::Waiting => io.cancel(self.id.token(Kind::Send)),
            SendPhase::Single(single) => single::stop(self, shared, io, single),
            SendPhase::Idle | SendPhase::Retrying => {
                tx.phase = SendPhase::Idle;
                self.discard_unsent(io);
            }
            // The outcome is known within this turn.
            SendPhase::Now => {}
        }
    }

    /// Starts the linger timer of a dropped stream, within which its queued bytes must be sent.
    pub(super) fn start_linger(&mut self, io: &mut Io) {
        if self.dropped {
            io.start_linger(&mut self.tx.linger, TimerAction::Linger(self.id));
        }
    }

    /// Ends all operations in flight. From the first call on, nothing new starts, even for an
    /// abandoned copy.
    ///
    /// # Errors
    /// The error of a send or of the receive.
    fn poll_quiet(&mut self, io: &mut Io, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.closing = true;
        single::stop_waiting(self, io);
        self.stop_recv(io);
        ready!(self.poll_sent(io, cx, SendState::is_quiet))?;
        if let Some(End::Failed(errno)) = self.rx.end {
            return Poll::Ready(Err(self.failed(io, Operation::Recv, errno)));
        }
        if !self.rx.arming.is_idle() {
            // Received bytes stay queued.
            note_waker(&mut self.rx.waker, &mut io.after.drops, cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// Gives up the queued bytes. Closing the socket then resets the connection, so that the peer
    /// does not take a truncated stream for a complete one.
    fn give_up(&mut self, shared: &mut Shared, io: &mut Io) {
        // A socket that no longer accepts options does not need the reset either.
        _ = io.driver.kernel().set_option(self.fd, SocketOption::Linger, 0);
        self.stop_send(shared, io);
    }
}

impl Streams {
    /// Handles a dropped handle. Queued bytes are still sent until the linger ends.
    pub(crate) fn drop_stream(&mut self, io: &mut Io, slot: u32) {
        let stream = self.slots.get(slot);
        (stream.dropped, stream.closing) = (true, true);
        io.after.drops.extend(stream.rx.waker.take());
        io.after.drops.extend(stream.tx.waker.take());
        stream.stop_recv(io);
        stream.discard_received(&self.shared);
        single::stop_waiting(stream, io);
        // Bytes that are sent at the first attempt need no linger; a send with a short count starts
        // it.
        if stream.tx.is_waiting() {
            stream.start_linger(io);
        }
        self.close_if_done(io, slot);
    }

    /// Handles a handle that was dropped with the request to discard the rest: the connection is
    /// reset.
    pub(crate) fn abort(&mut self, io: &mut Io, slot: u32) {
        let stream = self.slots.get(slot);
        stream.give_up(&mut self.shared, io);
        self.drop_stream(io, slot);
    }

    /// Gives up when the linger is over.
    pub(crate) fn on_linger(&mut self, io: &mut Io, id: SlotId) {
        if let Some(stream) = self.slots.find(id) {
            stream.tx.linger = None;
            stream.give_up(&mut self.shared, io);
            stream.end_closing_wait(io);
            self.close_if_done(io, id.index);
        }
    }

    /// Closes a dropped stream if nothing is in flight.
    pub(super) fn close_if_done(&mut self, io: &mut Io, slot: u32) {
        let stream = self.slots.get(slot);
        if !(stream.dropped && stream.rx.arming.is_idle() && stream.tx.is_idle()) {
            return;
        }
        if !stream.tx.is_quiet() {
            // The kernel still holds memory of ours: the peer sees the end, and a reset can free
            // the memory.
            stream.end_when_sent(io);
            return stream.start_linger(io);
        }
        stream.discard_received(&self.shared);
        if !stream.can_close(&self.shared, io) {
            return;
        }
        let stream = self.remove(io, slot);
        if let Some(key) = stream.tx.linger {
            io.timers.remove(key);
        }
        io.close_accepted(stream.fd, stream.permit.counted());
    }

    fn remove(&mut self, io: &mut Io, slot: u32) -> Stream {
        let stream = self.slots.remove(slot);
        if let Some(key) = stream.closing_wait.as_ref().and_then(|wait| wait.timer) {
            io.timers.remove(key);
        }
        if stream.memory_paused {
            io.memory.sub_paused();
        }
        stream
    }

    /// Takes a stream off the runtime. Ready once none of its operations is in flight and the
    /// kernel holds none of its memory.
    ///
    /// # Errors
    /// The error of a send or of the receive.
    pub(crate) fn poll_release(
        &mut self,
        io: &mut Io,
        slot: u32,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Released>> {
        let stream = self.slots.get(slot);
        ready!(stream.poll_quiet(io, cx))?;
        let mut received = Vec::with_capacity(stream.rx.bytes as usize);
        while let Some(lease) = stream.take_received(&mut self.shared, io) {
            received.extend_from_slice(&lease);
        }
        let mut stream = self.remove(io, slot);
        io.after.drops.extend(stream.rx.waker.take());
        io.after.drops.extend(stream.tx.waker.take());
        io.release(stream.fd);
        Poll::Ready(Ok((stream.fd, received, stream.permit.counted())))
    }

    /// Like [`poll_release`](Self::poll_release), but for a stream that will be closed: ready once
    /// closing it loses no sent bytes.
    pub(crate) fn poll_close(
        &mut self,
        io: &mut Io,
        slot: u32,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Released>> {
        let (stream, shared) = self.get(slot);
        let waits = stream.closing_wait.is_some() && !stream.rx.arming.is_idle();
        if !waits {
            ready!(stream.poll_quiet(io, cx))?;
        }
        if waits || !stream.can_close(shared, io) {
            note_waker(&mut stream.rx.waker, &mut io.after.drops, cx);
            return Poll::Pending;
        }
        self.poll_release(io, slot, cx)
    }

    /// Returns true if the peers have acknowledged what dropped streams sent, the kernel has taken
    /// what the other streams had queued, and the kernel holds no memory of either.
    pub(crate) fn all_sent(&mut self) -> bool {
        let is_sent =
            |stream: &mut Stream| stream.tx.is_quiet() && !stream.awaits_acknowledgement();
        self.slots.values().all(is_sent)
    }

    /// Ends all streams; those with unsent bytes are reset. Handles that outlive the runtime find
    /// it ended.
    pub(crate) fn stop_all(&mut self, io: &mut Io) {
        self.shared.is_ending = true;
        for slot in self.slots.indices() {
            if self.slots.get(slot).tx.is_quiet() {
                self.drop_stream(io, slot);
            } else {
                self.abort(io, slot);
            }
        }
    }
}
