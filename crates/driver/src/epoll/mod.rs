//! The epoll driver: the same operations, each tried by a plain system call and parked until an edge says try again.
//!
//! The life of an operation that may wait: *submitted*, it is noted with its descriptor, which is registered with epoll
//! once, edge-triggered, for everything → *parked*, until an edge comes or one is remembered → *tried*, when the layer
//! above asks for the next event → an event, or parked again. A `…Now` send never waits: it happens as it is submitted.
//!
//! Where the kernel would run a multishot operation for up to 32 rounds before others get their turn, so does this
//! driver. A descriptor has at most one operation a direction; a second one is refused as busy. Sockets that listen or
//! connect must be non-blocking, as this runtime makes them; all others may be either.
#![allow(unsafe_code)]

mod calls;
mod input;
mod message;
mod output;
mod poller;
mod timer;
mod watch;

use crate::counters::Counters;
use crate::driver::Wait;
use crate::event::Event;
use crate::op::{MemoryOp, Op};
use crate::pool::{Budget, Pool, PoolSize, Trim};
use crate::token::{Kind, Token};
use crate::workers::Workers;
use annulus_kernel::file::FileCall;
use annulus_kernel::{Fd, IoVec, Kernel, named};
use input::Input;
use message::Batch;
use output::Outputs;
use poller::{ARRIVALS, EVERYTHING, Poller};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use timer::Alarm;
use watch::Watches;

/// Events one descriptor may bring in a turn before it goes to the back.
const ROUNDS: u32 = 32;

/// Bytes that a turn receives before it ends, more or less: what is received is sent, or used, while it is in the cache.
const BUDGET: u32 = 256 * 1024;

/// An epoll instance, what is watched, and what is to be tried.
pub struct Epoll {
    poller: Poller,
    watches: Watches,
    outputs: Outputs,
    /// Descriptors with something to try, oldest first.
    work: VecDeque<Fd>,
    /// Of these, how many are for this turn.
    due: usize,
    /// Events that the first of them may still bring in this turn.
    rounds: u32,
    /// Bytes that may still be received in this turn, and in each.
    budget: u32,
    full_budget: u32,
    /// Events that are known already, oldest first.
    done: VecDeque<Event>,
    pool: Rc<Pool>,
    /// From the first datagram socket on.
    packets: Option<Rc<Pool>>,
    /// Used again for each receive of messages.
    batch: Option<Box<Batch>>,
    kernel: Rc<dyn Kernel>,
    counters: Counters,
    alarm: Alarm,
    /// What is to go back.
    trim: Option<Trim>,
    /// Memory went back, which the layer above has not asked about yet.
    pub(crate) trimmed: bool,
    workers: Option<Workers>,
}

