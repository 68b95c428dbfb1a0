//! Receiving datagrams: a slot has at most one receive in flight, which may return many datagrams.
//! Datagrams are queued until a task takes them.
//!
//! The number of undelivered datagrams is bounded: at the bound the receive is cancelled, and it is
//! armed again once at most half of the bound is left. In the meantime the kernel queues datagrams;
//! when its own queue is full, it drops and counts them. An empty datagram or an error ends a
//! multishot receive, but not the socket. The error is returned once.
#![allow(unsafe_code)]

use super::received::plain_source;
use super::{
    DatagramResources, DatagramSocket, Datagrams, MAX_INET_BYTES, ReceivedMessage, RecvMsgBuf,
};
use crate::bytes::chunk::DeferredDrops;
use crate::bytes::lease::Lease;
use crate::slots::arming::{Arming, SHORTAGE_PAUSE, ends_operation_only};
use crate::slots::find_or_late;
use crate::slots::loop_state::LoopState;
use crate::slots::loop_state::Recheck;
use crate::timers::TimerAction;
use crate::waiters::{Wait, WaiterId, Waiters};
use annulus_driver::{Event, MemoryOp, OpKind, Pool, SlotId};
use annulus_kernel::{Domain, SocketOption};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

/// Number of undelivered datagrams at which the receive is cancelled. One run of a multishot
/// receive returns up to 33, so the bound can be exceeded by that many.
const MAX_QUEUED_DATAGRAMS: usize = 64;

/// A received datagram that has not been parsed yet.
enum RawDatagram {
    Lent {
        id: u16,
        len: u32,
    },
    /// A datagram in heap memory, or one in a pool buffer that is known not to be plain.
    Leased(Box<Lease>),
}

/// The receiving half of a slot.
#[derive(Default)]
pub(super) struct RecvState {
    arming: Arming,
    queue: VecDeque<RawDatagram>,
    /// The remaining datagrams of a coalesced message, or the next message after a peek.
    rest: Option<Box<ReceivedMessage>>,
    /// An error that the next receive returns, once.
    error: Option<Errno>,
    /// Whether a call that does not wait has found nothing since the last receive was armed.
    is_asked: bool,
    /// The buffer of a single receive in flight.
    msg_buf: Option<Box<RecvMsgBuf>>,
    max_datagram: Option<usize>,
    /// The kernel's last count of dropped datagrams, modulo 2^32.
    kernel_drops: u32,
    /// The total number of datagrams that the kernel has dropped.
    drops: u64,
    pub(super) waiters: Waiters,
}

