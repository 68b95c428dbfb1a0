//! The epoll driver. It tries each operation with a system call, and waits for an edge that reports
//! readiness.
//!
//! An operation that may wait goes through these states:
//! - *submitted*: recorded with its descriptor, which is registered with epoll, edge-triggered, for
//!   all events (a datagram socket is registered for writability only while a send waits);
//! - *waiting* until an edge arrives; if one has arrived earlier, the descriptor is queued at once;
//! - *tried* when the layer above asks for the next event: it produces an event, or waits
//!   again. A connect is also tried when it is submitted.
//!
//! A `…Now` send never waits: it is tried when it is submitted.
//!
//! A multishot operation runs for up to 32 events before other descriptors are served, as in
//! io_uring. A descriptor has at most one operation in each direction; a second one fails with
//! EBUSY. Listening and connecting sockets must be non-blocking, as the runtime makes them; others
//! may be blocking.
#![allow(unsafe_code)]

mod calls;
mod direct_calls;
mod input;
mod message;
mod output;
mod owned_descriptor;
mod poller;
mod trim_timer;
mod watch;

use crate::driver_state::DriverState;
use crate::event::Event;
use crate::op::{FileStart, MemoryOp, Op, is_early_batch};
use crate::pool::{Pool, PoolSize, ReceiveBudget, Trim};
use crate::slots::{OpKind, Token};
use crate::wait::Wait;
use crate::workers::{FileJob, Workers};
use annulus_kernel::{Fd, IoVec, Kernel, MessageLayout, MsgHeader};
use direct_calls::DirectCalls;
use input::InputOp;
use message::MessageBatch;
use output::{OutputKind, OutputTable};
use poller::{Poller, READ_EVENTS, READ_WRITE_EVENTS};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr;
use std::rc::Rc;
use std::time::Duration;
use trim_timer::TrimTimer;
use watch::Watches;

/// Number of events that one descriptor may produce before the next descriptor is served.
const MAX_EVENTS_PER_DESCRIPTOR: u32 = 32;

/// Bytes after which a turn stops receiving, so that they are used or sent while they are in the
/// cache.
const MAX_RECEIVED_BYTES_PER_TURN: u32 = 256 * 1024;

/// The epoll driver: an epoll instance, the descriptors it watches, and the queue of descriptors to
/// try.
#[repr(C)]
pub struct Epoll {
    pub(crate) common: DriverState,
    poller: Poller,
    watches: Watches,
    outputs: OutputTable,
    /// Descriptors with something to try, oldest first.
    queue: VecDeque<Fd>,
    /// Number of descriptors at the front of `queue` that belong to this turn.
    due: usize,
    /// Number of events that the first due descriptor may still produce before the next one is
    /// served.
    events_left: u32,
    /// Bytes that this turn may still receive, and the bytes that each turn may receive.
    bytes_left: u32,
    max_bytes_per_turn: u32,
    /// Events that are ready, oldest first.
    ready_events: VecDeque<Event>,
    /// Arguments of message receives, kept for reuse.
    batch: Option<Box<MessageBatch>>,
    trim_timer: TrimTimer,
    /// The trim to carry out in this turn.
    trim: Option<Trim>,
    workers: Option<Workers>,
    direct: DirectCalls,
    /// Number of early direct calls that have been queued since the last submission.
    early_calls: u32,
}

impl Epoll {
    /// Creates the epoll instance and reserves receive memory.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the pool size is out of range, or the error of a system call, such
    /// as `EMFILE` or `ENOMEM`.
    pub fn new(kernel: Rc<dyn Kernel>, pool: PoolSize) -> io::Result<Self> {
        let (poller, trim_timer) = (Poller::new(&kernel)?, TrimTimer::new(&kernel)?);
        poller.add_own(trim_timer.fd())?;
        let mut epoll = Self {
            poller,
            watches: Watches::default(),
            outputs: OutputTable::default(),
            queue: VecDeque::with_capacity(64),
            due: 0,
            events_left: MAX_EVENTS_PER_DESCRIPTOR,
            bytes_left: MAX_RECEIVED_BYTES_PER_TURN,
            max_bytes_per_turn: MAX_RECEIVED_BYTES_PER_TURN,
            ready_events: VecDeque::with_capacity(64),
            batch: None,
            trim_timer,
            trim: None,
            workers: None,
            direct: DirectCalls::default(),
            early_calls: 0,
            common: DriverState::new(kernel.clone(), Pool::new(pool, kernel.clone())?),
        };
        if kernel.real_descriptors() {
            // Created now, so that a later file call does not fail because no descriptor is left.
            _ = epoll.workers();
        }
        Ok(epoll)
    }