impl Epoll {
    /// Makes the epoll instance and reserves receive memory.
    ///
    /// # Errors
    /// `Unsupported` for a simulated kernel, whose descriptors mean nothing to epoll; `InvalidInput` for a pool size out of range;
    /// `EMFILE`, `ENOMEM`, … of the system.
    pub fn new(kernel: Rc<dyn Kernel>, pool: PoolSize) -> io::Result<Self> {
        if !kernel.real_descriptors() {
            let text = "a simulated kernel has no epoll; use the io_uring driver";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let (poller, alarm) = (Poller::new()?, Alarm::new()?);
        poller.add(alarm.timer.fd(), EVERYTHING).map_err(named("epoll_ctl"))?;
        Ok(Self {
            poller,
            watches: Watches::default(),
            outputs: Outputs::default(),
            work: VecDeque::with_capacity(64),
            due: 0,
            rounds: ROUNDS,
            budget: BUDGET,
            full_budget: BUDGET,
            done: VecDeque::with_capacity(64),
            pool: Pool::new(pool, kernel.clone())?,
            packets: None,
            batch: None,
            kernel,
            counters: Counters::default(),
            alarm,
            trim: None,
            trimmed: false,
            workers: None,
        })
    }

    #[inline]
    pub(crate) fn submit(&mut self, token: Token, op: Op) {
        self.counters.sqes += 1;
        let (fd, input) = match op {
            Op::ReceiveMulti { fd, limit } => (fd, Input::lent(limit)),
            Op::ReceiveLent { fd } => (fd, Input::Lent { left: u64::MAX, multi: false }),
            Op::AcceptMulti { fd } => (fd, Input::Accept { multi: true }),
            Op::Accept { fd } => (fd, Input::Accept { multi: false }),
            Op::Readable { fd } => (fd, Input::Readable { multi: true }),
            Op::ReadableOnce { fd } => (fd, Input::Readable { multi: false }),
            Op::WritableOnce { fd } => return self.await_room(token, fd),
            Op::Nop => return self.end(token, Ok(0)),
            Op::Cancel { target } if target.kind() == Kind::File => {
                return self.cancel_file(target);
            }
            Op::Cancel { target } => return self.cancel(target),
            Op::Close { fd } => return self.close(fd),
        };
        self.start_input(token, fd, input);
    }

    /// # Safety
    /// See [`Driver::submit_memory`](crate::Driver::submit_memory).
    #[inline]
    pub(crate) unsafe fn submit_memory(&mut self, token: Token, op: MemoryOp) {
        self.counters.sqes += 1;
        match op {
            MemoryOp::SendNow { fd, buffer, len } => {
                let len = len as usize;
                // SAFETY: the caller's promise, passed on.
                let sent = unsafe { calls::send(fd, IoVec { base: buffer, len }) };
                self.sent_now(token, fd, sent, len);
            }
            MemoryOp::SendVectorNow { fd, header } => {
                // SAFETY: the caller's promise: header and vectors live through the submission.
                let parts = unsafe { calls::parts(header) };
                // SAFETY: the caller's promise, passed on.
                let sent = unsafe { message::send_vector(fd, header, parts) };
                self.sent_now(token, fd, sent, parts.iter().map(|part| part.len).sum());
            }
            MemoryOp::SendMessageNow { fd, header } => {
                // SAFETY: the caller's promise, passed on.
                unsafe { self.send_message_now(token, fd, header) }
            }
            // SAFETY: the caller's promise, passed on.
            _ => unsafe { self.submit_slowly(token, op) },
        }
    }

    /// # Safety
    /// See [`Driver::submit_memory`](crate::Driver::submit_memory).
    unsafe fn submit_slowly(&mut self, token: Token, op: MemoryOp) {
        match op {
            MemoryOp::Connect { fd, .. }
            | MemoryOp::Send { fd, .. }
            | MemoryOp::SendVector { fd, .. } => {
                // SAFETY: the caller's promise, passed on.
                unsafe { self.start_output(token, fd, op) };
            }
            MemoryOp::Receive { fd, buffer, len } => {
                self.start_input(token, fd, Input::Own { buffer, len });
            }
            MemoryOp::ReceiveMessages { fd, header } => {
                // SAFETY: the caller's promise: a header lives through the submission.
                let layout = unsafe { message::layout(header) };
                self.start_input(token, fd, Input::Messages { layout });
            }
            MemoryOp::ReceiveMessage { fd, header } => {
                self.start_input(token, fd, Input::Message { header });
            }
            // SAFETY: as above.
            MemoryOp::File { call, .. } => unsafe { self.submit_file(token, call) },
            MemoryOp::SendNow { .. }
            | MemoryOp::SendVectorNow { .. }
            | MemoryOp::SendMessageNow { .. } => unreachable!("sent as submitted"),
            MemoryOp::SendMessage { .. } => unreachable!("messages go quietly here"),
            MemoryOp::Lend { .. } | MemoryOp::LendVector { .. } => {
                unreachable!("epoll is not set up for it")
            }
        }
    }

    /// A worker makes the call.
    ///
    /// # Safety
    /// See [`Driver::submit_memory`](crate::Driver::submit_memory).
    unsafe fn submit_file(&mut self, token: Token, call: *const FileCall) {
        // SAFETY: the caller's promise: the call is valid until its terminal event.
        let call = unsafe { *call };
        // SAFETY: the caller's promise, passed on.
        let submitted = self.workers().and_then(|workers| unsafe { workers.submit(token, call) });
        self.counters.file_worker += 1;
        if let Err(errno) = submitted {
            self.end(token, Err(errno));
        }
    }

    fn workers(&mut self) -> Result<&Workers, Errno> {
        if self.workers.is_none() {
            let workers = Workers::new()?;
            self.poller.add(workers.bell(), EVERYTHING)?;
            self.workers = Some(workers);
        }
        Ok(self.workers.as_ref().expect("made above"))
    }

    fn cancel_file(&mut self, target: Token) {
        // A call that has begun ends by itself.
        _ = self.workers.as_ref().is_some_and(|workers| workers.cancel(target));
    }

    #[inline]
    fn sent_now(&mut self, token: Token, fd: Fd, sent: Result<usize, Errno>, len: usize) {
        if sent != Ok(len) {
            if let Some(watch) = self.watches.find(fd) {
                watch.writable = false;
            }
            self.end(token, sent.map(|count| count as u32));
        }
    }

    /// Lets an operation wait for its descriptor, or sees to it that it is tried where an edge came before it.
    fn park(&mut self, token: Token, fd: Fd) -> Result<(), Errno> {
        self.watches.settle(token, fd);
        let watch = self.watches.known(fd);
        let wants_room = token.kind() != Kind::Packet;
        if !watch.registered {
            self.poller.add(fd, if wants_room { EVERYTHING } else { ARRIVALS })?;
            (watch.registered, watch.hears_of_room) = (true, wants_room);
        } else if wants_room && !watch.hears_of_room {
            self.poller.change(fd, EVERYTHING)?;
            watch.hears_of_room = true;
        } else if self.watches.enlist(fd) {
            self.work.push_back(fd);
        }
        Ok(())
    }

    /// Ends an operation outside the work.
    fn end(&mut self, token: Token, result: Result<u32, Errno>) {
        self.done.push_back(Event { token, result, more: false, buffer: None });
    }

    fn cancel(&mut self, target: Token) {
        let Some(fd) = self.watches.home(target) else { return };
        let watch = self.watches.known(fd);
        if let Some((_, input)) = watch.input.take_if(|(token, _)| *token == target) {
            if matches!(input, Input::Readable { multi: true }) {
                // Its owner may close it behind our back from here on.
                self.release(fd);
            }
            self.end(target, Err(Errno::CANCELED));
        } else if let Some(output) = watch.output.map(|place| self.outputs.get(place))
            && output.token == target
        {
            let result = output.given_up(Errno::CANCELED);
            self.end_output(fd);
            self.end(target, result);
        }
    }

    pub(crate) fn close(&mut self, fd: Fd) {
        self.watches.forget(fd);
        self.kernel.close(fd);
    }

    /// The descriptor goes elsewhere, open.
    pub(crate) fn release(&mut self, fd: Fd) {
        if self.watches.find(fd).is_some_and(|watch| watch.registered) {
            self.poller.remove(fd);
            self.watches.forget(fd);
        }
    }

    #[inline]
    pub(crate) fn turn(&mut self, wait: Wait) -> io::Result<()> {
        let urgent = !self.done.is_empty() || !self.work.is_empty();
        let timeout = match wait {
            Wait::Upto(timeout) if !urgent => timeout,
            Wait::Upto(_) | Wait::No => Some(Duration::ZERO),
        };
        if !self.alarm.is_set() && self.pools().any(|pool| pool.touched()) {
            self.alarm.set(self.counters.cqes);
        }
        self.counters.enters += 1;
        self.poller.wait(timeout)?;
        for (fd, flags) in self.poller.edges() {
            if self.watches.note(fd, flags) {
                self.work.push_back(fd);
            } else if fd == self.alarm.timer.fd() {
                self.trim = self.alarm.goes_off(self.counters.cqes);
            } else if let Some(workers) = self.workers.as_ref().filter(|w| w.bell() == fd) {
                workers.collect(&mut self.done);
            }
        }
        if let Some(trim) = self.trim.take() {
            self.pools().for_each(|pool| pool.trim(trim, false));
            self.outputs.trim();
            self.trimmed = true;
        }
        self.due = self.work.len();
        self.rounds = ROUNDS;
        self.budget = self.full_budget;
        Ok(())
    }

    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        loop {
            let event = match self.done.pop_front() {
                Some(event) => event,
                None => self.work()?,
            };
            self.counters.cqes += 1;
            if event.token.kind() != Kind::Ignored {
                return Some(event);
            }
            event.buffer.into_iter().for_each(|id| self.pool_of(event.token).give_back(id));
        }
    }

