//! Sending datagrams.
//!
//! The datagrams queued in a turn are submitted with the turn's one `io_uring_enter`, each as a
//! send that does not wait and posts an event only if it fails. Once the driver has consumed all
//! entries and taken all completions, datagrams without an event have been sent. Datagrams that
//! found no space stay queued, and the slot waits for space; they fail if it cannot wait, because
//! no further descriptor may be watched with epoll. No send waits in the kernel, because Linux
//! sends an empty datagram when it retries the send of a Unix datagram.
//!
//! An error belongs to its datagram and is returned by the next send to the same destination, or by
//! a drain. If the kernel may have kept the error from an earlier datagram (an ICMP reply), the
//! datagram is sent again. If that succeeds, the error was not its own: a task that waits to receive
//! gets it, or else the next send.
//!
//! A datagram that found no space at its destination returns to the front of the queue if order
//! matters, and everything after it waits. Otherwise it is *deferred*: it is retried once there may
//! be space, while other datagrams are sent. For a Unix socket, an event reports space only at the
//! connected peer. So when the bound would reject further datagrams, the datagrams to other
//! destinations that have been deferred longest are discarded. Receivers that do not read therefore
//! never block the others.
#![allow(unsafe_code)]

use super::errors::{SendFailure, SendFailures};
use super::outgoing::{OutgoingDatagram, OutgoingState, SendMeta};
use super::{DatagramResources, DatagramSocket, Datagrams, PeerAddress};
use crate::slots::find_or_late;
use crate::slots::loop_state::LoopState;
use crate::timers::{TimerAction, TimerKey};
use crate::waiters::Waiters;
use annulus_driver::{Event, Op, OpKind, Slab, SlotId};
use annulus_kernel::Domain;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// Delay before a retry when no event reports space. It doubles from the minimum to the maximum.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(2);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(64);

/// The sending half of a slot.
///
/// The lists hold indices of outgoing datagrams, each in one list. A turn submits a batch of queued
/// datagrams, which are then *in flight*. Once their outcome is known, each is freed, queued again,
/// or *deferred*. The next batch starts when the outcome of the last one is known and no wait for
/// space is active (`awaits_writable` or `awaits_retry`). If order does not matter, a wait does not
/// delay the next batch.
#[derive(Default)]
pub(super) struct SendState {
    /// Datagrams that have not been submitted.
    pub(super) queue: VecDeque<u32>,
    /// Submitted datagrams whose outcome is not known.
    pub(super) in_flight: VecDeque<u32>,
    /// Datagrams that found no space and wait to be queued again. Used only if order does not
    /// matter.
    pub(super) deferred: VecDeque<u32>,
    /// The weight of all datagrams in these lists, in bytes.
    pub(super) weight: usize,
    /// Maximum datagrams in the next batch: the number that found space in the last partly refused
    /// batch, doubled after each batch that was sent completely. A refused datagram wastes its
    /// submission.
    pub(super) window: usize,
    /// Whether sends may overtake one another.
    pub(super) unordered: bool,
    /// Whether the socket has a peer.
    pub(super) connected: bool,
    /// Whether the runtime splits datagrams, because the network device has refused to.
    pub(super) splits_here: bool,
    /// Whether a datagram of the last batch found no space, and no event will report space: at an
    /// explicit destination of a Unix socket, or in kernel memory.
    pub(super) no_space_event: bool,
    /// Whether a poll for a writable socket is in flight.
    pub(super) awaits_writable: bool,
    /// Whether a retry timer is running.
    pub(super) awaits_retry: bool,
    /// Delay of the next retry timer. It doubles after each wait without progress.
    retry: Duration,
    /// Whether the slot is in `TurnLists::sends`.
    pub(super) listed: bool,
    pub(super) failures: SendFailures,
    /// The peer to which the datagrams in flight were sent, if it is no longer the peer.
    former_peer: Option<PeerAddress>,
    pub(super) waiters: Waiters,
    /// Timer that gives up on the unsent datagrams of a dropped socket.
    pub(super) linger: Option<TimerKey>,
}

