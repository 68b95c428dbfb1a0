//! Sending datagrams.
//!
//! The datagrams that a turn has queued are submitted with its one enter, each as a send that does not wait and posts an event only if it fails.
//! Once the driver is settled, datagrams without an event have left. Datagrams that found no space stay queued, and the slot waits for
//! space. None is left with the kernel to wait: when Linux tries a Unix datagram again, it sends it empty.
//!
//! An error belongs to its datagram, and the next send to the same destination returns it, or a drain. An error that the
//! kernel kept from an earlier datagram (an ICMP answer) goes to the tasks that wait to receive, and the datagram is sent again.
//!
//! A datagram that found no space at its destination goes back to the front of the queue if order matters, and everything behind it waits.
//! If it does not, the datagram is *deferred*: it is tried again once there may be space, and others leave meanwhile. For a Unix socket, an
//! event announces space only at the connected peer. So the datagrams deferred longest that go elsewhere are discarded when the bound would
//! keep further ones out: receivers that do not read, however many, block no other.
#![allow(unsafe_code)]

use super::errors::{Failure, Failures};
use super::outgoing::{OutgoingDatagram, OutgoingState, SendMeta};
use super::{Datagrams, Shared, Socket};
use crate::base::io::Io;
use crate::slots::find_or_late;
use crate::timers::{TimerAction, TimerKey};
use crate::waiters::Waiters;
use annulus_driver::{Event, Kind, Op, Slab, SlotId};
use annulus_kernel::Domain;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// The time until a retry if no event announces space: at first and at most.
const FIRST_RETRY: Duration = Duration::from_millis(2);
const LAST_RETRY: Duration = Duration::from_millis(64);

/// The sending half of a slot.
///
/// The lists hold indices of outgoing datagrams, each in one list: they are *queued* → the turn submits a batch of
/// them, which is *in flight* → once the batch is settled, each is freed, queued again, or *deferred*. The next batch starts
/// when the last one is settled and no wait for space is on, neither `awaits_writable` nor `awaits_retry`; if order does not
/// matter, such a wait does not keep it from starting.
#[derive(Default)]
pub(super) struct SendState {
    /// Datagrams not started.
    pub(super) queue: VecDeque<u32>,
    /// Datagrams submitted, not settled.
    pub(super) in_flight: VecDeque<u32>,
    /// Datagrams that found no space, and wait to be queued again. Only if order does not matter.
    pub(super) deferred: VecDeque<u32>,
    /// The weight of all datagrams in these lists.
    pub(super) weight: usize,
    /// Most datagrams of the next batch: as many as found space in the last batch that did not go out whole, and twice as
    /// many after each batch that did. A datagram that is refused has cost its submission.
    pub(super) window: usize,
    /// Sends may overtake one another.
    pub(super) unordered: bool,
    /// The socket has a peer.
    pub(super) connected: bool,
    /// The device refused to split datagrams: from now on it is done here.
    pub(super) splits_here: bool,
    /// A datagram of the last batch was refused for lack of space that no event announces: at a destination other than the
    /// peer, or in the kernel.
    pub(super) no_space_event: bool,
    /// The slot waits for the socket to be writable: an operation is in flight.
    pub(super) awaits_writable: bool,
    /// The slot waits for a timer.
    pub(super) awaits_retry: bool,
    /// How long the next such wait is: twice as long after each that moved nothing.
    retry: Duration,
    /// On the list of slots with something to send.
    pub(super) listed: bool,
    pub(super) failures: Failures,
    pub(super) waiters: Waiters,
    /// The timer to give up, once the socket was dropped.
    pub(super) linger: Option<TimerKey>,
}

impl SendState {
    pub(super) fn new(unordered: bool) -> Self {
        Self { window: usize::MAX, unordered, retry: FIRST_RETRY, ..Self::default() }
    }