impl RecvState {
    pub(super) fn new(max_datagram: Option<usize>) -> Self {
        Self { max_datagram, ..Self::default() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.arming.is_idle()
    }

    /// Keeps an error that a send got but a receive should return. Returns false, and keeps
    /// nothing, if no task waits to receive. Replaces an error that no receive has returned yet, as
    /// the kernel does.
    pub(super) fn report_error(&mut self, errno: Errno) -> bool {
        let has_waiters = !self.waiters.is_empty();
        if has_waiters {
            self.error = Some(errno);
        }
        has_waiters
    }

    /// Returns a lower bound on the number of results that receives could take now.
    #[inline]
    fn available(&self) -> usize {
        self.queue.len() + usize::from(self.rest.is_some()) + usize::from(self.error.is_some())
    }

    /// Returns true if the slot should receive more even if no task waits.
    #[inline]
    fn wants_more(&self) -> bool {
        self.arming == Arming::Idle
            && self.error.is_none()
            && self.queue.len() <= MAX_QUEUED_DATAGRAMS / 2
    }
}

impl DatagramSocket {
    /// Returns the next message or, with `split`, one of the datagrams that the kernel coalesced.
    ///
    /// # Errors
    /// An error that the kernel reported for this socket. Each error is returned once.
    #[inline]
    pub(crate) fn poll_recv(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        split: bool,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<ReceivedMessage>> {
        let Some(outcome) = self.take_next(shared, state, split) else {
            return self.wait_for_datagram(shared, state, wait, cx);
        };
        self.note_taken(state, wait);
        Poll::Ready(outcome)
    }

    /// Registers the task, which is woken by a datagram or an error, and starts receiving.
    #[inline]
    fn wait_for_datagram<T>(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<T> {
        let DeferredDrops { wakes, drops, .. } = &mut state.deferred;
        self.rx.waiters.wait(wait, cx.waker(), wakes, drops);
        self.list_recv(shared);
        Poll::Pending
    }

    /// Returns `Ready` once [`try_recv`](Self::try_recv) would return a datagram or an error. Then
    /// notifies the next waiter, because nothing has been taken.
    pub(crate) fn poll_readable(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rx.available() > 0 {
            self.note_taken(state, wait);
            return Poll::Ready(Ok(()));
        }
        self.wait_for_datagram(shared, state, wait, cx)
    }

    /// Returns the next datagram, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has been received yet; otherwise see [`poll_recv`](Self::poll_recv).
    pub(crate) fn try_recv(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
    ) -> io::Result<ReceivedMessage> {
        let Some(outcome) = self.take_next(shared, state, true) else {
            self.ask(shared);
            return Err(io::ErrorKind::WouldBlock.into());
        };
        self.note_taken(state, Wait::Polling);
        outcome
    }

    /// Returns the next datagram and its sender, on an internet socket.
    ///
    /// # Errors
    /// See [`poll_recv`](Self::poll_recv). `InvalidData` for a datagram that was cut, or whose
    /// sender has no internet address.
    #[inline]
    pub(crate) fn poll_recv_from(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<(Lease, SocketAddr)>> {
        if let Some(plain) = self.take_plain(shared) {
            self.note_taken(state, wait);
            return Poll::Ready(Ok(plain));
        }
        self.poll_recv(shared, state, true, wait, cx)?.map(ReceivedMessage::into_inet)
    }

    /// Appends the next datagrams and their senders on an internet socket to a list: at least one,
    /// and at most `limit`, which is not 0, of those that have been received. Returns their number.
    ///
    /// # Errors
    /// See [`poll_recv_from`](Self::poll_recv_from), for the first datagram only: a later one whose
    /// receive fails stays for the next call.
    pub(crate) fn poll_recv_many(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        (datagrams, limit): (&mut Vec<(Lease, SocketAddr)>, usize),
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        datagrams.push(ready!(self.poll_recv_from(shared, state, wait, cx))?);
        let mut count = 1;
        while count < limit {
            let next = match self.take_plain(shared) {
                Some(plain) => plain,
                None => match self.next_message(shared, state) {
                    Some(message) if !message.is_cut() && message.inet_source().is_ok() => {
                        let message = self.take_next(shared, state, true);
                        message.expect("the next message was there")?.into_inet()?
                    }
                    _ => break,
                },
            };
            datagrams.push(next);
            count += 1;
        }
        self.notify_receivers(state);
        Poll::Ready(Ok(count))
    }

    /// Copies the beginning of the next datagram, which stays, and returns the number of bytes and
    /// the sender, on an internet socket. `None` if nothing has been received yet.
    ///
    /// # Errors
    /// See [`poll_recv`](Self::poll_recv).
    pub(crate) fn peek(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        memory: &mut [u8],
    ) -> Option<io::Result<(usize, SocketAddr)>> {
        let Some(message) = self.next_message(shared, state) else {
            self.ask(shared);
            let errno = self.rx.error.take()?;
            return Some(Err(self.recv_failed(state, errno)));
        };
        let bytes = message.first_datagram();
        let count = bytes.len().min(memory.len());
        memory[..count].copy_from_slice(&bytes[..count]);
        Some(message.inet_source().map(|source| (count, source)))
    }

    /// Polls like [`peek`](Self::peek). Then notifies the next waiter, because nothing has been
    /// taken.
    pub(crate) fn poll_peek(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        memory: &mut [u8],
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let Some(outcome) = self.peek(shared, state, memory) else {
            return self.wait_for_datagram(shared, state, wait, cx);
        };
        self.note_taken(state, wait);
        Poll::Ready(outcome)
    }

    /// Returns the next message without taking it, or `None` if nothing has been received yet. It
    /// stays parsed, because a buffer must be parsed only once.
    fn next_message(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
    ) -> Option<&ReceivedMessage> {
        if self.rx.rest.is_none() {
            let raw = self.pop(shared)?;
            let message = ReceivedMessage::parse(lease(shared, state, raw, true), self.format);
            self.rx.rest = Some(Box::new(message));
        }
        self.rx.rest.as_deref()
    }

    /// The fast path for nearly all datagrams: returns the next one and its sender if it is
    /// [plain](plain_source) and lies in a pool buffer. `None` does not mean that the queue is
    /// empty.
    #[inline]
    fn take_plain(&mut self, shared: &mut DatagramResources) -> Option<(Lease, SocketAddr)> {
        let Some(&RawDatagram::Lent { id, len }) = self.rx.queue.front() else { return None };
        let pool = shared.pool.as_ref()?;
        if self.rx.rest.is_some() || pool.is_short() {
            return None;
        }
        let mut lease = Lease::lent(pool.clone(), id, len as usize);
        self.pop(shared);
        let Some(source) = plain_source(&lease, self.format.layout) else {
            self.rx.queue.push_front(RawDatagram::Leased(Box::new(lease)));
            return None;
        };
        lease.advance(self.format.layout.payload_at());
        Some((lease, source))
    }

    /// Takes the oldest datagram, and lists the slot for another receive if few are left.
    #[inline]
    fn pop(&mut self, shared: &mut DatagramResources) -> Option<RawDatagram> {
        let raw = self.rx.queue.pop_front()?;
        if self.rx.wants_more() {
            self.list_recv(shared);
        }
        Some(raw)
    }

    /// Removes a receiver that has its result from the wait queue, and notifies the next receiver.
    #[inline]
    fn note_taken(&mut self, state: &mut LoopState, wait: Wait<'_>) {
        if wait.has_waited() {
            self.leave_line(state, wait);
        }
        self.notify_receivers(state);
    }

    #[inline(never)]
    fn leave_line(&mut self, state: &mut LoopState, wait: Wait<'_>) {
        self.rx.waiters.leave(wait, &mut state.deferred.drops);
    }

    /// Removes a dropped receive future from the queue, and notifies the next receiver.
    pub(crate) fn leave_recv(&mut self, state: &mut LoopState, id: &mut Option<WaiterId>) {
        state.deferred.drops.extend(self.rx.waiters.remove(id));
        self.notify_receivers(state);
    }

    /// Notifies as many waiters as there are messages to take.
    #[inline]
    pub(super) fn notify_receivers(&mut self, state: &mut LoopState) {
        if self.rx.waiters.may_notify() {
            self.notify_some_receivers(state);
        }
    }

    #[inline(never)]
    fn notify_some_receivers(&mut self, state: &mut LoopState) {
        let available = self.rx.available();
        if self.rx.waiters.notify(available, &mut state.deferred.wakes) {
            state.rechecks.push(Recheck::Receive(self.id));
        }
    }

    #[inline]
    fn take_next(
        &mut self,
        shared: &mut DatagramResources,
        state: &mut LoopState,
        split: bool,
    ) -> Option<io::Result<ReceivedMessage>> {
        if let Some(rest) = self.rx.rest.take() {
            return Some(Ok(self.keep_rest(rest, split)));
        }
        let Some(raw) = self.pop(shared) else {
            let errno = self.rx.error.take()?;
            return Some(Err(self.recv_failed(state, errno)));
        };
        let mut message = ReceivedMessage::parse(lease(shared, state, raw, true), self.format);
        let first = if split { message.split_first() } else { None };
        match first {
            Some(first) => {
                self.rx.rest = Some(Box::new(message));
                Some(Ok(first))
            }
            None => Some(Ok(message)),
        }
    }

    #[cold]
    fn keep_rest(&mut self, mut rest: Box<ReceivedMessage>, split: bool) -> ReceivedMessage {
        let first = if split { rest.split_first() } else { None };
        match first {
            Some(first) => {
                self.rx.rest = Some(rest);
                first
            }
            None => *rest,
        }
    }

    /// Returns the total number of datagrams that the kernel has dropped because its queue was
    /// full. Unix sockets drop none, because their senders wait.
    ///
    /// # Errors
    /// The kernel's error if it does not report the number.
    pub(crate) fn count_drops(&mut self, state: &mut LoopState) -> io::Result<u64> {
        if self.format.domain == Domain::Unix {
            return Ok(0);
        }
        let drops = state.driver.kernel().option(self.fd, SocketOption::Drops)?;
        let rx = &mut self.rx;
        let new = u64::from(drops.wrapping_sub(mem::replace(&mut rx.kernel_drops, drops)));
        rx.drops += new;
        state.driver.counters().dropped_datagrams += new;
        Ok(rx.drops)
    }

    /// Lists an idle slot for a receive, which is armed even if no task waits.
    fn ask(&mut self, shared: &mut DatagramResources) {
        self.rx.is_asked = true;
        self.list_recv(shared);
    }

    /// Lists an idle slot for a receive.
    #[inline]
    fn list_recv(&mut self, shared: &mut DatagramResources) {
        if self.rx.arming == Arming::Idle && !self.dropped {
            self.rx.arming = Arming::Listed;
            shared.turn_lists.arms.push(self.id.index);
        }
    }

    /// Returns the number of payload bytes that fit into a pool buffer.
    fn pool_space(&self, pool: &Pool) -> usize {
        (pool.buffer_size() as usize).saturating_sub(self.format.layout.payload_at())
    }

    /// Makes receives large enough for datagrams that the kernel has coalesced, from now on: the
    /// kernel may hold such datagrams even after coalescing has been turned off.
    pub(crate) fn expect_coalesced(&mut self, shared: &DatagramResources, state: &mut LoopState) {
        self.rx.max_datagram = Some(MAX_INET_BYTES);
        let fit = shared.pool.as_ref().is_some_and(|pool| self.pool_space(pool) >= MAX_INET_BYTES);
        match self.rx.arming {
            Arming::Multishot if fit => {}
            // The receive in flight has less space.
            Arming::Multishot | Arming::Single => {
                self.stop_recv(state);
                state.driver.start_queued();
            }
            _ => {}
        }
    }

    fn arm(&mut self, pool: &Pool, state: &mut LoopState, has_buffers: bool) {
        let fits = self.pool_space(pool);
        let (fd, format, rx) = (self.fd, self.format, &mut self.rx);
        let wanted = rx.max_datagram.unwrap_or(fits);
        let is_asked = mem::take(&mut rx.is_asked) || !rx.waiters.is_empty();
        let op = if has_buffers && wanted <= fits {
            rx.arming = Arming::Multishot;
            MemoryOp::RecvMessages { fd, header: format.header() }
        } else if !is_asked {
            // No task waits: the next receive lists the slot again.
            rx.arming = Arming::Idle;
            return;
        } else {
            rx.arming = Arming::Single;
            state.driver.counters().heap_receives += 1;
            let header = RecvMsgBuf::put(&mut rx.msg_buf, format, wanted, &state.memory.meter);
            MemoryOp::RecvMessage { fd, header }
        };
        // SAFETY: the format's header is static, the pool's memory outlives the driver, and a
        // `RecvMsgBuf` stays in the slot until the terminal event.
        unsafe { state.start_memory(self.id.token(OpKind::RecvDatagram), op) };
    }

    fn on_recv(&mut self, shared: &mut DatagramResources, state: &mut LoopState, event: Event) {
        let msg_buf = if event.more { None } else { self.rx.msg_buf.take() };
        let stopped = self.rx.arming.on_event(event.more);
        state.in_flight -= usize::from(!event.more);
        match event.result {
            Ok(len) => {
                let heap = |buf: Box<RecvMsgBuf>| buf.into_lease(self.format, len as usize);
                let lent = event.buffer.map(|id| RawDatagram::Lent { id, len });
                let raw = lent.or(msg_buf.map(|buf| RawDatagram::Leased(Box::new(heap(buf)))));
                self.rx.queue.extend(raw);
            }
            Err(Errno::NOMEM) if !stopped => {
                self.rx.arming = Arming::Paused;
                let retry = TimerAction::DatagramRecv(self.id);
                state.timers.insert(state.now() + SHORTAGE_PAUSE, retry);
            }
            Err(errno) if ends_operation_only(errno) => {}
            Err(errno) => self.rx.error = Some(errno),
        }
        if self.dropped {
            return self.discard_received(shared, state);
        }
        self.notify_receivers(state);
        if self.rx.wants_more() {
            self.list_recv(shared);
        } else if self.rx.arming == Arming::Multishot && self.rx.queue.len() >= MAX_QUEUED_DATAGRAMS
        {
            self.stop_recv(state);
        }
    }

    /// Cancels the receive in flight, if any. Its terminal event still arrives.
    pub(super) fn stop_recv(&mut self, state: &mut LoopState) {
        if let Some(kind) = self.rx.arming.stop(OpKind::RecvDatagram, OpKind::RecvDatagram) {
            state.cancel(self.id.token(kind));
        }
    }

    /// Drops received datagrams that nobody will take, and closes their descriptors.
    pub(super) fn discard_received(&mut self, shared: &DatagramResources, state: &mut LoopState) {
        self.rx.rest = None;
        for raw in mem::take(&mut self.rx.queue) {
            drop(ReceivedMessage::parse(lease(shared, state, raw, false), self.format));
        }
    }
}

/// Returns the memory of a datagram. With `kept`, a datagram is copied to the heap if its pool is
/// short of buffers.
#[inline]
fn lease(shared: &DatagramResources, state: &mut LoopState, raw: RawDatagram, kept: bool) -> Lease {
    match raw {
        RawDatagram::Leased(lease) => *lease,
        RawDatagram::Lent { id, len } => {
            let pool = shared.pool.as_ref().expect("a lent datagram has no pool");
            let lease = Lease::lent(pool.clone(), id, len as usize);
            if kept && pool.is_short() { state.copied_out(lease) } else { lease }
        }
    }
}

impl Datagrams {
    pub(crate) fn on_recv(&mut self, state: &mut LoopState, event: Event) {
        let Some(socket) = find_or_late(&mut self.slots, state, &event) else { return };
        socket.on_recv(&mut self.shared, state, event);
        if socket.is_done() {
            self.close(state, event.token.slot());
        }
    }

    /// Lists a receive again after an out-of-memory pause.
    pub(crate) fn on_recv_retry(&mut self, id: SlotId) {
        if let Some(socket) = self.slots.find(id)
            && socket.rx.arming.resume()
        {
            socket.list_recv(&mut self.shared);
        }
    }

    /// Notifies further waiters of datagrams that the notified waiters have not taken.
    pub(crate) fn recheck_receivers(&mut self, state: &mut LoopState, id: SlotId) {
        if let Some(socket) = self.slots.find(id) {
            let available = socket.rx.available();
            socket.rx.waiters.recheck(available);
            socket.notify_receivers(state);
        }
    }

    /// Arms the listed slots. Called after returned buffers have been published.
    #[inline]
    pub(crate) fn arm_recvs(&mut self, state: &mut LoopState) {
        if !self.shared.turn_lists.arms.is_empty() {
            self.arm_listed(state);
        }
    }

    fn arm_listed(&mut self, state: &mut LoopState) {
        // No pool exists before the first socket.
        let Some(pool) = &self.shared.pool else { return };
        let buffers = pool.with_kernel() as usize;
        let is_listed = |socket: &&mut DatagramSocket| socket.rx.arming == Arming::Listed;
        let slots = &mut self.slots;
        let some_left = self.shared.turn_lists.arms.arm(buffers, |slot| {
            let socket = slots.peek(slot).filter(is_listed);
            socket.map(|socket| socket.arm(pool, state, buffers > 0)).is_some()
        });
        if some_left {
            pool.record_shortage();
        }
    }
}