impl SendState {
    pub(super) fn new(unordered: bool) -> Self {
        Self { window: usize::MAX, unordered, retry: MIN_RETRY_DELAY, ..Self::default() }
    }

    /// Returns true if no datagram is unsent.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty() && self.deferred.is_empty()
    }

    /// Returns true if no datagram is unsent and no poll for a writable socket is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_idle() && !self.awaits_writable
    }

    /// Returns true if a batch may start now: the outcome of the last one is known, and no wait is
    /// active that must not be overtaken.
    #[inline]
    pub(super) fn may_start(&self) -> bool {
        let waits = self.awaits_writable || self.awaits_retry;
        (!waits || self.unordered) && self.in_flight.is_empty() && !self.queue.is_empty()
    }

    /// Returns the maximum number of datagrams in a batch. Ordered Unix datagrams are sent one at a
    /// time: a second one could find space after the first has been refused, and overtake it.
    /// Without order, a refusal of a Unix datagram says nothing about the next destination, so all
    /// are sent. On internet sockets, the window limits the batch.
    pub(super) fn batch(&self, domain: Domain) -> usize {
        match (domain, self.unordered) {
            (Domain::Unix, false) => 1,
            (Domain::Unix, true) => usize::MAX,
            _ => self.window,
        }
    }

    /// Returns the next datagram of a batch to complete. If order matters, returns the last one, so
    /// that datagrams that return to the front of the queue keep their order. Otherwise returns the
    /// first one, so that the datagram that was refused first is deferred first.
    #[inline]
    pub(super) fn next_to_settle(&mut self) -> Option<u32> {
        if self.unordered { self.in_flight.pop_front() } else { self.in_flight.pop_back() }
    }

    /// Returns the delay of this wait, and doubles the delay of the next one, up to the maximum.
    pub(super) fn next_retry(&mut self) -> Duration {
        let longer = (2 * self.retry).min(MAX_RETRY_DELAY);
        std::mem::replace(&mut self.retry, longer)
    }

    /// Resets the delay, because a datagram that had waited for space was sent.
    pub(super) fn has_moved(&mut self) {
        self.retry = MIN_RETRY_DELAY;
    }

    /// Subtracts the weight of a datagram that was sent or given up. The caller frees its slot
    /// next.
    #[inline]
    pub(super) fn release(&mut self, state: &mut LoopState, datagram: &mut OutgoingDatagram) {
        self.weight -= datagram.weight;
        datagram.chunk.release_queued(&state.memory.meter, &mut state.spares, &mut state.deferred);
    }

    /// Queues deferred datagrams again, because there may be space.
    pub(super) fn requeue_deferred(&mut self) {
        self.queue.append(&mut self.deferred);
    }

    /// Requeues or defers a datagram that found no space.
    pub(super) fn defer(&mut self, id: u32, datagram: &mut OutgoingDatagram) {
        (datagram.state, datagram.waited) = (OutgoingState::Queued, true);
        if self.unordered { self.deferred.push_back(id) } else { self.queue.push_front(id) }
    }
}

impl DatagramSocket {
    /// Lists the slot for a send, if a batch may start.
    #[inline]
    pub(super) fn list_send(&mut self, shared: &mut DatagramResources) {
        if self.tx.may_start() && !self.tx.listed {
            self.tx.listed = true;
            shared.turn_lists.sends.push(self.id.index);
        }
    }

    fn start_batch(&mut self, shared: &mut DatagramResources, state: &mut LoopState) {
        for _ in 0..self.tx.batch(self.format.domain) {
            let Some(id) = self.tx.queue.pop_front() else { break };
            self.tx.in_flight.push_back(id);
            self.submit(shared, state, id);
        }
        shared.turn_lists.unconfirmed_sends.push(self.id.index);
        shared.turn_lists.must_not_sleep |=
            self.dropped || !self.tx.waiters.is_empty() || !self.tx.queue.is_empty();
    }