    /// Nothing is queued that has not left.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty() && self.deferred.is_empty()
    }

    /// No operation in flight names the socket.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_idle() && !self.awaits_writable
    }

    /// Whether a batch may start now: the last one is settled, and no wait is on that must not be overtaken.
    #[inline]
    pub(super) fn may_start(&self) -> bool {
        let waits = self.awaits_writable || self.awaits_retry;
        (!waits || self.unordered) && self.in_flight.is_empty() && !self.queue.is_empty()
    }

    /// How many leave together. Ordered Unix datagrams leave one at a time: a second one could find space after the first was
    /// refused, and overtake it. Without order, a refusal says nothing about the next destination, and all leave.
    pub(super) fn batch(&self, domain: Domain) -> usize {
        match (domain, self.unordered) {
            (Domain::Unix, false) => 1,
            (Domain::Unix, true) => usize::MAX,
            _ => self.window,
        }
    }

    /// The next one of a batch to be settled. If order matters it is the last, so that those which return to the front of the
    /// queue keep their order; else the first, so that the first refused is the first deferred.
    #[inline]
    pub(super) fn next_to_settle(&mut self) -> Option<u32> {
        if self.unordered { self.in_flight.pop_front() } else { self.in_flight.pop_back() }
    }

    /// How long to wait this time.
    pub(super) fn next_retry(&mut self) -> Duration {
        let longer = (2 * self.retry).min(LAST_RETRY);
        std::mem::replace(&mut self.retry, longer)
    }

    /// A datagram left that had waited for space.
    pub(super) fn has_moved(&mut self) {
        self.retry = FIRST_RETRY;
    }

    /// Takes back the weight of a datagram that has left, or is given up. Its slot is to be freed next.
    #[inline]
    pub(super) fn release(&mut self, io: &mut Io, datagram: &mut OutgoingDatagram) {
        self.weight -= datagram.weight;
        datagram.chunk.release_queued(&io.memory.meter, &mut io.spares, &mut io.after);
    }

    /// There may be space: deferred datagrams are queued again.
    pub(super) fn requeue_deferred(&mut self) {
        self.queue.append(&mut self.deferred);
    }

    /// A datagram found no space.
    pub(super) fn defer(&mut self, id: u32, datagram: &mut OutgoingDatagram) {
        (datagram.state, datagram.waited) = (OutgoingState::Queued, true);
        if self.unordered { self.deferred.push_back(id) } else { self.queue.push_front(id) }
    }
}

impl Socket {
    /// Puts the slot on the list of those with something to send.
    #[inline]
    pub(super) fn list_send(&mut self, shared: &mut Shared) {
        if self.tx.may_start() && !self.tx.listed {
            self.tx.listed = true;
            shared.turn.sends.push(self.id.index);
        }
    }

    /// Submits the queued datagrams.
    fn start_batch(&mut self, shared: &mut Shared, io: &mut Io) {
        for _ in 0..self.tx.batch(self.format.domain) {
            let Some(id) = self.tx.queue.pop_front() else { break };
            self.tx.in_flight.push_back(id);
            self.submit(shared, io, id);
        }
        shared.turn.unsettled.push(self.id.index);
        shared.turn.must_settle |=
            self.dropped || !self.tx.waiters.is_empty() || !self.tx.queue.is_empty();
    }

    #[inline]
    fn submit(&mut self, shared: &mut Shared, io: &mut Io, id: u32) {
        let (name, datagram) = shared.outgoing.get_with_id(id);
        datagram.state = OutgoingState::Submitted;
        let op = datagram.send_now(self.fd, shared.addresses_sends);
        // SAFETY: the memory that the operation names lies in the datagram's slot, or is kept alive by it; that does not move, and is freed at the
        // event, or once the driver is settled.
        unsafe { io.driver.submit_memory(name.token(Kind::SendDatagram), op) };
    }

    /// The outcome of every datagram in flight is known. One without an event has left.
    fn settle_batch(&mut self, shared: &mut Shared, io: &mut Io) {
        let (mut refused, mut left, mut moved) = (false, 0, false);
        while let Some(id) = self.tx.next_to_settle() {
            let datagram = shared.outgoing.get(id);
            match datagram.state {
                OutgoingState::Submitted | OutgoingState::Sent | OutgoingState::Failed => {
                    left += 1;
                    moved |= datagram.waited;
                    self.tx.release(io, datagram);
                    shared.outgoing.free(id);
                }
                OutgoingState::NoSpace => {
                    refused = true;
                    self.tx.defer(id, datagram);
                }
                OutgoingState::Queued | OutgoingState::Retry | OutgoingState::Split => {
                    self.requeue(shared, io, id);
                }
            }
        }
        let window = self.tx.window;
        self.tx.window = if refused { left.max(1) } else { window.saturating_mul(2) };
        if moved {
            self.tx.has_moved();
        }
        if refused {
            self.wait_for_space(io);
        }
        self.resume_send(shared, io);
    }

