//! Sending: chunks queue, leave with the turn in one send, and stay until the kernel is done with them.
//!
//! At most one send is in flight a stream. The first attempt is *now*: it must not wait, and where everything went no
//! event is posted, so that the answer to a request does not end the loop's wait for the next one. Where no event has
//! come by the time the driver is settled, all of it went. An event means a short count or a full socket: the rest goes
//! out *waiting*, as everything does where the driver does not send quietly. Large sends may be *lent*: see `loan`.
#![allow(unsafe_code)]

mod accepting;

use super::Agenda;
use super::queue::Queue;
use super::vectors::{MOST, Passed};
use crate::chunk::Chunk;
use crate::runtime::inner::Inner;
use crate::runtime::io::AHEAD;
use crate::time::{Fire, TimerKey};
use annulus_driver::{Event, Kind, MemoryOp};
use annulus_kernel::{IoVec, Shutdown};
use rustix::io::Errno;
use std::io;
use std::task::Waker;
use std::time::Duration;

/// When to try again where the system is short of memory.
const RETRY: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Idle,
    Now,
    Waiting,
    /// Lent to the kernel, which has not told what went.
    Lent,
    /// Of what was lent not everything went: to be judged when the memory is free.
    Judging,
    /// Tries again when a timer goes off.
    Pausing,
}

/// The sending half of a stream's slot.
#[derive(Default)]
pub(crate) struct Transmit {
    pub(super) queue: Queue,
    /// Bytes of the first chunk that went already.
    pub(super) sent: usize,
    /// Bytes accepted and not sent, those in flight included.
    pub(super) bytes: usize,
    /// Of these, the bytes and chunks in flight.
    pub(super) flying: usize,
    pub(super) flying_chunks: u8,
    pub(super) state: State,
    /// What was lent last.
    pub(super) loan: u32,
    /// Sends of which the kernel still has the memory.
    pub(super) loans: u32,
    /// Its socket can be lent nothing.
    pub(super) copies: bool,
    /// On the agenda.
    listed: bool,
    /// The write side ends when everything has gone.
    ending: bool,
    ended: bool,
    pub(super) error: Option<Errno>,
    pub(super) waker: Option<Waker>,
    /// When to give up, once the stream was dropped.
    pub(crate) linger: Option<TimerKey>,
}

impl Transmit {
    /// Waits for the peer to make room, or for memory.
    #[inline]
    pub(crate) fn is_stuck(&self) -> bool {
        !matches!(self.state, State::Idle | State::Now)
    }

    /// Nothing queued, nothing in flight, and no memory with the kernel. What was given up does not count: closing
    /// brings that back.
    pub(crate) fn is_over(&self) -> bool {
        self.is_idle() && (self.loans == 0 || self.error.is_some())
    }

    /// Nothing queued and nothing in flight.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Idle && self.queue.is_empty()
    }

    /// Bytes accepted and not sent.
    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        self.bytes
    }

    #[inline]
    fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.len();
        self.queue.push(chunk);
    }

    /// What is queued fits a bound.
    #[inline]
    pub(crate) fn has_room(&self, bound: usize) -> bool {
        self.bytes <= bound
    }

    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    pub(crate) fn is_awaited_by(&self, task: &Waker) -> bool {
        self.waker.as_ref().is_some_and(|waker| waker.will_wake(task))
    }

    /// Why nothing can be sent, if so.
    fn refusal(&self) -> Option<io::Error> {
        if let Some(errno) = self.error {
            return Some(errno.into());
        }
        self.ending.then(|| {
            io::Error::new(io::ErrorKind::BrokenPipe, "the stream was shut down for sending")
        })
    }
}

impl Agenda {
    #[inline]
    fn list_send(&mut self, tx: &mut Transmit, slot: u32) {
        if tx.state == State::Idle && !tx.listed {
            tx.listed = true;
            self.sends.push(slot);
        }
    }
}

impl Inner {
    #[inline]
    fn list_send(&mut self, slot: u32) {
        self.agenda.list_send(&mut self.streams.get(slot).tx, slot);
    }

    /// Starts the sends on the agenda.
    #[inline]
    pub(crate) fn start_sends(&mut self) {
        let first = if self.io.driver.has_quiet_sends() { State::Now } else { State::Waiting };
        let mut sends = std::mem::take(&mut self.agenda.sends);
        for slot in sends.drain(..) {
            let Some(stream) = self.streams.peek(slot) else { continue };
            let tx = &mut stream.tx;
            if std::mem::take(&mut tx.listed) && tx.state == State::Idle && !tx.queue.is_empty() {
                self.send(slot, first);
            }
        }
        // Nothing was listed meanwhile: the list keeps its memory.
        self.agenda.sends = sends;
    }