    #[inline]
    fn submit(&mut self, shared: &mut DatagramResources, state: &mut LoopState, id: u32) {
        let (name, datagram) = shared.outgoing.get_with_id(id);
        datagram.state = OutgoingState::Submitted;
        let op = datagram.send_now(self.fd, shared.supports_send_to_now);
        // SAFETY: the memory that the operation refers to lies in the datagram's slot or is kept
        // alive by it. The slot does not move, and is freed only once the outcome of its batch is
        // known.
        unsafe { state.driver.submit_memory(name.token(OpKind::SendDatagram), op) };
    }

    /// Makes the kernel start the sends in flight, before the socket changes.
    pub(super) fn start_in_flight(&self, state: &mut LoopState) {
        if !self.tx.in_flight.is_empty() {
            state.driver.start_queued();
        }
    }

    /// Gives the datagrams and failures without an address that of the former peer.
    #[cold]
    pub(super) fn address_to(&mut self, shared: &mut DatagramResources, peer: PeerAddress) {
        self.tx.failures.address_to(&peer);
        for id in self.tx.queue.iter().chain(&self.tx.deferred) {
            shared.outgoing.get(*id).meta.address_to(&peer);
        }
        // The driver still uses the addresses of the others.
        if !self.tx.in_flight.is_empty() {
            self.tx.former_peer.get_or_insert(peer);
        }
    }

    /// Completes a batch whose outcome is known. Datagrams without an event have been sent.
    pub(super) fn settle_batch(&mut self, shared: &mut DatagramResources, state: &mut LoopState) {
        let (mut refused, mut left, mut moved) = (false, 0, false);
        let former_peer = self.tx.former_peer.take();
        while let Some(id) = self.tx.next_to_settle() {
            let datagram = shared.outgoing.get(id);
            former_peer.iter().for_each(|peer| datagram.meta.address_to(peer));
            match datagram.state {
                OutgoingState::Submitted | OutgoingState::Sent | OutgoingState::Failed => {
                    left += 1;
                    moved |= datagram.waited;
                    if let Some(errno) = datagram.earlier {
                        self.report_earlier(state, datagram, errno);
                    }
                    self.tx.release(state, datagram);
                    shared.outgoing.free(id);
                }
                OutgoingState::NoSpace => {
                    refused = true;
                    self.tx.defer(id, datagram);
                }
                OutgoingState::Queued | OutgoingState::Retry | OutgoingState::Split => {
                    self.requeue(shared, state, id);
                }
            }
        }
        let window = self.tx.window;
        self.tx.window = if refused { left.max(1) } else { window.saturating_mul(2) };
        if moved {
            self.tx.has_moved();
        }
        if refused {
            self.wait_for_space(state);
        }
        self.resume_send(shared, state);
    }

    /// Returns a datagram to the front of the queue, split into its segments if the kernel cannot
    /// split it.
    #[cold]
    fn requeue(&mut self, shared: &mut DatagramResources, state: &mut LoopState, id: u32) {
        let datagram = shared.outgoing.get(id);
        let previous = mem::replace(&mut datagram.state, OutgoingState::Queued);
        let splits = previous == OutgoingState::Split || self.tx.splits_here;
        let Some(size) = datagram.meta.segment_size.filter(|_| splits) else {
            return self.tx.queue.push_front(id);
        };
        let OutgoingDatagram { mut chunk, meta, weight, .. } = shared.outgoing.remove(id);
        self.tx.weight -= weight;
        state.memory.meter.sub(chunk.weight());
        let behind = mem::take(&mut self.tx.queue);
        let meta = SendMeta { segment_size: None, ..meta };
        while chunk.len() > usize::from(size) {
            let first = chunk.split_to(size.into());
            self.queue(shared, state, first, meta.clone());
        }
        self.queue(shared, state, chunk, meta);
        self.tx.queue.extend(behind);
    }

