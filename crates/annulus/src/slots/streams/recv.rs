//! Receiving: at most one receive is armed on a stream, and the bytes that it brings are queued until they are taken.
//!
//! Undelivered bytes are bounded beforehand: a receive is armed with what the bound leaves, and again once half of it was
//! taken. If the driver cannot limit a multishot receive (io_uring before Linux 6.17), every receive is a single one: one run
//! of a multishot takes all that the socket holds before a completion of it is seen. The states are those of [`Arming`].
#![allow(unsafe_code)]

use super::recv_heap::{HEAP_A_TURN, OnHeap};
use super::{Shared, Stream, Streams, carriers};
use crate::base::budget;
use crate::base::io::Io;
use crate::base::op_error::Operation;
use crate::bytes::after::note_waker;
use crate::bytes::lease::Lease;
use crate::slots::arming::{Arming, SHORT_OF_MEMORY_PAUSE, ends_operation_only};
use crate::slots::find_or_late;
use crate::timers::TimerAction;
use annulus_driver::{Event, Kind, Op, SlotId, prefetch};
use rustix::io::Errno;
use std::io;
use std::task::{Context, Poll, Waker, ready};

/// Receives that may find no buffer before one goes to heap memory, although the kernel is believed to have buffers: others
/// may have taken them first, or hold them while they wait, as reads on Linux 6.1 do.
const MISSES: u8 = 2;
/// Pieces up to this size share a buffer while none is taken, so that many of them do not hold one each: bytes.
const PIECE: u32 = 8 * 1024;
/// The least that a receive is armed for, if all was delivered: bytes.
const LITTLE: usize = 4 * 1024;
/// Bytes of a task's memory that are prefetched ahead of its run.
const TASK: usize = 256;

/// How a stream ended. Sticky, and behind the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Eof,
    Failed(Errno),
}

/// The receiving half of a stream's slot.
#[derive(Default)]
pub(super) struct RecvState {
    pub(super) arming: Arming,
    pub(super) end: Option<End>,
    /// The last poll for readiness has said that there is something to receive.
    pub(super) is_ready: bool,
    pub(super) brought: Brought,
    /// Bytes that the multishot receive was armed to bring.
    pub(super) limit: u32,
    /// Received and not yet taken.
    pub(super) queue: BufferQueue,
    /// Bytes received and not yet taken, in the queue and on the heap.
    pub(super) bytes: u32,
    /// Heap memory of a single receive in flight, or received; ahead of the queue.
    pub(super) heap: Option<Box<OnHeap>>,
    pub(super) waker: Option<Waker>,
}

/// The recent results of the receives: a receive into a lent buffer compares them once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Brought {
    /// Something has come in this period: see `silent`.
    pub(super) is_heard: bool,
    /// Receives in a row that found no buffer and brought nothing.
    pub(super) misses: u8,
}

pub(super) const REGULARLY: Brought = Brought { is_heard: true, misses: 0 };