    /// Tries what is due until something comes of it.
    #[inline]
    fn work(&mut self) -> Option<Event> {
        while self.due > 0 {
            let fd = self.work[0];
            if self.rounds > 0
                && self.budget > 0
                && let Some(event) = self.attempt(fd)
            {
                self.rounds -= 1;
                return Some(event);
            }
            self.next_descriptor(fd);
        }
        None
    }

    /// The first descriptor has nothing to try any more, or has had its share of this turn. Where the turn has had its
    /// own, the others keep their places for the next one.
    #[inline]
    fn next_descriptor(&mut self, fd: Fd) {
        self.work.pop_front();
        self.watches.known(fd).queued = false;
        if self.watches.enlist(fd) {
            self.work.push_back(fd);
        }
        self.due = if self.budget > 0 { self.due - 1 } else { 0 };
        self.rounds = ROUNDS;
    }

    #[inline]
    fn attempt(&mut self, fd: Fd) -> Option<Event> {
        let watch = self.watches.known(fd);
        if watch.can_write()
            && let Some(event) = self.attempt_output(fd)
        {
            return Some(event);
        }
        if self.watches.known(fd).can_read() { self.attempt_input(fd) } else { None }
    }

    /// Of whom an event may come, `ahead` descriptors further on.
    #[inline]
    pub(crate) fn upcoming(&self, ahead: u32) -> Option<Token> {
        let ahead = ahead as usize;
        if ahead < self.due { self.watches.reader(self.work[ahead]) } else { None }
    }