    /// Puts a datagram back to the front of the queue; split, if no layer below would split it.
    #[cold]
    fn requeue(&mut self, shared: &mut Shared, io: &mut Io, id: u32) {
        let datagram = shared.outgoing.get(id);
        let state = mem::replace(&mut datagram.state, OutgoingState::Queued);
        let splits = state == OutgoingState::Split || self.tx.splits_here;
        let Some(size) = datagram.meta.segment_size.filter(|_| splits) else {
            return self.tx.queue.push_front(id);
        };
        let OutgoingDatagram { mut chunk, meta, weight, .. } = shared.outgoing.remove(id);
        self.tx.weight -= weight;
        io.memory.meter.sub(chunk.weight());
        let behind = mem::take(&mut self.tx.queue);
        let meta = SendMeta { segment_size: None, ..meta };
        while chunk.len() > usize::from(size) {
            let first = chunk.split_to(size.into());
            self.queue(shared, io, first, meta.clone());
        }
        self.queue(shared, io, chunk, meta);
        self.tx.queue.extend(behind);
    }

    /// A datagram found no space. Waits for an event that announces space or, if there is none for it, for a timer.
    fn wait_for_space(&mut self, io: &mut Io) {
        if mem::take(&mut self.tx.no_space_event) {
            self.wait_to_retry(io);
        } else if !self.tx.awaits_writable {
            self.tx.awaits_writable = true;
            io.start(self.id.token(Kind::DatagramWritable), Op::WritableOnce { fd: self.fd });
        }
    }

    fn wait_to_retry(&mut self, io: &mut Io) {
        if !mem::replace(&mut self.tx.awaits_retry, true) {
            let deadline = io.now() + self.tx.next_retry();
            io.timers.insert(deadline, TimerAction::DatagramRetry(self.id));
        }
    }

    /// Sends have ended, or there may be space: wakes tasks that wait for space or a drain, and lists the slot if datagrams are queued.
    fn resume_send(&mut self, shared: &mut Shared, io: &mut Io) {
        let has_space = self.tx.weight <= io.send_bound()
            || self.first_discardable(&mut shared.outgoing).is_some();
        if has_space {
            self.tx.waiters.notify_all(&mut io.after.wakes);
        }
        self.list_send(shared);
        if !self.tx.is_idle() {
            if self.dropped {
                self.start_linger(io);
            }
        } else if self.tx.awaits_writable {
            // No datagram is left that the wait is for.
            io.cancel(self.id.token(Kind::DatagramWritable));
        }
    }

    /// There may be space again.
    fn retry(&mut self, shared: &mut Shared, io: &mut Io) {
        self.tx.requeue_deferred();
        self.resume_send(shared, io);
    }

    /// Gives up everything that was queued and has not left.
    pub(super) fn stop_send(&mut self, shared: &mut Shared, io: &mut Io) {
        self.tx.requeue_deferred();
        for id in mem::take(&mut self.tx.queue) {
            self.tx.release(io, shared.outgoing.get(id));
            shared.outgoing.free(id);
        }
        if self.tx.awaits_writable {
            io.cancel(self.id.token(Kind::DatagramWritable));
        }
    }
}

impl Datagrams {
    /// Submits the datagrams that the listed slots have queued.
    #[inline]
    pub(crate) fn start_sends(&mut self, io: &mut Io) {
        self.shared.turn.must_settle = false;
        if io.has_looked {
            self.shared.turn.sent_directly = 0;
        }
        if self.shared.turn.has_sends() {
            self.start_batches(io);
        }
    }

