//! Receiving: each stream has at most one receive armed, and received bytes are queued until a task
//! takes them.
//!
//! The bound on undelivered bytes is applied before bytes arrive: a receive is limited to the room
//! that the bound leaves, and the next one is armed once the unread bytes are at most half of the
//! bound. If the driver cannot limit a multishot receive (io_uring before Linux 6.17), every
//! receive is a single one, because one run of a multishot receive drains the socket before its
//! first completion is seen. For the states, see [`Arming`].
#![allow(unsafe_code)]

use super::{Stream, StreamResources, Streams, carriers};
use crate::bytes::lease::Lease;
use crate::errors::Operation;
use crate::memory::{HeapMemory, Meter};
use crate::slots::arming::{Arming, SHORTAGE_PAUSE, ends_operation_only};
use crate::slots::find_or_late;
use crate::slots::loop_state::LoopState;
use crate::tasks::budget;
use crate::timers::TimerAction;
use crate::waiters::note_waker;
use annulus_driver::{Event, MemoryOp, Op, OpKind, SlotId, prefetch};
use rustix::io::Errno;
use std::io;
use std::task::{Context, Poll, Waker, ready};

/// Number of consecutive receives that may fail for lack of a buffer before the next one goes to
/// heap memory, even if the pool counts buffers with the kernel. Other receives may have taken
/// those buffers, or may hold them while they wait for data (Linux 6.1).
const MAX_BUFFER_MISSES: u8 = 2;
/// Received pieces up to this size, in bytes, are appended to the last queued buffer, so that many
/// small pieces do not hold a buffer each.
const SMALL_PIECE_BYTES: u32 = 8 * 1024;
/// Minimum number of bytes that the memory limit leaves to an armed receive.
const MIN_RECEIVE_BYTES: usize = 4 * 1024;
/// Bytes of a task that are prefetched before it runs.
const PREFETCHED_TASK_BYTES: usize = 256;

/// How the receiving direction ended. It stays set, and tasks get it after all queued bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecvEnd {
    Eof,
    Failed(Errno),
}

/// The receiving half of a stream's slot.
#[derive(Default)]
pub(super) struct RecvState {
    pub(super) arming: Arming,
    pub(super) end: Option<RecvEnd>,
    /// Set by the last readiness poll; cleared when a receive is armed.
    pub(super) is_ready: bool,
    pub(super) last_outcome: RecvOutcome,
    /// Byte limit of the multishot receive; of a zero-copy receive, what is left of it. It is 0 only
    /// until the terminal event of a receive that has reached it.
    pub(super) limit: u32,
    /// Pool buffers with bytes that have not been taken.
    pub(super) queue: BufferQueue,
    /// Bytes received and not yet taken, in the queue and in heap memory.
    pub(super) bytes: u32,
    /// Heap memory of a receive in flight, or received bytes on the heap. They come before the
    /// queue.
    pub(super) heap: Option<Box<HeapReceive>>,
    pub(super) waker: Option<Waker>,
}

/// Recent results of receives, in one value so that a receive into a pool buffer needs one
/// comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecvOutcome {
    /// Whether bytes were received in this period of the check in `silent`.
    pub(super) received_recently: bool,
    /// Number of consecutive receives that failed because there was no buffer.
    pub(super) misses: u8,
    /// Whether bytes are received into memory that the network stack owns.
    pub(super) is_zero_copy: bool,
}

pub(super) const USUAL_OUTCOME: RecvOutcome =
    RecvOutcome { received_recently: true, misses: 0, is_zero_copy: false };