    /// Waits for space after a datagram found none: for an event that reports space or, if there is
    /// no such event, for a timer.
    fn wait_for_space(&mut self, state: &mut LoopState) {
        if mem::take(&mut self.tx.no_space_event) {
            self.wait_to_retry(state);
        } else if !self.tx.awaits_writable {
            self.tx.awaits_writable = true;
            state.start(self.id.token(OpKind::DatagramWritable), Op::WritableOnce { fd: self.fd });
        }
    }

    fn wait_to_retry(&mut self, state: &mut LoopState) {
        if !mem::replace(&mut self.tx.awaits_retry, true) {
            let deadline = state.now() + self.tx.next_retry();
            state.timers.insert(deadline, TimerAction::DatagramRetry(self.id));
        }
    }

    /// Wakes tasks that wait for space or a drain, and lists the slot if datagrams are queued.
    /// Called when sends have ended or there may be space.
    fn resume_send(&mut self, shared: &mut DatagramResources, state: &mut LoopState) {
        let has_space = self.tx.weight <= state.send_bound()
            || self.first_discardable(&mut shared.outgoing).is_some();
        if has_space {
            self.tx.waiters.notify_all(&mut state.deferred.wakes);
        }
        self.list_send(shared);
        if !self.tx.is_idle() {
            if self.dropped {
                self.start_linger(state);
            }
        } else if self.tx.awaits_writable {
            // No queued datagram waits for space any longer.
            state.cancel(self.id.token(OpKind::DatagramWritable));
        }
    }

    /// Queues deferred datagrams again and resumes sending, because there may be space.
    fn retry(&mut self, shared: &mut DatagramResources, state: &mut LoopState) {
        self.tx.requeue_deferred();
        self.resume_send(shared, state);
    }

    /// Gives up on the datagrams that wait for space, because no event will report any.
    #[cold]
    fn fail_waiting(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        errno: Errno,
    ) {
        let tx = &mut self.tx;
        for id in mem::take(if tx.unordered { &mut tx.deferred } else { &mut tx.queue }) {
            let datagram = shared.outgoing.get(id);
            tx.failures.add(SendFailure::of(datagram, errno));
            tx.release(state, datagram);
            shared.outgoing.free(id);
        }
        self.resume_send(shared, state);
    }

    /// Gives up on all unsent datagrams that are not in flight.
    pub(super) fn stop_send(&mut self, shared: &mut DatagramResources, state: &mut LoopState) {
        self.tx.requeue_deferred();
        for id in mem::take(&mut self.tx.queue) {
            self.tx.release(state, shared.outgoing.get(id));
            shared.outgoing.free(id);
        }
        if self.tx.awaits_writable {
            state.cancel(self.id.token(OpKind::DatagramWritable));
        }
    }
}

impl Datagrams {
    /// Submits the datagrams that the listed slots have queued.
    #[inline]
    pub(crate) fn start_sends(&mut self, state: &mut LoopState) {
        self.shared.turn_lists.must_not_sleep = false;
        if state.has_checked_events {
            self.shared.turn_lists.sent_directly = 0;
        }
        if self.shared.turn_lists.has_sends() {
            self.start_batches(state);
        }
    }

    /// Starts a batch of each listed slot. Not inlined, so that a turn without datagrams does not
    /// pay for it.
    #[inline(never)]
    fn start_batches(&mut self, state: &mut LoopState) {
        let mut listed = mem::take(&mut self.shared.turn_lists.sends);
        for slot in listed.drain(..) {
            if let Some(socket) = self.slots.peek(slot)
                && mem::take(&mut socket.tx.listed)
                && socket.tx.may_start()
            {
                socket.start_batch(&mut self.shared, state);
            }
        }
        // No slot was listed in the meantime. Putting the list back keeps its memory.
        self.shared.turn_lists.sends = listed;
    }