    /// True where nothing is left of what the last turn brought. A `…Now` send has happened as it was submitted.
    #[inline]
    pub(crate) fn settled(&self) -> bool {
        self.done.is_empty() && self.due == 0
    }

    pub(crate) fn set_budget(&mut self, budget: Budget) {
        self.full_budget = BUDGET.min(u32::try_from(budget.bytes).unwrap_or(BUDGET));
    }

    #[inline]
    pub(crate) fn refill(&mut self) {
        self.pools().for_each(|pool| pool.restock());
    }

    #[inline]
    fn pools(&self) -> impl Iterator<Item = &Rc<Pool>> {
        std::iter::once(&self.pool).chain(&self.packets)
    }

    /// Makes the pool that datagrams are received into, unless it is there already.
    pub(crate) fn open_packets(&mut self, size: PoolSize) -> io::Result<()> {
        if self.packets.is_none() {
            self.packets = Some(Pool::of_datagrams(size, self.kernel.clone())?);
            self.refill();
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn packets(&self) -> Option<&Rc<Pool>> {
        self.packets.as_ref()
    }

    #[inline]
    pub(crate) fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    #[inline]
    pub(crate) fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    #[inline]
    pub(crate) fn kernel(&self) -> &Rc<dyn Kernel> {
        &self.kernel
    }
}

impl fmt::Debug for Epoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoll")
            .field("work", &self.work)
            .field("due", &self.due)
            .field("done", &self.done)
            .field("pool", &self.pool)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