impl Stream {
    /// Returns the next bytes, or `None` at the end of the stream.
    #[inline]
    pub(crate) fn poll_recv(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Option<Lease>>> {
        if let Some(lease) = self.take_received(shared, state) {
            return Poll::Ready(Ok(Some(lease)));
        }
        if let Some(end) = self.rx.end {
            ready!(take_of_budget(state, cx));
            return Poll::Ready(self.end_result(state, end));
        }
        self.wait(shared, state, cx)
    }

    /// Returns `Ready` once there are bytes, EOF or an error.
    pub(crate) fn poll_readable(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rx.bytes > 0 || self.rx.end.is_some() {
            return Poll::Ready(Ok(()));
        }
        self.wait(shared, state, cx)
    }

    /// Registers the task and lists the stream for a receive.
    #[inline]
    fn wait<T>(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        cx: &Context<'_>,
    ) -> Poll<T> {
        note_waker(&mut self.rx.waker, &mut state.deferred.drops, cx);
        self.ask(shared, state);
        Poll::Pending
    }

    /// Ends forwarding to another stream, and lists this stream for a receive.
    #[inline]
    fn ask(&mut self, shared: &mut StreamResources, state: &mut LoopState) {
        if self.carrier.is_some() {
            carriers::on_ask(self);
        }
        self.list_recv(shared, state);
    }

    /// Like [`poll_recv`](Self::poll_recv), but returns `WouldBlock` if nothing has been received
    /// yet. The waker of an earlier poll stays registered.
    pub(crate) fn try_recv(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
    ) -> io::Result<Option<Lease>> {
        if let Some(lease) = self.take_received(shared, state) {
            return Ok(Some(lease));
        }
        if let Some(end) = self.rx.end {
            return self.end_result(state, end);
        }
        // A receive into heap memory starts only if a waker is registered.
        self.rx.waker.get_or_insert_with(|| Waker::noop().clone());
        self.ask(shared, state);
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Returns the result of a receive after the stream has ended.
    #[cold]
    fn end_result(&self, state: &LoopState, end: RecvEnd) -> io::Result<Option<Lease>> {
        match end {
            RecvEnd::Eof => Ok(None),
            RecvEnd::Failed(errno) => Err(self.failed(state, Operation::Recv, errno)),
        }
    }

    /// Takes the first received bytes, and lists the stream for another receive once enough has
    /// been taken.
    #[inline]
    pub(super) fn take_received(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
    ) -> Option<Lease> {
        let rx = &mut self.rx;
        let lease = if let Some(received) = rx.heap.take_if(|heap| heap.len > 0) {
            let HeapReceive { memory, len } = *received;
            rx.bytes -= len;
            Lease::of_heap(memory, len as usize)
        } else {
            let (id, len) = rx.queue.pop(&shared.buffers)?;
            rx.bytes -= len;
            let pool = &shared.pool;
            let lease = Lease::lent(pool.clone(), id, len as usize);
            if pool.should_copy_out(id, len) { state.copied_out(lease) } else { lease }
        };
        self.recv_more(shared, state);
        Some(lease)
    }

    /// Lists the stream for its next receive before a task asks for bytes, unless the unread bytes
    /// exceed half of the receive bound.
    #[inline]
    pub(super) fn recv_more(&mut self, shared: &mut StreamResources, state: &mut LoopState) {
        if self.rx.arming == Arming::Idle && self.rx.bytes <= state.memory.recv_bound / 2 {
            self.list_recv(shared, state);
        }
    }

    /// Lists an idle stream for a receive, or pauses it if it holds more than its allowance.
    #[inline]
    pub(super) fn list_recv(&mut self, shared: &mut StreamResources, state: &mut LoopState) {
        if self.rx.arming == Arming::Idle && self.rx.end.is_none() && !self.closing {
            if self.is_over(state.memory.allowance) {
                return self.pause_for_memory(shared, state);
            }
            self.rx.arming = Arming::Listed;
            shared.turn_lists.arms.push(self.id.index);
        }
    }

    /// Arms a receive into at most `share` pool buffers. Without a share, or after repeated misses,
    /// receives into heap memory. `heap` is the number of heap receives that this turn may still
    /// start. Returns false if a heap receive is due and `heap` is 0; the stream then stays listed.
    #[inline]
    fn arm(&mut self, state: &mut LoopState, share: Option<u32>, heap: &mut usize) -> bool {
        if self.carrier.is_some()
            && let Some(is_armed) = carriers::arm(self, state, heap)
        {
            return is_armed;
        }
        let RecvOutcome { misses, is_zero_copy, .. } = self.rx.last_outcome;
        let has_missed = misses >= MAX_BUFFER_MISSES;
        // A zero-copy receive needs no pool buffers.
        let share = if is_zero_copy { Some(u32::MAX) } else { share };
        let Some(share) = share.filter(|_| !has_missed) else {
            return self.start_heap_receive(state, heap);
        };
        let most = share.saturating_mul(state.driver.pool().buffer_size());
        let free = state.memory.allowance.saturating_sub(self.holds()).max(MIN_RECEIVE_BYTES);
        let free = u32::try_from(free).unwrap_or(u32::MAX);
        let (fd, rx) = (self.fd, &mut self.rx);
        rx.is_ready = false;
        let (arming, op) = if state.driver.supports_receive_limit() {
            // The bound may have fallen since the stream was listed.
            let bound = state.memory.recv_bound;
            let room = bound.saturating_sub(rx.bytes).max(bound.div_ceil(2));
            let limit = most.min(room).min(free);
            rx.limit = limit;
            let op = if is_zero_copy {
                Op::RecvZeroCopy { fd, limit }
            } else {
                Op::RecvMulti { fd, limit }
            };
            (Arming::Multishot, op)
        } else {
            (Arming::Single, Op::RecvPooled { fd })
        };
        rx.arming = arming;
        state.start(self.id.token(OpKind::Recv), op);
        true
    }

    /// Starts a readiness poll, for receives that cannot wait for data themselves.
    pub(super) fn poll_readiness(&mut self, state: &mut LoopState) {
        self.rx.arming = Arming::Polling;
        state.start(self.id.token(OpKind::RecvReady), Op::ReadableOnce { fd: self.fd });
    }

    #[inline]
    fn on_recv(&mut self, shared: &mut StreamResources, state: &mut LoopState, event: &Event) {
        let stopped = self.rx.arming.on_event(event.more);
        match (event.result, event.buffer) {
            (Ok(len @ 1..), Some(id)) => {
                if self.rx.last_outcome == USUAL_OUTCOME || self.note_received(shared, state, len) {
                    self.queue(shared, id, len);
                } else {
                    shared.pool.give_back(id);
                }
            }
            (Ok(len @ 1..), None) => {
                if let Some(heap) = &mut self.rx.heap {
                    heap.len = len;
                    self.rx.bytes += len;
                }
            }
            (result, buffer) => {
                buffer.into_iter().for_each(|id| shared.pool.give_back(id));
                self.on_nothing(state, result);
            }
        }
        if !event.more {
            state.in_flight -= 1;
            // Free memory that received nothing.
            self.rx.heap.take_if(|heap| heap.len == 0);
        }
        if stopped {
            // A task may be waiting for the cancelled receive to end.
            state.deferred.wakes.extend(self.rx.waker.take());
        }
    }

    /// Handles a receive that returned no bytes.
    #[cold]
    fn on_nothing(&mut self, state: &mut LoopState, result: Result<u32, Errno>) {
        let is_zero_copy = self.rx.last_outcome.is_zero_copy;
        match result {
            // A zero-copy receive has reached its limit.
            Ok(_) if is_zero_copy && self.rx.limit == 0 => self.rx.limit = u32::MAX,
            Ok(_) => self.rx.end = Some(self.end_of_bytes()),
            // Only TCP sockets have zero-copy receives.
            Err(Errno::PROTONOSUPPORT) if is_zero_copy => {
                self.rx.last_outcome.is_zero_copy = false;
            }
            // No page was free, or the completion queue was full.
            Err(Errno::NOMEM | Errno::NOSPC)
                if is_zero_copy && state.driver.record_zero_copy_shortage() =>
            {
                self.rx.last_outcome.misses = self.rx.last_outcome.misses.saturating_add(1)
            }
            Err(Errno::NOSPC) if is_zero_copy => {}
            Err(Errno::NOBUFS) => {
                self.rx.last_outcome.misses = self.rx.last_outcome.misses.saturating_add(1)
            }
            Err(Errno::NOMEM) => self.pause_recv(state),
            Err(errno) if ends_operation_only(errno) => {}
            Err(errno) => self.rx.end = Some(RecvEnd::Failed(errno)),
        }
    }

    /// Returns how a stream ended that receives no more bytes. The kernel reports the loss of a
    /// connection once. If a send got that error, a receive gets an end, as if the peer had sent
    /// everything.
    fn end_of_bytes(&self) -> RecvEnd {
        let lost = self.tx.error.filter(|errno| is_lost_connection(*errno));
        lost.map_or(RecvEnd::Eof, RecvEnd::Failed)
    }

    /// Pauses before arming the receive or its readiness poll again, because the system is out of
    /// memory.
    fn pause_recv(&mut self, state: &mut LoopState) {
        if self.rx.arming == Arming::Idle {
            self.rx.arming = Arming::Paused;
            state.timers.insert(state.now() + SHORTAGE_PAUSE, TimerAction::Recv(self.id));
        }
    }

    /// Continues after an event: wakes the reader, then lists the next receive or cancels the
    /// current one.
    #[inline]
    fn after_recv(&mut self, shared: &mut StreamResources, state: &mut LoopState) {
        let rx = &mut self.rx;
        if rx.bytes > 0 || rx.end.is_some() {
            let waker = rx.waker.take();
            // The task will run soon, so its memory is prefetched.
            waker.iter().for_each(|waker| prefetch(waker.data(), PREFETCHED_TASK_BYTES));
            state.deferred.wakes.extend(waker);
        }
        self.go_on(shared, state);
    }

    /// Lists the next receive if one is due. Cancels a multishot receive if memory is short and the
    /// stream holds more than its allowance.
    #[inline(always)]
    pub(super) fn go_on(&mut self, shared: &mut StreamResources, state: &mut LoopState) {
        self.recv_more(shared, state);
        if state.memory.is_tight() {
            self.stop_if_over(state);
        }
    }

    #[cold]
    fn stop_if_over(&mut self, state: &mut LoopState) {
        if self.rx.arming == Arming::Multishot && self.is_over(state.memory.allowance) {
            self.stop_recv(state);
        }
    }

    /// Appends a filled buffer to the queue, or copies a small piece into the last buffer.
    #[inline]
    fn queue(&mut self, shared: &mut StreamResources, id: u16, len: u32) {
        let pool = &shared.pool;
        if self.dropped {
            return pool.give_back(id);
        }
        let rx = &mut self.rx;
        rx.bytes += len;
        if let Some((last, filled)) = rx.queue.last_mut(&mut shared.buffers)
            && len <= SMALL_PIECE_BYTES
            && *filled + len <= pool.room(last)
        {
            // SAFETY: the kernel gave both buffers to this slot, so nothing else uses them. They
            // are distinct, and the lengths stay within their room.
            unsafe {
                let end = pool.address(last).add(*filled as usize);
                std::ptr::copy_nonoverlapping(pool.address(id), end, len as usize);
            }
            *filled += len;
            pool.record_written(last, *filled);
            return pool.give_back(id);
        }
        rx.queue.push(&mut shared.buffers, id, len);
    }

    /// Cancels the receive in flight, if any. Its terminal event still arrives.
    pub(super) fn stop_recv(&mut self, state: &mut LoopState) {
        if let Some(kind) = self.rx.arming.stop(OpKind::Recv, OpKind::RecvReady) {
            state.cancel(self.id.token(kind));
        }
    }

    /// Drops received bytes that nobody will take.
    pub(super) fn discard_received(&mut self, shared: &StreamResources) {
        let rx = &mut self.rx;
        while let Some((id, _)) = rx.queue.pop(&shared.buffers) {
            shared.pool.give_back(id);
        }
        rx.bytes = 0;
        // Memory of a receive in flight stays until its terminal event.
        rx.heap.take_if(|heap| heap.len > 0);
    }
}

/// Returns true for errors of a connection that the peer has not ended: a reset, or a time-out, for
/// which the kernel may report the last ICMP error instead. After the peer's end, a send fails with
/// `EPIPE`.
fn is_lost_connection(errno: Errno) -> bool {
    const LOST: [Errno; 10] = [
        Errno::CONNRESET,
        Errno::CONNABORTED,
        Errno::TIMEDOUT,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::CONNREFUSED,
        Errno::HOSTDOWN,
        Errno::NOPROTOOPT,
        Errno::NONET,
        Errno::PROTO,
    ];
    LOST.contains(&errno)
}

/// Takes task budget for EOF or an error, which are always ready. Received bytes take none, because
/// each turn delivers a bounded number.
#[cold]
fn take_of_budget(state: &mut LoopState, cx: &Context<'_>) -> Poll<()> {
    state.poll_budget(cx).map(|()| budget::take())
}

impl Streams {
    /// Arms the listed streams. Called after returned buffers have been published.
    #[inline]
    pub(crate) fn arm_recvs(&mut self, state: &mut LoopState) {
        carriers::resume(self, state);
        let arms = &mut self.shared.turn_lists.arms;
        if arms.is_empty() {
            return;
        }
        let pool = &self.shared.pool;
        let buffers = pool.with_kernel() as usize;
        let share = (buffers > 0).then(|| pool.buffers_per_stream(buffers.min(arms.len())));
        let slots = &mut self.slots;
        let is_listed = |stream: &&mut Stream| stream.rx.arming == Arming::Listed;
        let (mut heap, mut later) = (MAX_HEAP_RECEIVES_PER_TURN, Vec::new());
        let some_left = arms.arm(buffers, |slot| {
            let Some(stream) = slots.peek(slot).filter(is_listed) else { return false };
            if !stream.arm(state, share, &mut heap) {
                later.push(slot);
            }
            true
        });
        later.into_iter().for_each(|slot| arms.push(slot));
        if some_left {
            pool.record_shortage();
        }
    }

    #[inline]
    pub(crate) fn on_recv(&mut self, state: &mut LoopState, event: Event) {
        let slot = event.token.slot();
        let Some(stream) = find_or_late(&mut self.slots, state, &event) else { return };
        stream.on_recv(&mut self.shared, state, &event);
        let stream = if stream.carrier.is_none() {
            stream
        } else if carriers::on_ready(self, state, &event) {
            return;
        } else {
            self.slots.get(slot)
        };
        if stream.dropped {
            self.close_if_done(state, slot);
        } else {
            stream.after_recv(&mut self.shared, state);
        }
    }

    /// Handles the terminal event of a readiness poll. Most failures count as readiness, because
    /// the receive then returns the reason.
    pub(crate) fn on_ready(&mut self, state: &mut LoopState, event: Event) {
        let slot = event.token.slot();
        let Some(stream) = find_or_late(&mut self.slots, state, &event) else { return };
        state.in_flight -= 1;
        let stopped = stream.rx.arming.on_event(false);
        if event.result == Err(Errno::NOMEM) && !stopped && stream.closing_wait.is_none() {
            stream.pause_recv(state);
            return self.close_if_done(state, slot);
        }
        stream.rx.is_ready = true;
        if stream.closing_wait.is_some() {
            state.deferred.wakes.extend(stream.rx.waker.take());
            return self.close_if_done(state, slot);
        }
        if stopped {
            state.deferred.wakes.extend(stream.rx.waker.take());
            stream.recv_more(&mut self.shared, state);
        } else if !carriers::on_ready(self, state, &event) {
            self.slots.get(slot).list_recv(&mut self.shared, state);
        }
        self.close_if_done(state, slot);
    }

    /// Lists a receive again after an out-of-memory pause.
    pub(crate) fn on_recv_retry(&mut self, state: &mut LoopState, id: SlotId) {
        if let Some(stream) = self.slots.find(id)
            && stream.rx.arming.resume()
        {
            stream.list_recv(&mut self.shared, state);
        }
    }

    /// Cancels multishot receives that were armed with a higher limit, now that the bound has been
    /// lowered. They are armed again with the new bound. Each long receive is cancelled at most
    /// once, because its successor is short.
    #[cold]
    #[inline(never)]
    pub(crate) fn shorten_receives(&mut self, state: &mut LoopState) {
        let bound = state.memory.recv_bound;
        let too_long =
            |stream: &&mut Stream| stream.rx.arming == Arming::Multishot && stream.rx.limit > bound;
        self.slots.values().filter(too_long).for_each(|stream| stream.stop_recv(state));
    }
}

/// Marks the end of a queue.
const NO_BUFFER: u16 = u16::MAX;

/// Received bytes of one stream, as a linked list of pool buffers in order of arrival.
pub(super) struct BufferQueue {
    first: u16,
    last: u16,
}

/// Length and successor of each buffer in the pool. Because all queues share this table, a stream's
/// queue takes four bytes and no allocation.
#[derive(Default)]
pub(super) struct BufferTable(Box<[BufferEntry]>);

#[derive(Clone, Copy)]
struct BufferEntry {
    len: u32,
    next: u16,
}

impl BufferTable {
    pub(super) fn new(buffers: u32) -> Self {
        Self(vec![BufferEntry { len: 0, next: NO_BUFFER }; buffers as usize].into_boxed_slice())
    }
}

impl Default for BufferQueue {
    fn default() -> Self {
        Self { first: NO_BUFFER, last: NO_BUFFER }
    }
}

impl BufferQueue {
    #[inline]
    pub(super) fn last_mut<'a>(&self, table: &'a mut BufferTable) -> Option<(u16, &'a mut u32)> {
        (self.first != NO_BUFFER).then(|| (self.last, &mut table.0[usize::from(self.last)].len))
    }

    #[inline]
    pub(super) fn push(&mut self, table: &mut BufferTable, id: u16, len: u32) {
        if self.first == NO_BUFFER {
            self.first = id;
        } else {
            table.0[usize::from(self.last)].next = id;
        }
        self.last = id;
        table.0[usize::from(id)] = BufferEntry { len, next: NO_BUFFER };
    }

    pub(super) fn first_len(&self, table: &BufferTable) -> Option<u32> {
        (self.first != NO_BUFFER).then(|| table.0[usize::from(self.first)].len)
    }

    #[inline]
    pub(super) fn pop(&mut self, table: &BufferTable) -> Option<(u16, u32)> {
        let id = self.first;
        if id == NO_BUFFER {
            return None;
        }
        let BufferEntry { len, next } = table.0[usize::from(id)];
        self.first = next;
        Some((id, len))
    }
}

/// Maximum bytes per receive into heap memory, which is zeroed first.
const MAX_HEAP_RECEIVE_BYTES: u32 = 16 * 1024;
/// Maximum receives into heap memory that a turn starts. It is less than the number of tasks that a
/// turn runs, so that received bytes are taken before more receives are started. If the pool is too
/// small for the data of thousands of streams, the rest waits in the sockets.
pub(super) const MAX_HEAP_RECEIVES_PER_TURN: usize = 64;

/// Heap memory of a receive, which is in flight while `len` is zero.
pub(super) struct HeapReceive {
    pub(super) memory: Box<HeapMemory>,
    pub(super) len: u32,
}

impl RecvState {
    /// Creates a state with bytes that another runtime has received. Tasks get them first.
    pub(super) fn with_bytes(bytes: Vec<u8>, is_zero_copy: bool, meter: &Meter) -> Self {
        let last_outcome = RecvOutcome { is_zero_copy, ..RecvOutcome::default() };
        let mut rx = Self { last_outcome, limit: u32::MAX, ..Self::default() };
        let len = bytes.len() as u32;
        rx.add_on_heap(HeapMemory::new(bytes.into_boxed_slice(), Some(meter)), len);
        rx
    }