    /// Completes the sends that posted no event. Called after all entries were consumed and all
    /// completions were taken. Datagrams that are queued again are sent in the next turn.
    #[inline]
    pub(crate) fn assume_sends_complete(&mut self, state: &mut LoopState) {
        if self.shared.turn_lists.has_unconfirmed_sends() {
            self.settle_batches(state);
        }
        self.shared.turn_lists.must_not_sleep = self.shared.turn_lists.has_sends();
    }

    /// Completes all unconfirmed batches. Not inlined, like [`start_batches`](Self::start_batches).
    #[inline(never)]
    fn settle_batches(&mut self, state: &mut LoopState) {
        while let Some(slot) = self.shared.turn_lists.unconfirmed_sends.pop() {
            let socket = self.slots.get(slot);
            socket.settle_batch(&mut self.shared, state);
            if socket.is_done() {
                self.close(state, slot);
            }
        }
    }

    /// Records the outcome of a send; its batch is completed as a whole later.
    pub(crate) fn on_sent(&mut self, state: &mut LoopState, event: Event) {
        let Some(datagram) = find_or_late(&mut self.shared.outgoing, state, &event) else { return };
        let slot = datagram.slot;
        let socket = self.slots.get(slot);
        datagram.state = match event.result {
            Ok(_) => OutgoingState::Sent,
            Err(errno) => socket.on_refused(datagram, errno),
        };
    }

    /// Continues sending once the socket is writable, or after the poll for it has failed.
    pub(crate) fn on_writable(&mut self, state: &mut LoopState, event: Event) {
        let Some(socket) = find_or_late(&mut self.slots, state, &event) else { return };
        socket.tx.awaits_writable = false;
        state.in_flight -= 1;
        match event.result {
            // The poll would fail again at once.
            Err(Errno::NOMEM) => socket.wait_to_retry(state),
            Err(Errno::NOSPC) => socket.fail_waiting(&mut self.shared, state, Errno::NOSPC),
            _ => socket.retry(&mut self.shared, state),
        }
        if socket.is_done() {
            self.close(state, event.token.slot());
        }
    }

    /// Continues sending when the retry timer expires.
    pub(crate) fn on_retry(&mut self, state: &mut LoopState, id: SlotId) {
        if let Some(socket) = self.slots.find(id)
            && mem::take(&mut socket.tx.awaits_retry)
        {
            socket.retry(&mut self.shared, state);
            if socket.is_done() {
                self.close(state, id.index);
            }
        }
    }
}

impl DatagramSocket {
    /// Returns true if no event reports space at this datagram's destination.
    pub(super) fn has_no_space_event(&self, datagram: &OutgoingDatagram) -> bool {
        self.format.domain == Domain::Unix && !datagram.meta.to.is_empty()
    }

    /// Returns true if there is space for another datagram. May discard deferred datagrams to make
    /// space.
    #[inline]
    pub(super) fn has_space(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
    ) -> bool {
        self.tx.weight <= state.send_bound() || self.make_space(shared, state)
    }

    #[cold]
    fn make_space(&mut self, shared: &mut DatagramResources, state: &mut LoopState) -> bool {
        let bound = state.send_bound();
        while self.tx.weight > bound {
            let Some(at) = self.first_discardable(&mut shared.outgoing) else { return false };
            self.discard_deferred(shared, state, at);
        }
        true
    }

    /// Returns the position of the first deferred datagram that may be discarded.
    pub(super) fn first_discardable(&self, outgoing: &mut Slab<OutgoingDatagram>) -> Option<usize> {
        self.tx.deferred.iter().position(|id| self.has_no_space_event(outgoing.get(*id)))
    }

    fn discard_deferred(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        at: usize,
    ) {
        let Some(id) = self.tx.deferred.remove(at) else { return };
        let datagram = shared.outgoing.get(id);
        self.tx.failures.add(SendFailure::of(datagram, Errno::AGAIN));
        self.tx.release(state, datagram);
        shared.outgoing.free(id);
    }
}