    #[inline]
    pub(crate) fn submit(&mut self, token: Token, op: Op) {
        self.common.counters.sqes += 1;
        let (fd, input) = match op {
            Op::RecvMulti { fd, limit } => (fd, InputOp::pooled(limit)),
            Op::RecvPooled { fd } => (fd, InputOp::Pooled { left: u64::MAX, multi: false }),
            Op::AcceptMulti { fd } => (fd, InputOp::Accept { multi: true }),
            Op::Accept { fd } => (fd, InputOp::Accept { multi: false }),
            Op::Readable { fd } => (fd, InputOp::Readable { multi: true }),
            Op::ReadableOnce { fd } => (fd, InputOp::Readable { multi: false }),
            Op::WritableOnce { fd } => {
                // SAFETY: waiting for writability refers to no memory.
                return unsafe { self.start_output(token, fd, OutputKind::AwaitWritable, &[]) };
            }
            Op::AcceptNow { fd } => {
                let accepted = self.common.kernel.accept(fd).map(|socket| socket as u32);
                return self.end(token, accepted);
            }
            Op::Nop => return self.end(token, Ok(0)),
            Op::RecvZeroCopy { .. } => return self.end(token, Err(Errno::PROTONOSUPPORT)),
            Op::Cancel { target } => return self.cancel(target),
            Op::Close { fd } => return self.close(fd),
        };
        // SAFETY: none of these inputs refers to memory of the submitter.
        unsafe { self.start_input(token, fd, input) };
    }

    /// # Safety
    /// See [`Driver::submit_memory`](crate::Driver::submit_memory).
    #[inline]
    pub(crate) unsafe fn submit_memory(&mut self, token: Token, op: MemoryOp) {
        self.common.counters.sqes += 1;
        match op {
            MemoryOp::SendNow { fd, buffer, len } => {
                let bytes = IoVec { base: buffer, len: len as usize };
                // SAFETY: the caller guarantees that the memory is valid during the submission.
                let sent = unsafe { self.common.kernel.send(fd, bytes, ptr::null(), 0) };
                self.finish_send_now(token, fd, sent, bytes.len);
            }
            MemoryOp::SendVectorNow { fd, header } => {
                let header = header.cast();
                // SAFETY: the caller keeps header, vectors and bytes valid during the submission.
                let (parts, sent) = unsafe {
                    (calls::parts(header), calls::send_vector(&*self.common.kernel, fd, header))
                };
                self.finish_send_now(token, fd, sent, parts.iter().map(|part| part.len).sum());
            }
            MemoryOp::SendToNow { fd, buffer, len, to, to_len } => {
                let bytes = IoVec { base: buffer, len: len as usize };
                // SAFETY: the caller keeps bytes and address valid during the submission.
                let sent = unsafe { self.common.kernel.send(fd, bytes, to, to_len) };
                self.finish_message_now(token, fd, sent);
            }
            MemoryOp::SendMessageNow { fd, header } => {
                // SAFETY: the caller keeps the header and its memory valid during the submission.
                let sent = unsafe { self.common.kernel.send_message(fd, header.cast()) };
                self.finish_message_now(token, fd, sent);
            }
            MemoryOp::Send { fd, buffer, len } => {
                let bytes = IoVec { base: buffer, len: len as usize };
                // SAFETY: the caller guarantees that the bytes are valid until the terminal event.
                unsafe {
                    self.start_output(token, fd, OutputKind::Send(MsgHeader::EMPTY), &[bytes])
                };
            }
            MemoryOp::SendVector { fd, header } => {
                let header: *const MsgHeader = header.cast();
                // SAFETY: the caller guarantees that header and vectors are valid during the
                // submission, and the bytes and control messages until the terminal event.
                unsafe {
                    let (header, parts) = (header.read(), calls::parts(header));
                    self.start_output(token, fd, OutputKind::Send(header), parts);
                }
            }
            MemoryOp::SendZeroCopy { .. } | MemoryOp::SendVectorZeroCopy { .. } => {
                self.end(token, Err(Errno::OPNOTSUPP));
            }
            MemoryOp::Connect { fd, address, len } => {
                // SAFETY: the caller guarantees that the address is valid until the terminal event.
                unsafe { self.start_output(token, fd, OutputKind::Connect { address, len }, &[]) };
            }
            MemoryOp::Recv { fd, buffer, len } => {
                // SAFETY: the caller gives the memory to the operation until the terminal event.
                unsafe { self.start_input(token, fd, InputOp::Submitter { buffer, len }) };
            }
            MemoryOp::RecvMessages { fd, header } => {
                // SAFETY: the caller keeps the header valid during the submission.
                let header = unsafe { &*header.cast::<MsgHeader>() };
                let layout =
                    MessageLayout { name: header.name_len as usize, control: header.control_len };
                // SAFETY: the operation keeps only the layout, and the buffers belong to the pool.
                unsafe { self.start_input(token, fd, InputOp::Messages { layout }) };
            }
            MemoryOp::RecvMessage { fd, header } => {
                // SAFETY: the caller guarantees that the header and its memory belong to the
                // operation until the terminal event.
                unsafe { self.start_input(token, fd, InputOp::Message { header: header.cast() }) };
            }
        }
    }