    /// Adds the first `len` bytes of heap memory as received. There must be no other heap memory.
    pub(super) fn add_on_heap(&mut self, memory: Box<HeapMemory>, len: u32) {
        self.heap = (len > 0).then(|| Box::new(HeapReceive { memory, len }));
        self.bytes += len;
    }

    /// Returns true if a task waits. Otherwise sets the state to idle, and the next poll lists the
    /// stream again.
    pub(super) fn idle_unless_awaited(&mut self) -> bool {
        let is_awaited = self.waker.is_some();
        if !is_awaited {
            self.arming = Arming::Idle;
        }
        is_awaited
    }
}

impl Stream {
    /// Receives into heap memory if a task waits and the socket is readable. Memory is allocated
    /// only for bytes that have arrived, because thousands of streams may be waiting. Returns false
    /// if a receive should start but `left` is 0.
    #[cold]
    pub(super) fn start_heap_receive(&mut self, state: &mut LoopState, left: &mut usize) -> bool {
        let rx = &mut self.rx;
        if !rx.idle_unless_awaited() {
            return true;
        }
        if !rx.is_ready {
            self.poll_readiness(state);
            return true;
        }
        if *left == 0 {
            return false;
        }
        *left -= 1;
        (rx.is_ready, rx.last_outcome.misses, rx.arming) = (false, 0, Arming::Single);
        let size =
            state.memory.piece(state.driver.pool().buffer_size().min(MAX_HEAP_RECEIVE_BYTES));
        let memory = HeapMemory::zeroed(size as usize, &state.memory.meter);
        let heap = rx.heap.insert(Box::new(HeapReceive { memory, len: 0 }));
        state.driver.counters().heap_receives += 1;
        let op = MemoryOp::Recv { fd: self.fd, buffer: heap.memory.as_mut_ptr(), len: size };
        // SAFETY: the memory stays in the slot until the terminal event, and nothing else touches
        // it before.
        unsafe { state.start_memory(self.id.token(OpKind::Recv), op) };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_sharing_a_table_keep_their_order() {
        let mut table = BufferTable::new(4);
        let (mut one, mut other) = (BufferQueue::default(), BufferQueue::default());
        assert!(one.pop(&table).is_none() && one.last_mut(&mut table).is_none());
        one.push(&mut table, 2, 20);
        other.push(&mut table, 0, 5);
        one.push(&mut table, 1, 10);
        let (id, len) = one.last_mut(&mut table).unwrap();
        assert_eq!((id, *len), (1, 10));
        *len += 1;
        assert_eq!(
            (one.pop(&table), one.pop(&table), one.pop(&table)),
            (Some((2, 20)), Some((1, 11)), None)
        );
        one.push(&mut table, 2, 7);
        assert_eq!((one.pop(&table), other.pop(&table)), (Some((2, 7)), Some((0, 5))));
    }
}
