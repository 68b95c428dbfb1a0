//! Receiving: at most one receive armed a stream, its bytes queued through the buffer table.
//!
//! *Idle* → *wanted* (on the agenda) → *armed* (multishot into lent buffers) or *single* (one-shot) → idle again at the
//! terminal event. If readiness has an operation of its own, a wanted one goes through *asking* first. An armed receive that must
//! stop first goes through *cancelling*: nothing else is armed before its own terminal event, and what that brings is delivered.
//!
//! Undelivered bytes are bounded beforehand: a receive is armed with what the bound leaves, and again once half of it
//! was taken. If the driver cannot limit a multishot receive (io_uring before Linux 6.17), every receive is one-shot: one run of a
//! multishot takes all that the socket holds before a completion of it is seen.
#![allow(unsafe_code)]

mod readiness;

use crate::lease::Lease;
use crate::runtime::after::note_waker;
use crate::runtime::inner::Inner;
use crate::runtime::memory::{HeapMemory, Meter};
use annulus_driver::prefetch;
use annulus_driver::{Event, Kind, MemoryOp, Op, Verbs};
use rustix::io::Errno;
use std::io;
use std::task::{Context, Poll, Waker};

const NONE: u16 = u16::MAX;
/// Receives that may find no buffer before one goes to heap memory, although the kernel is believed to have buffers: others
/// may have taken them first, or hold them while they wait, as reads on Linux 6.1 do.
const MISSES: u8 = 2;
/// Most bytes of a receive into heap memory, which is zeroed first.
const HEAP: u32 = 16 * 1024;
/// Pieces up to this size share a buffer where nobody takes them, so that many of them do not hold one each: bytes.
const PIECE: u32 = 8 * 1024;
/// Of a task's memory, what is asked for ahead of its run: bytes.
const TASK: usize = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Wanted,
    Asking,
    Armed,
    Single,
    Cancelling,
}

/// How a stream ended. Sticky, and behind the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Eof,
    Failed(Errno),
}

/// The receiving half of a stream's slot.
pub(crate) struct Receive {
    state: State,
    end: Option<End>,
    /// There was something to receive when it was last asked.
    is_ready: bool,
    /// Receives in a row that found no buffer and brought nothing.
    misses: u8,
    /// Receives no more: the stream is being moved.
    stopping: bool,
    /// Received and not yet taken: the buffers' queue, and its bytes.
    first: u16,
    last: u16,
    bytes: u32,
    /// Heap memory of a one-shot receive in flight, or what the stream was born with; ahead of the queue.
    heap: Option<Box<Held>>,
    waker: Option<Waker>,
}

/// Heap memory: in flight while `len` is zero, then received.
struct Held {
    memory: Box<HeapMemory>,
    len: u32,
}

impl Default for Receive {
    fn default() -> Self {
        Self {
            state: State::Idle,
            end: None,
            is_ready: false,
            misses: 0,
            stopping: false,
            first: NONE,
            last: NONE,
            bytes: 0,
            heap: None,
            waker: None,
        }
    }
}

impl Receive {
    /// Bytes received earlier, elsewhere: they come first.
    pub(crate) fn with_bytes(bytes: Vec<u8>, meter: &Meter) -> Self {
        let len = bytes.len() as u32;
        let memory = || HeapMemory::new(bytes.into_boxed_slice(), Some(meter));
        let heap = (len > 0).then(|| Box::new(Held { memory: memory(), len }));
        Self { bytes: len, heap, ..Self::default() }
    }

    /// Nothing in flight.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle | State::Wanted)
    }

    /// Bytes received and not yet taken.
    pub(crate) fn undelivered(&self) -> u32 {
        self.bytes
    }

    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    pub(crate) fn is_awaited_by(&self, task: &Waker) -> bool {
        self.waker.as_ref().is_some_and(|waker| waker.will_wake(task))
    }

    #[inline]
    fn wants_more(&self, bound: u32) -> bool {
        self.state == State::Idle && self.end.is_none() && !self.stopping && self.bytes <= bound / 2
    }
}

/// For each buffer of the pool: how much is in it, and which one is next in its stream's queue.
pub(crate) struct Links(Box<[Link]>);

#[derive(Clone, Copy)]
struct Link {
    len: u32,
    next: u16,
}