    /// Not inlined: a turn without datagrams has none of its cost.
    #[inline(never)]
    fn start_batches(&mut self, io: &mut Io) {
        let mut listed = mem::take(&mut self.shared.turn.sends);
        for slot in listed.drain(..) {
            if let Some(socket) = self.slots.peek(slot)
                && mem::take(&mut socket.tx.listed)
                && socket.tx.may_start()
            {
                socket.start_batch(&mut self.shared, io);
            }
        }
        // No slot was listed meanwhile: the list keeps its memory.
        self.shared.turn.sends = listed;
    }

    /// The driver is settled: sends without an event are done. Datagrams that can be sent now are sent in the next turn.
    #[inline]
    pub(crate) fn settle_sends(&mut self, io: &mut Io) {
        if self.shared.turn.has_unsettled() {
            self.settle_batches(io);
        }
        self.shared.turn.must_settle = self.shared.turn.has_sends();
    }

    /// Not inlined, as [`start_batches`](Self::start_batches).
    #[inline(never)]
    fn settle_batches(&mut self, io: &mut Io) {
        while let Some(slot) = self.shared.turn.unsettled.pop() {
            let socket = self.slots.get(slot);
            socket.settle_batch(&mut self.shared, io);
            if socket.is_done() {
                self.close(io, slot);
            }
        }
    }

    /// A send has an outcome; its batch is settled as a whole later.
    pub(crate) fn on_sent(&mut self, io: &mut Io, event: Event) {
        let Some(datagram) = find_or_late(&mut self.shared.outgoing, io, &event) else { return };
        let slot = datagram.slot;
        let socket = self.slots.get(slot);
        datagram.state = match event.result {
            Ok(_) => OutgoingState::Sent,
            Err(errno) => socket.on_refused(io, datagram, errno),
        };
    }

    /// The wait for a writable socket has ended.
    pub(crate) fn on_writable(&mut self, io: &mut Io, event: Event) {
        let Some(socket) = find_or_late(&mut self.slots, io, &event) else { return };
        socket.tx.awaits_writable = false;
        io.in_flight -= 1;
        if event.result == Err(Errno::NOMEM) {
            // The poll could not be made, and would be made again at once.
            socket.wait_to_retry(io);
        } else {
            socket.retry(&mut self.shared, io);
        }
        if socket.is_done() {
            self.close(io, event.token.slot());
        }
    }

    /// The wait for a timer has ended.
    pub(crate) fn on_retry(&mut self, io: &mut Io, id: SlotId) {
        if let Some(socket) = self.slots.find(id)
            && mem::take(&mut socket.tx.awaits_retry)
        {
            socket.retry(&mut self.shared, io);
            if socket.is_done() {
                self.close(io, id.index);
            }
        }
    }
}

impl Socket {
    /// No event announces space at this datagram's destination.
    pub(super) fn has_no_space_event(&self, datagram: &OutgoingDatagram) -> bool {
        self.format.domain == Domain::Unix && !datagram.meta.to.is_empty()
    }

    /// Whether another datagram would be queued. Deferred ones may be discarded for it.
    #[inline]
    pub(super) fn has_space(&mut self, shared: &mut Shared, io: &mut Io) -> bool {
        self.tx.weight <= io.send_bound() || self.make_space(shared, io)
    }

    #[cold]
    fn make_space(&mut self, shared: &mut Shared, io: &mut Io) -> bool {
        let bound = io.send_bound();
        while self.tx.weight > bound {
            let Some(at) = self.first_discardable(&mut shared.outgoing) else { return false };
            self.discard_deferred(shared, io, at);
        }
        true
    }

    /// The position of the first deferred datagram that may be discarded.
    pub(super) fn first_discardable(&self, outgoing: &mut Slab<OutgoingDatagram>) -> Option<usize> {
        self.tx.deferred.iter().position(|id| self.has_no_space_event(outgoing.get(*id)))
    }

    fn discard_deferred(&mut self, shared: &mut Shared, io: &mut Io, at: usize) {
        let Some(id) = self.tx.deferred.remove(at) else { return };
        let datagram = shared.outgoing.get(id);
        self.tx.failures.add(Failure::of(datagram, Errno::AGAIN));
        self.tx.release(io, datagram);
        shared.outgoing.free(id);
    }
}