    /// Makes a direct call without a thread if possible, and passes other file calls to a worker.
    /// On a simulated kernel, which has one thread, the call is made at once.
    pub(crate) fn submit_job(&mut self, job: FileJob, start: FileStart, in_flight: u32) {
        if !self.common.kernel.real_descriptors() {
            self.common.counters.file_inline += 1;
            let result = job.run_on(&*self.common.kernel);
            return self.ready_events.push_back(job.end(result));
        }
        let job = match (start.group(), &self.workers) {
            (None, Some(workers)) => match self.direct.queue(job, workers.eventfd()) {
                Ok(()) => {
                    self.early_calls += u32::from(start == FileStart::Early);
                    if is_early_batch(self.early_calls, in_flight) {
                        self.start_direct_calls();
                    }
                    return;
                }
                Err(job) => job,
            },
            _ => job,
        };
        self.submit_to_worker(job, start.group());
    }

    fn submit_to_worker(&mut self, job: FileJob, group: Option<u64>) {
        self.common.counters.file_worker += 1;
        let submitted = match self.workers() {
            Ok(workers) => workers.submit(job, group),
            Err(errno) => Err(job.end(Err(errno))),
        };
        self.ready_events.extend(submitted.err());
    }

    /// Submits the queued direct calls.
    fn start_direct_calls(&mut self) {
        self.early_calls = 0;
        let mut refused = Vec::new();
        let started = self.direct.start(|job| refused.push(job));
        self.common.counters.file_direct += started as u64;
        refused.into_iter().for_each(|job| self.submit_to_worker(job, None));
    }

    /// Takes the events of file calls that were made off the loop.
    fn take_file_events(&mut self) {
        if let Some(workers) = &self.workers {
            workers.take_events(&mut self.ready_events);
        }
        let mut refused = Vec::new();
        self.direct.take_events(&mut self.ready_events, |job| refused.push(job));
        refused.into_iter().for_each(|job| self.submit_to_worker(job, None));
    }

    /// Closes a descriptor whose close may hang.
    pub(crate) fn close_isolated(&mut self, group: u64, fd: Fd) {
        if let Ok(workers) = self.workers() {
            workers.close_isolated(group, fd);
        }
    }

    fn workers(&mut self) -> Result<&Workers, Errno> {
        if self.workers.is_none() {
            let workers = Workers::new()?;
            self.poller.add(workers.done_fd(), READ_WRITE_EVENTS)?;
            self.workers = Some(workers);
        }
        Ok(self.workers.as_ref().expect("the workers were created above"))
    }