    /// Sends what is queued: up to [`MOST`] chunks in one operation.
    #[inline]
    pub(super) fn send(&mut self, slot: u32, state: State) {
        let token = self.stream_token(Kind::Send, slot);
        let now = state == State::Now;
        let op = self.gather(slot, now);
        if self.is_to_lend(slot) {
            return self.lend(slot, op);
        }
        let stream = self.streams.get(slot);
        let tx = &mut stream.tx;
        tx.state = state;
        if now {
            // No event will tell that it went. Where somebody waits to learn it, this turn must not sleep.
            self.agenda.sleepless |= stream.dropped || tx.ending || tx.waker.is_some();
            self.agenda.eager.push(slot);
            // SAFETY: the chunks stay in the slot's queue, and their bytes where they are, until the event or until the
            // driver is settled; the vectors likewise.
            unsafe { self.io.driver.submit_memory(token, op) };
        } else {
            self.linger(slot);
            // SAFETY: as above, until the terminal event.
            unsafe { self.io.start_memory(token, op) };
        }
    }

    /// The operation that sends what is queued, which is in flight from here on.
    #[inline]
    fn gather(&mut self, slot: u32, now: bool) -> MemoryOp {
        if self.streams.get(slot).passing.is_some() {
            return self.gather_one(slot, now);
        }
        let one_by_one = !self.io.driver.operations().verbs.send_vectors_only();
        let stream = self.streams.get(slot);
        let (fd, tx) = (stream.fd, &mut stream.tx);
        let mut skip = tx.sent;
        let mut parts = tx.queue.iter().take(MOST).map(|chunk| {
            let bytes = &chunk.as_ref()[std::mem::take(&mut skip)..];
            IoVec { base: bytes.as_ptr(), len: bytes.len() }
        });
        if tx.queue.has_one() && one_by_one {
            let IoVec { base: buffer, len } = parts.next().expect("the queue is not empty");
            // What does not fit a length of 32 bits goes out in pieces, as short counts do.
            let part = len.min(1 << 30);
            (tx.flying, tx.flying_chunks) = (part, 1);
            let len = part as u32;
            return if now {
                MemoryOp::SendNow { fd, buffer, len }
            } else {
                MemoryOp::Send { fd, buffer, len }
            };
        }
        let (mut bytes, mut chunks) = (0, 0);
        let counted = parts.inspect(|part| {
            bytes += part.len;
            chunks += 1;
        });
        let header = self.vectors.describe(counted, Passed::NOTHING);
        (tx.flying, tx.flying_chunks) = (bytes, chunks);
        if now {
            MemoryOp::SendVectorNow { fd, header }
        } else {
            MemoryOp::SendVector { fd, header }
        }
    }

    /// The driver is settled: sends of which no event came went out whole.
    #[inline]
    pub(crate) fn settle_sends(&mut self) {
        self.agenda.sleepless = false;
        // What the kernel has copied meanwhile has pushed the slots out of the cache.
        (1..=AHEAD as usize).for_each(|ahead| self.prefetch_eager(ahead));
        while let Some(slot) = self.agenda.eager.pop() {
            self.prefetch_eager(AHEAD as usize);
            if self.streams.peek(slot).is_some_and(|stream| stream.tx.state == State::Now) {
                let all = self.streams.get(slot).tx.flying;
                self.sent(slot, all);
            }
        }
    }

    /// Asks for the slot of a send to be settled, the `ahead`-th from now.
    #[inline]
    fn prefetch_eager(&self, ahead: usize) {
        let place = self.agenda.eager.len().checked_sub(ahead);
        if let Some(slot) = place.and_then(|place| self.agenda.eager.get(place)) {
            self.streams.prefetch(*slot);
        }
    }

    #[inline]
    pub(crate) fn on_send(&mut self, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(stream) = self.streams.find(slot, generation) else { return self.io.late(event) };
        let state = stream.tx.state;
        match state {
            State::Now => {}
            State::Waiting => self.io.in_flight -= 1,
            _ => return self.io.late(event),
        }
        self.judge_send(slot, event.result);
    }

    /// What a send has come to, now that its memory is free.
    #[inline]
    pub(super) fn judge_send(&mut self, slot: u32, result: Result<u32, Errno>) {
        match result {
            Ok(count) => self.sent(slot, count as usize),
            Err(Errno::AGAIN | Errno::INTR) => self.sent(slot, 0),
            Err(Errno::NOBUFS | Errno::NOMEM) => self.send_later(slot),
            Err(errno) => self.fail_send(slot, errno),
        }
    }