impl Links {
    pub(crate) fn new(buffers: u32) -> Self {
        Self(vec![Link { len: 0, next: NONE }; buffers as usize].into_boxed_slice())
    }
}

/// Errors that say nothing about the stream: the receive is armed again.
fn ends_the_operation_only(errno: Errno) -> bool {
    matches!(errno, Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN | Errno::NOMEM)
}

impl Inner {
    /// The next bytes of a stream; `None` at its end.
    #[inline]
    pub(crate) fn poll_receive(
        &mut self,
        slot: u32,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Option<Lease>>> {
        if let Some(lease) = self.take_received(slot) {
            return Poll::Ready(Ok(Some(lease)));
        }
        let rx = &mut self.streams.get(slot).rx;
        match rx.end {
            Some(End::Eof) => return Poll::Ready(Ok(None)),
            Some(End::Failed(errno)) => return Poll::Ready(Err(errno.into())),
            None => {}
        }
        note_waker(&mut rx.waker, &mut self.io.after.drops, cx);
        self.want(slot);
        Poll::Pending
    }

    /// Takes what is first in a stream's queue, and has the receive armed again once enough was taken.
    #[inline]
    pub(crate) fn take_received(&mut self, slot: u32) -> Option<Lease> {
        let rx = &mut self.streams.get(slot).rx;
        let lease = if let Some(held) = rx.heap.take_if(|held| held.len > 0) {
            let Held { memory, len } = *held;
            rx.bytes -= len;
            Lease::of_heap(memory, len as usize)
        } else {
            if rx.first == NONE {
                return None;
            }
            let id = rx.first;
            let Link { len, next } = self.links.0[usize::from(id)];
            rx.first = next;
            rx.bytes -= len;
            let pool = self.io.driver.pool();
            let lease = Lease::lent(pool.clone(), id, len as usize);
            if pool.wastes(id, len) { self.io.copied_out(lease) } else { lease }
        };
        if self.streams.get(slot).rx.wants_more(self.io.bounds.receive) {
            self.want(slot);
        }
        Some(lease)
    }

    /// Arms a stream again that was held back, if it is still there and wants more.
    #[cold]
    pub(crate) fn receive_more(&mut self, slot: u32) {
        let bound = self.io.bounds.receive;
        if self.streams.peek(slot).is_some_and(|stream| stream.rx.wants_more(bound)) {
            self.want(slot);
        }
    }

    /// Puts an idle stream on the list of those to arm, unless it holds more than it may.
    #[inline]
    fn want(&mut self, slot: u32) {
        let stream = self.streams.get(slot);
        if stream.rx.state == State::Idle && stream.rx.end.is_none() && !stream.dropped {
            if stream.holds() > self.io.memory.allowance {
                return self.hold_back(slot);
            }
            stream.rx.state = State::Wanted;
            self.agenda.arms.push_back(slot);
        }
    }

    /// Arms what is on the list, first come first served, and no more streams a turn than the kernel has buffers: a
    /// stream that found none goes to the back. Returned buffers have been published already.
    #[inline]
    pub(crate) fn arm_receives(&mut self) {
        if self.agenda.arms.is_empty() {
            return;
        }
        let pool = self.io.driver.pool();
        let buffers = pool.with_kernel() as usize;
        let mut room = if buffers == 0 { usize::MAX } else { buffers };
        let share = pool.share(room.min(self.agenda.arms.len()));
        while room > 0
            && let Some(slot) = self.agenda.arms.pop_front()
        {
            let wanted = |rx: &Receive| rx.state == State::Wanted;
            if self.streams.peek(slot).is_some_and(|stream| !stream.dropped && wanted(&stream.rx)) {
                self.arm(slot, (buffers > 0).then_some(share));
                room -= 1;
            }
        }
        if !self.agenda.arms.is_empty() {
            self.io.driver.pool().starved();
        }
    }

    /// Arms a stream: to take about `share` of the pool's buffers, or into heap memory where the pool has none.
    #[inline]
    fn arm(&mut self, slot: u32, share: Option<u32>) {
        let passing = self.streams.get(slot).passing.is_some();
        let Some(share) = share.filter(|_| !passing) else { return self.arm_on_heap(slot) };
        let most = share.saturating_mul(self.io.driver.pool().buffer_size());
        let token = self.stream_token(Kind::Recv, slot);
        let multishot = self.io.driver.limits_receives();
        let operations = self.io.driver.operations();
        let stream = self.streams.get(slot);
        let free = self.io.memory.allowance.saturating_sub(stream.holds()).max(1);
        let free = u32::try_from(free).unwrap_or(u32::MAX);
        let (fd, rx) = (stream.fd, &mut stream.rx);
        if operations.poll_apart() && !std::mem::take(&mut rx.is_ready) {
            return self.arm_readiness(slot);
        }
        if rx.misses >= MISSES {
            rx.misses = 0;
            return self.arm_on_heap(slot);
        }
        let (state, op) = if multishot && operations.verbs == Verbs::Multishot {
            let limit = most.min(self.io.bounds.receive - rx.bytes).min(free);
            (State::Armed, Op::ReceiveMulti { fd, limit })
        } else {
            (State::Single, Op::ReceiveLent { fd })
        };
        rx.state = state;
        self.io.start(token, op);
    }

    #[cold]
    fn arm_on_heap(&mut self, slot: u32) {
        let token = self.stream_token(Kind::Recv, slot);
        let size = self.io.memory.piece(self.io.driver.pool().buffer_size().min(HEAP));
        let stream = self.streams.get(slot);
        let (fd, rx) = (stream.fd, &mut stream.rx);
        if rx.waker.is_none() {
            // Nobody waits: the next receive will ask again.
            rx.state = State::Idle;
            return;
        }
        if stream.passing.is_some() {
            rx.state = State::Single;
            return self.arm_on_desk(slot);
        }
        let memory = HeapMemory::zeroed(size as usize, &self.io.memory.meter);
        let held = rx.heap.insert(Box::new(Held { memory, len: 0 }));
        rx.state = State::Single;
        let op = MemoryOp::Receive { fd, buffer: held.memory.as_mut_ptr(), len: size };
        self.io.driver.counters().heap_receives += 1;
        // SAFETY: the memory stays in the slot until the terminal event; only `on_receive` and a take after it touch it.
        unsafe { self.io.start_memory(token, op) };
    }

    #[inline]
    pub(crate) fn on_receive(&mut self, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(stream) = self.streams.find(slot, generation) else { return self.io.late(event) };
        let rx = &mut stream.rx;
        let stopped = rx.state == State::Cancelling && !event.more;
        if !event.more {
            rx.state = State::Idle;
            self.io.in_flight -= 1;
        }
        match (event.result, event.buffer) {
            (Ok(len), None) if stream.passing.is_some() => self.take_from_desk(slot, len),
            (Ok(0), buffer) => {
                rx.end = Some(End::Eof);
                buffer.into_iter().for_each(|id| self.io.driver.pool().give_back(id));
            }
            (Ok(len), Some(id)) => {
                rx.misses = 0;
                self.queue(slot, id, len);
            }
            (Ok(len), None) => {
                if let Some(held) = &mut rx.heap {
                    held.len = len;
                    rx.bytes += len;
                }
            }
            (Err(errno), buffer) => {
                buffer.into_iter().for_each(|id| self.io.driver.pool().give_back(id));
                rx.misses = rx.misses.saturating_add(u8::from(errno == Errno::NOBUFS));
                if !ends_the_operation_only(errno) {
                    rx.end = Some(End::Failed(errno));
                }
            }
        }
        if stopped {
            self.stopped_receiving(slot);
        } else {
            self.after_receive(slot, event.more);
        }
    }

    /// A receive that was to stop has ended.
    fn stopped_receiving(&mut self, slot: u32) {
        self.io.after.wakes.extend(self.streams.get(slot).rx.waker.take());
        self.after_receive(slot, false);
    }

    /// A stream that passes descriptors has received once.
    fn take_from_desk(&mut self, slot: u32, len: u32) {
        let bytes = self.clear_desk(slot, len);
        let rx = &mut self.streams.get(slot).rx;
        match bytes {
            None => rx.end = Some(End::Eof),
            Some(lease) => {
                let memory = HeapMemory::new(Box::from(&*lease), Some(&self.io.memory.meter));
                rx.heap = Some(Box::new(Held { memory, len }));
                rx.bytes += len;
            }
        }
    }

    /// Goes on after an event: wakes the reader, arms again, pauses, or closes.
    #[inline]
    fn after_receive(&mut self, slot: u32, more: bool) {
        let bound = self.io.bounds.receive;
        let stream = self.streams.get(slot);
        if stream.dropped {
            if !more {
                self.close_if_done(slot);
            }
            return;
        }
        let rx = &mut stream.rx;
        if !more {
            // Nothing came of a one-shot receive: its memory goes.
            rx.heap.take_if(|held| held.len == 0);
        }
        let again = rx.wants_more(bound);
        let waiting_in_vain = rx.bytes == 0 && rx.end.is_none();
        if !waiting_in_vain {
            let waker = rx.waker.take();
            // The task runs later in this turn.
            waker.iter().for_each(|waker| prefetch(waker.data(), TASK));
            self.io.after.wakes.extend(waker);
        }
        if again {
            self.want(slot);
        } else if self.io.memory.is_tight() {
            self.stop_if_over(slot);
        }
    }

    /// Memory is short: a stream that holds more than it may receives nothing more.
    #[cold]
    fn stop_if_over(&mut self, slot: u32) {
        let stream = self.streams.get(slot);
        if stream.rx.state == State::Armed && stream.holds() > self.io.memory.allowance {
            self.stop_receiving(slot);
        }
    }

    /// Puts a filled buffer at the end of a stream's queue, or a small piece's bytes into the last buffer.
    #[inline]
    fn queue(&mut self, slot: u32, id: u16, len: u32) {
        let stream = self.streams.get(slot);
        let pool = self.io.driver.pool();
        if stream.dropped {
            return pool.give_back(id);
        }
        let rx = &mut stream.rx;
        rx.bytes += len;
        if rx.first == NONE {
            rx.first = id;
        } else {
            let last = &mut self.links.0[usize::from(rx.last)];
            if len <= PIECE && last.len + len <= pool.buffer_size() {
                // SAFETY: both buffers are lent to this slot and distinct; the lengths stay within the buffers' size.
                unsafe {
                    let end = pool.address(rx.last).add(last.len as usize);
                    std::ptr::copy_nonoverlapping(pool.address(id), end, len as usize);
                }
                last.len += len;
                pool.filled(rx.last, last.len);
                return pool.give_back(id);
            }
            last.next = id;
        }
        rx.last = id;
        self.links.0[usize::from(id)] = Link { len, next: NONE };
    }

    /// Ends a receive in flight; its terminal event is still to come. Nothing happens where none is.
    pub(crate) fn stop_receiving(&mut self, slot: u32) {
        let token = self.stream_token(Kind::Recv, slot);
        let rx = &mut self.streams.get(slot).rx;
        match rx.state {
            State::Armed | State::Single => {
                rx.state = State::Cancelling;
                self.io.cancel(token);
            }
            State::Asking => {
                rx.state = State::Cancelling;
                self.io.cancel(self.stream_token(Kind::RecvReady, slot));
            }
            State::Wanted => rx.state = State::Idle,
            State::Idle | State::Cancelling => {}
        }
    }

    /// Ends the receive in flight, for good; ready when its terminal event has come. What it brought stays queued.
    ///
    /// # Errors
    /// What the stream has failed with.
    pub(crate) fn poll_stopped(&mut self, slot: u32, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.stop_receiving(slot);
        let rx = &mut self.streams.get(slot).rx;
        rx.stopping = true;
        match rx.end {
            Some(End::Failed(errno)) => Poll::Ready(Err(errno.into())),
            _ if rx.is_idle() => Poll::Ready(Ok(())),
            _ => {
                note_waker(&mut rx.waker, &mut self.io.after.drops, cx);
                Poll::Pending
            }
        }
    }

    /// Gives back what a stream has received and nobody will take.
    pub(crate) fn discard_received(&mut self, slot: u32) {
        let rx = &mut self.streams.get(slot).rx;
        while rx.first != NONE {
            let id = rx.first;
            rx.first = self.links.0[usize::from(id)].next;
            self.io.driver.pool().give_back(id);
        }
        rx.bytes = 0;
        // Memory in flight goes with the slot.
        rx.heap.take_if(|held| held.len > 0);
    }
}