    #[inline]
    fn finish_send_now(&mut self, token: Token, fd: Fd, sent: Result<usize, Errno>, len: usize) {
        if sent != Ok(len) {
            if let Some(watch) = self.watches.find(fd) {
                watch.writable = false;
            }
            self.end(token, sent.map(|count| count as u32));
        }
    }

    /// Makes an operation wait for the next edge of its descriptor. If an edge arrived earlier, the
    /// descriptor is queued to be tried.
    fn await_edge(&mut self, token: Token, fd: Fd) -> Result<(), Errno> {
        self.watches.set_fd(token, fd);
        let watch = self.watches.get(fd);
        let wants_out = token.kind() != OpKind::RecvDatagram;
        if !watch.registered {
            self.poller.add(fd, if wants_out { READ_WRITE_EVENTS } else { READ_EVENTS })?;
            (watch.registered, watch.has_out_edges) = (true, wants_out);
        } else if wants_out && !watch.has_out_edges {
            self.poller.change(fd, READ_WRITE_EVENTS)?;
            watch.has_out_edges = true;
        } else if self.watches.mark_queued(fd) {
            self.queue.push_back(fd);
        }
        Ok(())
    }

    /// Queues the terminal event of an operation.
    fn end(&mut self, token: Token, result: Result<u32, Errno>) {
        self.ready_events.push_back(Event { token, result, more: false, buffer: None });
    }

    fn cancel(&mut self, target: Token) {
        if target.kind() == OpKind::File {
            // A call that has started cannot be cancelled; it reports its own result.
            if let Some(job) = self.direct.remove_queued(target) {
                self.ready_events.push_back(job.end(Err(Errno::CANCELED)));
            } else if let Some(workers) = &self.workers {
                _ = workers.cancel(target);
            }
        }
        let Some(fd) = self.watches.fd_of(target) else { return };
        let watch = self.watches.get(fd);
        if watch.input.take_if(|(token, _)| *token == target).is_some() {
            self.end(target, Err(Errno::CANCELED));
        } else if let Some(output) = watch.output.map(|index| self.outputs.get(index))
            && output.token == target
        {
            let result = output.end_early(Errno::CANCELED);
            self.end_output(fd);
            self.end(target, result);
        }
    }

    pub(crate) fn close(&mut self, fd: Fd) {
        self.watches.reset(fd);
        self.common.kernel.close(fd);
    }

    /// Stops watching a descriptor that stays open and that other code will use.
    pub(crate) fn release(&mut self, fd: Fd) {
        if self.watches.find(fd).is_some_and(|watch| watch.registered) {
            self.poller.remove(fd);
            self.watches.reset(fd);
        }
    }

    #[inline]
    pub(crate) fn turn(&mut self, wait: Wait) -> io::Result<()> {
        if self.direct.startable() > 0 {
            self.start_direct_calls();
        }
        let urgent = !self.ready_events.is_empty() || !self.queue.is_empty();
        let timeout = match wait {
            Wait::UpTo(timeout) if !urgent => timeout,
            Wait::Until(deadline) if !urgent => {
                Some(deadline.saturating_sub(self.common.kernel.now()))
            }
            Wait::UpTo(_) | Wait::Until(_) | Wait::No => Some(Duration::ZERO),
        };
        if !self.trim_timer.is_running() && self.common.pools().any(|pool| pool.used_since_trim()) {
            self.trim_timer.start(self.common.counters.cqes);
        }
        self.common.counters.enters += 1;
        self.poller.wait(timeout)?;
        let mut files_ended = false;
        for (fd, flags) in self.poller.edges() {
            if self.watches.record_edge(fd, flags) {
                self.queue.push_back(fd);
            } else if fd == self.trim_timer.fd() {
                self.trim = self.trim_timer.expired(self.common.counters.cqes);
            } else if self.workers.as_ref().is_some_and(|workers| workers.done_fd() == fd) {
                files_ended = true;
            }
        }
        if files_ended {
            self.take_file_events();
        }
        if let Some(trim) = self.trim.take() {
            self.common.pools().for_each(|pool| pool.trim(trim, false));
            self.outputs.trim();
            self.common.trimmed = true;
        }
        self.due = self.queue.len();
        self.events_left = MAX_EVENTS_PER_DESCRIPTOR;
        self.bytes_left = self.max_bytes_per_turn;
        Ok(())
    }