impl Stream {
    /// The next bytes; `None` at the end of the stream.
    #[inline]
    pub(crate) fn poll_recv(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Option<Lease>>> {
        if let Some(lease) = self.take_received(shared, io) {
            return Poll::Ready(Ok(Some(lease)));
        }
        if let Some(end) = self.rx.end {
            ready!(take_of_budget(io, cx));
            return Poll::Ready(self.end_result(io, end));
        }
        self.wait(shared, io, cx)
    }

    /// Ready once there are bytes, the end or an error.
    pub(crate) fn poll_readable(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rx.bytes > 0 || self.rx.end.is_some() {
            return Poll::Ready(Ok(()));
        }
        self.wait(shared, io, cx)
    }

    /// Has the receive armed for the task that polls.
    #[inline]
    fn wait<T>(&mut self, shared: &mut Shared, io: &mut Io, cx: &Context<'_>) -> Poll<T> {
        note_waker(&mut self.rx.waker, &mut io.after.drops, cx);
        self.ask(shared, io);
        Poll::Pending
    }

    /// Has the receive armed for its reader.
    #[inline]
    fn ask(&mut self, shared: &mut Shared, io: &mut Io) {
        if self.carrier.is_some() {
            carriers::on_ask(self);
        }
        self.list_recv(shared, io);
    }

    /// As [`poll_recv`](Self::poll_recv), with an error if nothing has been received yet. The task that polled stays noted.
    pub(crate) fn try_recv(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
    ) -> io::Result<Option<Lease>> {
        if let Some(lease) = self.take_received(shared, io) {
            return Ok(Some(lease));
        }
        if let Some(end) = self.rx.end {
            return self.end_result(io, end);
        }
        // A receive into heap memory is made only for a task that waits.
        self.rx.waker.get_or_insert_with(|| Waker::noop().clone());
        self.ask(shared, io);
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// The result of a receive from the end on.
    #[cold]
    fn end_result(&self, io: &Io, end: End) -> io::Result<Option<Lease>> {
        match end {
            End::Eof => Ok(None),
            End::Failed(errno) => Err(self.failed(io, Operation::Recv, errno)),
        }
    }

    /// Takes the first bytes of the queue, and has the receive armed again once enough was taken.
    #[inline]
    pub(super) fn take_received(&mut self, shared: &mut Shared, io: &mut Io) -> Option<Lease> {
        let rx = &mut self.rx;
        let lease = if let Some(received) = rx.heap.take_if(|heap| heap.len > 0) {
            let OnHeap { memory, len } = *received;
            rx.bytes -= len;
            Lease::of_heap(memory, len as usize)
        } else {
            let (id, len) = rx.queue.pop(&shared.buffers)?;
            rx.bytes -= len;
            let pool = &shared.pool;
            let lease = Lease::lent(pool.clone(), id, len as usize);
            if pool.wastes(id, len) { io.copied_out(lease) } else { lease }
        };
        self.recv_more(shared, io);
        Some(lease)
    }

    /// Has the receive armed before a task asks for it, once half of the bound was taken.
    #[inline]
    pub(super) fn recv_more(&mut self, shared: &mut Shared, io: &mut Io) {
        if self.rx.arming == Arming::Idle && self.rx.bytes <= io.memory.recv_bound / 2 {
            self.list_recv(shared, io);
        }
    }

    /// Puts an idle stream on the list of those to arm, unless it holds more than it may.
    #[inline]
    pub(super) fn list_recv(&mut self, shared: &mut Shared, io: &mut Io) {
        if self.rx.arming == Arming::Idle && self.rx.end.is_none() && !self.closing {
            if self.is_over(io.memory.allowance) {
                return self.pause_for_memory(shared, io);
            }
            self.rx.arming = Arming::Listed;
            shared.turn.arms.push(self.id.index);
        }
    }

    /// Arms: to take about `share` of the pool's buffers, or into heap memory if the pool has none, of which this turn has `heap` left.
    /// False if it has none left: the stream stays listed.
    #[inline]
    fn arm(&mut self, io: &mut Io, share: Option<u32>, heap: &mut usize) -> bool {
        if self.carrier.is_some()
            && let Some(is_armed) = carriers::arm(self, io, heap)
        {
            return is_armed;
        }
        let has_missed = self.rx.brought.misses >= MISSES;
        let Some(share) = share.filter(|_| !has_missed) else { return self.arm_on_heap(io, heap) };
        let most = share.saturating_mul(io.driver.pool().buffer_size());
        let free = io.memory.allowance.saturating_sub(self.holds()).max(LITTLE);
        let free = u32::try_from(free).unwrap_or(u32::MAX);
        let (fd, rx) = (self.fd, &mut self.rx);
        rx.is_ready = false;
        let (arming, op) = if io.driver.limits_receives() {
            // The bound may have fallen since the stream was listed.
            let bound = io.memory.recv_bound;
            let room = bound.saturating_sub(rx.bytes).max(bound.div_ceil(2));
            let limit = most.min(room).min(free);
            rx.limit = limit;
            (Arming::Multishot, Op::RecvMulti { fd, limit })
        } else {
            (Arming::Single, Op::RecvPooled { fd })
        };
        rx.arming = arming;
        io.start(self.id.token(Kind::Recv), op);
        true
    }

    /// Polls for readiness: the first half of arming, if the receive cannot wait for that by itself.
    pub(super) fn poll_readiness(&mut self, io: &mut Io) {
        self.rx.arming = Arming::Polling;
        io.start(self.id.token(Kind::RecvReady), Op::ReadableOnce { fd: self.fd });
    }

    #[inline]
    fn on_recv(&mut self, shared: &mut Shared, io: &mut Io, event: &Event) {
        let stopped = self.rx.arming.on_event(event.more);
        match (event.result, event.buffer) {
            (Ok(len @ 1..), Some(id)) => {
                if self.rx.brought != REGULARLY {
                    self.heard(shared, io);
                }
                self.queue(shared, id, len);
            }
            (Ok(len @ 1..), None) => {
                if let Some(heap) = &mut self.rx.heap {
                    heap.len = len;
                    self.rx.bytes += len;
                }
            }
            (result, buffer) => {
                buffer.into_iter().for_each(|id| shared.pool.give_back(id));
                self.on_nothing(io, result);
            }
        }
        if !event.more {
            io.in_flight -= 1;
            // Memory that nothing came into.
            self.rx.heap.take_if(|heap| heap.len == 0);
        }
        if stopped {
            // A task may wait for this end.
            io.after.wakes.extend(self.rx.waker.take());
        }
    }

    /// A receive has brought no bytes.
    #[cold]
    fn on_nothing(&mut self, io: &mut Io, result: Result<u32, Errno>) {
        match result {
            Ok(_) => self.rx.end = Some(End::Eof),
            Err(Errno::NOBUFS) => self.rx.brought.misses = self.rx.brought.misses.saturating_add(1),
            Err(Errno::NOMEM) => self.pause_recv(io),
            Err(errno) if ends_operation_only(errno) => {}
            Err(errno) => self.rx.end = Some(End::Failed(errno)),
        }
    }

    /// The system is short of memory: the receive, or the poll before it, is armed again after a moment.
    fn pause_recv(&mut self, io: &mut Io) {
        if self.rx.arming == Arming::Idle {
            self.rx.arming = Arming::Paused;
            io.timers.insert(io.now() + SHORT_OF_MEMORY_PAUSE, TimerAction::Recv(self.id));
        }
    }

    /// Goes on after an event: wakes the reader, and arms again or stops.
    #[inline]
    fn after_recv(&mut self, shared: &mut Shared, io: &mut Io) {
        let rx = &mut self.rx;
        if rx.bytes > 0 || rx.end.is_some() {
            let waker = rx.waker.take();
            // The task runs later in this turn.
            waker.iter().for_each(|waker| prefetch(waker.data(), TASK));
            io.after.wakes.extend(waker);
        }
        self.go_on(shared, io);
    }

    /// Arms again; or stops, if memory is short and the stream holds more than it may.
    #[inline(always)]
    pub(super) fn go_on(&mut self, shared: &mut Shared, io: &mut Io) {
        self.recv_more(shared, io);
        if io.memory.is_tight() {
            self.stop_if_over(io);
        }
    }

    #[cold]
    fn stop_if_over(&mut self, io: &mut Io) {
        if self.rx.arming == Arming::Multishot && self.is_over(io.memory.allowance) {
            self.stop_recv(io);
        }
    }

    /// Puts a filled buffer at the end of the queue, or a small piece's bytes into the last buffer.
    #[inline]
    fn queue(&mut self, shared: &mut Shared, id: u16, len: u32) {
        let pool = &shared.pool;
        if self.dropped {
            return pool.give_back(id);
        }
        let rx = &mut self.rx;
        rx.bytes += len;
        if let Some((last, filled)) = rx.queue.last_mut(&mut shared.buffers)
            && len <= PIECE
            && *filled + len <= pool.buffer_size()
        {
            // SAFETY: both buffers are lent to this slot and distinct; the lengths stay within the buffers' size.
            unsafe {
                let end = pool.address(last).add(*filled as usize);
                std::ptr::copy_nonoverlapping(pool.address(id), end, len as usize);
            }
            *filled += len;
            pool.filled(last, *filled);
            return pool.give_back(id);
        }
        rx.queue.push(&mut shared.buffers, id, len);
    }

    /// Ends a receive in flight; its terminal event is still to come. If none is, nothing happens.
    pub(super) fn stop_recv(&mut self, io: &mut Io) {
        if let Some(kind) = self.rx.arming.stop(Kind::Recv, Kind::RecvReady) {
            io.cancel(self.id.token(kind));
        }
    }

    /// Gives back received bytes that will not be taken.
    pub(super) fn discard_received(&mut self, shared: &Shared) {
        let rx = &mut self.rx;
        while let Some((id, _)) = rx.queue.pop(&shared.buffers) {
            shared.pool.give_back(id);
        }
        rx.bytes = 0;
        // Memory in flight goes with the slot.
        rx.heap.take_if(|heap| heap.len > 0);
    }
}

/// An end is there each time, and takes of the task's budget. Bytes take none, since a turn brings so many at most.
#[cold]
fn take_of_budget(io: &mut Io, cx: &Context<'_>) -> Poll<()> {
    io.poll_budget(cx).map(|()| budget::take())
}

impl Streams {
    /// Arms the listed streams. Returned buffers have been published already.
    #[inline]
    pub(crate) fn arm_recvs(&mut self, io: &mut Io) {
        carriers::resume(self, io);
        let arms = &mut self.shared.turn.arms;
        if arms.is_empty() {
            return;
        }
        let pool = &self.shared.pool;
        let buffers = pool.with_kernel() as usize;
        let share = (buffers > 0).then(|| pool.share(buffers.min(arms.len())));
        let slots = &mut self.slots;
        let is_listed = |stream: &&mut Stream| stream.rx.arming == Arming::Listed;
        let (mut heap, mut later) = (HEAP_A_TURN, Vec::new());
        let some_left = arms.arm(buffers, |slot| {
            let Some(stream) = slots.peek(slot).filter(is_listed) else { return false };
            if !stream.arm(io, share, &mut heap) {
                later.push(slot);
            }
            true
        });
        later.into_iter().for_each(|slot| arms.push(slot));
        if some_left {
            pool.starved();
        }
    }

    #[inline]
    pub(crate) fn on_recv(&mut self, io: &mut Io, event: Event) {
        let slot = event.token.slot();
        let Some(stream) = find_or_late(&mut self.slots, io, &event) else { return };
        stream.on_recv(&mut self.shared, io, &event);
        let stream = if stream.carrier.is_none() {
            stream
        } else if carriers::on_ready(self, io, &event) {
            return;
        } else {
            self.slots.get(slot)
        };
        if stream.dropped {
            self.close_if_done(io, slot);
        } else {
            stream.after_recv(&mut self.shared, io);
        }
    }

    /// There is something to receive; or the poll has failed, and the receive will return the reason.
    pub(crate) fn on_ready(&mut self, io: &mut Io, event: Event) {
        let slot = event.token.slot();
        let Some(stream) = find_or_late(&mut self.slots, io, &event) else { return };
        io.in_flight -= 1;
        let stopped = stream.rx.arming.on_event(false);
        if event.result == Err(Errno::NOMEM) && !stopped && stream.closing_wait.is_none() {
            stream.pause_recv(io);
            return self.close_if_done(io, slot);
        }
        stream.rx.is_ready = true;
        if stream.closing_wait.is_some() {
            io.after.wakes.extend(stream.rx.waker.take());
            return self.close_if_done(io, slot);
        }
        if stopped {
            io.after.wakes.extend(stream.rx.waker.take());
            stream.recv_more(&mut self.shared, io);
        } else if !carriers::on_ready(self, io, &event) {
            self.slots.get(slot).list_recv(&mut self.shared, io);
        }
        self.close_if_done(io, slot);
    }

    /// The pause of a receive for which the system had no memory is over.
    pub(crate) fn on_recv_retry(&mut self, io: &mut Io, id: SlotId) {
        if let Some(stream) = self.slots.find(id)
            && stream.rx.arming.resume()
        {
            stream.list_recv(&mut self.shared, io);
        }
    }

    /// The bounds of streams have been lowered: receives that were armed before may still bring as much as was allowed then, so they are
    /// armed anew. A stream is cancelled for it at most once for each long receive that it has used up, since the next one is short.
    #[cold]
    #[inline(never)]
    pub(crate) fn shorten_receives(&mut self, io: &mut Io) {
        let bound = io.memory.recv_bound;
        let too_long =
            |stream: &&mut Stream| stream.rx.arming == Arming::Multishot && stream.rx.limit > bound;
        self.slots.values().filter(too_long).for_each(|stream| stream.stop_recv(io));
    }
}

/// No buffer.
const NONE: u16 = u16::MAX;

/// Received bytes of one stream in lent buffers, in the order in which they came: the first buffer and the last.
pub(super) struct BufferQueue {
    first: u16,
    last: u16,
}

/// For each buffer of the pool: how much is in it, and which one is next in its stream's queue. They lie in one table, so that the queue of
/// a stream takes four bytes and no allocation.
#[derive(Default)]
pub(super) struct BufferTable(Box<[BufferEntry]>);

#[derive(Clone, Copy)]
struct BufferEntry {
    len: u32,
    next: u16,
}

impl BufferTable {
    pub(super) fn new(buffers: u32) -> Self {
        Self(vec![BufferEntry { len: 0, next: NONE }; buffers as usize].into_boxed_slice())
    }
}

impl Default for BufferQueue {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl BufferQueue {
    /// The last buffer, and how much is in it.
    #[inline]
    pub(super) fn last_mut<'a>(&self, table: &'a mut BufferTable) -> Option<(u16, &'a mut u32)> {
        (self.first != NONE).then(|| (self.last, &mut table.0[usize::from(self.last)].len))
    }

    /// Adds a buffer with `len` bytes at the end.
    #[inline]
    pub(super) fn push(&mut self, table: &mut BufferTable, id: u16, len: u32) {
        if self.first == NONE {
            self.first = id;
        } else {
            table.0[usize::from(self.last)].next = id;
        }
        self.last = id;
        table.0[usize::from(id)] = BufferEntry { len, next: NONE };
    }

    /// How much is in the first buffer.
    pub(super) fn first_len(&self, table: &BufferTable) -> Option<u32> {
        (self.first != NONE).then(|| table.0[usize::from(self.first)].len)
    }

    /// Takes the first buffer, with its length.
    #[inline]
    pub(super) fn pop(&mut self, table: &BufferTable) -> Option<(u16, u32)> {
        let id = self.first;
        if id == NONE {
            return None;
        }
        let BufferEntry { len, next } = table.0[usize::from(id)];
        self.first = next;
        Some((id, len))
    }
}

#[cfg(test)]
mod tests;