    /// `count` bytes went. Goes on with the rest, waiting for room; or with what was queued meanwhile.
    #[inline]
    fn sent(&mut self, slot: u32, count: usize) {
        let bound = self.io.send_bound();
        let stream = self.streams.get(slot);
        let (tx, held_back) = (&mut stream.tx, stream.held_back);
        let short = count < tx.flying;
        tx.bytes -= count;
        let mut gone = tx.sent + count;
        while let Some(first) = &tx.queue.first
            && first.len() <= gone
        {
            gone -= first.len();
            if let Some(chunk) = tx.queue.pop() {
                chunk.retire_accepted(
                    &self.io.memory.meter,
                    &mut self.io.spares,
                    &mut self.io.after,
                );
            }
        }
        tx.sent = gone;
        tx.state = State::Idle;
        (tx.flying, tx.flying_chunks) = (0, 0);
        if tx.bytes <= bound {
            self.io.after.wakes.extend(tx.waker.take());
        }
        if short && tx.error.is_none() {
            self.send(slot, State::Waiting);
        } else {
            self.resume_send(slot);
        }
        if held_back {
            self.receive_more(slot);
        }
    }

    /// The system is short of memory: tries again after a moment, of a dropped stream for as long as the linger.
    fn send_later(&mut self, slot: u32) {
        self.linger(slot);
        let tx = &mut self.streams.get(slot).tx;
        tx.state = State::Pausing;
        (tx.flying, tx.flying_chunks) = (0, 0);
        let fire = Fire::Send(slot, self.streams.generation(slot));
        self.io.timers.insert(self.io.now() + RETRY, fire);
    }

    pub(crate) fn on_send_retry(&mut self, slot: u32, generation: u32) {
        if let Some(stream) = self.streams.find(slot, generation)
            && stream.tx.state == State::Pausing
        {
            stream.tx.state = State::Idle;
            self.resume_send(slot);
        }
    }

    /// Nothing is in flight: goes on with what is queued, or with what waited for its end.
    pub(super) fn resume_send(&mut self, slot: u32) {
        let tx = &mut self.streams.get(slot).tx;
        if tx.error.is_some() {
            // Given up meanwhile.
            self.discard_unsent(slot);
        }
        if self.streams.get(slot).tx.queue.is_empty() {
            self.all_sent(slot);
        } else {
            self.list_send(slot);
        }
    }

    fn fail_send(&mut self, slot: u32, errno: Errno) {
        let tx = &mut self.streams.get(slot).tx;
        tx.error.get_or_insert(errno);
        tx.state = State::Idle;
        (tx.flying, tx.flying_chunks) = (0, 0);
        self.discard_unsent(slot);
        self.all_sent(slot);
    }

    #[inline]
    fn all_sent(&mut self, slot: u32) {
        let stream = self.streams.get(slot);
        self.io.after.wakes.extend(stream.tx.waker.take());
        if stream.tx.ending {
            self.end_if_sent(slot);
        }
        if self.streams.get(slot).dropped {
            self.close_if_done(slot);
        }
    }

    fn end_if_sent(&mut self, slot: u32) {
        let kernel = self.io.driver.kernel().clone();
        let stream = self.streams.get(slot);
        let tx = &mut stream.tx;
        if !tx.ended && tx.is_idle() {
            tx.ended = true;
            // The peer may have gone first, which is an end as well.
            _ = kernel.shutdown(stream.fd, Shutdown::Write);
            self.io.after.wakes.extend(tx.waker.take());
        }
    }

    /// Drops what was accepted and is not in flight.
    pub(crate) fn discard_unsent(&mut self, slot: u32) {
        let tx = &mut self.streams.get(slot).tx;
        if tx.state == State::Idle {
            while let Some(chunk) = tx.queue.pop() {
                chunk.retire_accepted(
                    &self.io.memory.meter,
                    &mut self.io.spares,
                    &mut self.io.after,
                );
            }
            (tx.bytes, tx.sent) = (0, 0);
        }
    }

    /// Gives up on everything that was accepted: what waits for room is cancelled, the rest discarded.
    pub(crate) fn stop_sending(&mut self, slot: u32) {
        let token = self.stream_token(Kind::Send, slot);
        let tx = &mut self.streams.get(slot).tx;
        tx.error.get_or_insert(Errno::CANCELED);
        match tx.state {
            State::Waiting => self.io.cancel(token),
            State::Lent | State::Judging => self.stop_lending(slot),
            State::Idle => self.discard_unsent(slot),
            State::Pausing => {
                tx.state = State::Idle;
                self.discard_unsent(slot);
            }
            // Its outcome shows within this turn.
            State::Now => {}
        }
    }
}