    /// Returns a duplicate of the epoll instance, which becomes readable with each edge.
    pub(crate) fn notifier(&self) -> io::Result<OwnedFd> {
        self.poller.duplicate()
    }

    /// Returns true if the last turn found all edges, and nothing that it found is left to do.
    pub(crate) fn is_drained(&self) -> bool {
        self.has_nothing_queued() && self.poller.has_all_edges()
    }

    #[inline]
    pub(crate) fn has_nothing_queued(&self) -> bool {
        self.ready_events.is_empty() && self.queue.is_empty() && self.direct.startable() == 0
    }

    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        loop {
            let event = match self.ready_events.pop_front() {
                Some(event) => event,
                None => self.try_due()?,
            };
            self.common.counters.cqes += 1;
            if event.token.kind() != OpKind::Ignored {
                return Some(event);
            }
            event.buffer.into_iter().for_each(|id| self.pool_of(event.token).give_back(id));
        }
    }

    /// Tries descriptors until one produces an event, or none is due.
    #[inline]
    fn try_due(&mut self) -> Option<Event> {
        while self.due > 0 {
            let fd = self.queue[0];
            if self.events_left > 0
                && self.bytes_left > 0
                && let Some(event) = self.attempt(fd)
            {
                self.events_left -= 1;
                return Some(event);
            }
            self.next_descriptor(fd);
        }
        None
    }

    /// Moves on to the next descriptor. If the turn has no bytes left, the other descriptors stay
    /// queued for the next turn.
    #[inline]
    fn next_descriptor(&mut self, fd: Fd) {
        self.queue.pop_front();
        self.watches.get(fd).queued = false;
        if self.watches.mark_queued(fd) {
            self.queue.push_back(fd);
        }
        self.due = if self.bytes_left > 0 { self.due - 1 } else { 0 };
        self.events_left = MAX_EVENTS_PER_DESCRIPTOR;
    }

    #[inline]
    fn attempt(&mut self, fd: Fd) -> Option<Event> {
        let watch = self.watches.get(fd);
        if watch.can_write()
            && let Some(event) = self.attempt_output(fd)
        {
            return Some(event);
        }
        if self.watches.get(fd).can_read() { self.attempt_input(fd) } else { None }
    }

    /// Returns the tokens of likely events of the descriptors at these `positions` in the
    /// queue.
    #[inline]
    pub(crate) fn upcoming_tokens(&self, positions: Range<u32>) -> impl Iterator<Item = Token> {
        let due = positions.start as usize..self.due.min(positions.end as usize);
        due.filter_map(|position| self.watches.reader(self.queue[position]))
    }

    /// Returns true if nothing that is due in this turn is left. A `…Now` send was already tried
    /// when it was submitted.
    #[inline]
    pub(crate) fn sends_assumed_complete(&self) -> bool {
        self.ready_events.is_empty() && self.due == 0
    }

    pub(crate) fn set_budget(&mut self, budget: ReceiveBudget) {
        self.max_bytes_per_turn = MAX_RECEIVED_BYTES_PER_TURN
            .min(u32::try_from(budget.bytes).unwrap_or(MAX_RECEIVED_BYTES_PER_TURN));
    }

    #[inline]
    pub(crate) fn refill(&mut self) {
        self.common.pools().for_each(|pool| pool.reclaim_returned());
    }

    /// Creates the pool that datagrams are received into, unless it exists.
    pub(crate) fn open_datagram_pool(&mut self, size: PoolSize) -> io::Result<()> {
        if self.common.datagrams.is_none() {
            self.common.datagrams = Some(Pool::of_datagrams(size, self.common.kernel.clone())?);
            self.refill();
        }
        Ok(())
    }
}

impl fmt::Debug for Epoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, due, ready_events, common, .. } = self;
        write!(f, "Epoll({due} due of {queue:?}, {ready_events:?}, {common:?})")
    }
}

#[cfg(test)]
mod tests;
