//! The io_uring driver.
#![allow(unsafe_code)]

mod encode;
mod files;
mod lending;
mod look;
mod operations;
mod quiet;
mod registered;

use crate::counters::Counters;
use crate::driver::Wait;
use crate::event::Event;
use crate::op::{MemoryOp, Op};
use crate::operations::{Operations, Verbs};
use crate::pool::{Pool, PoolSize, Trim};
use crate::token::{Kind, Token};
use annulus_kernel::{Kernel, Linux};
use annulus_ring::{
    Completion, Entered, Entry, Features, Ring, SafeEntry, SetupError, SetupFlags, SqPoll,
};
use encode::Encoder;
use files::Files;
use lending::{Lending, PACKETS, STREAMS};
use look::Look;
use operations::{Offered, in_use};
use quiet::Alarm;
use registered::Registered;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// A kernel that has this (6.12) lets writes to sockets be told not to wait (6.4), which nothing else tells.
const WRITES_NOW: &str = "minimum wait";

/// How to set the driver up.
#[derive(Clone)]
pub struct UringConfig {
    /// The kernel to stand on.
    pub kernel: Rc<dyn Kernel>,
    /// Submission entries.
    pub entries: u32,
    /// Completion entries.
    pub completions: u32,
    /// Receive memory.
    pub pool: PoolSize,
    /// Set-up flags to do without, as an older kernel would.
    pub without: SetupFlags,
    /// What carries the bytes of streams.
    pub operations: Operations,
    /// Whether the `Lend…` operations will be asked for (6.1).
    pub zero_copy: bool,
    /// A kernel thread that takes the submissions.
    pub sq_poll: Option<SqPoll>,
    /// How long to look for work before each sleep, where that pays; zero is not at all.
    pub busy_poll: Duration,
    /// Leave the ring with the operations in use, and no other.
    pub restricted: bool,
}

impl Default for UringConfig {
    fn default() -> Self {
        Self {
            kernel: Rc::new(Linux),
            entries: 256,
            completions: 4096,
            pool: PoolSize::default(),
            without: SetupFlags::empty(),
            operations: Operations::default(),
            zero_copy: false,
            sq_poll: None,
            busy_poll: Duration::ZERO,
            restricted: false,
        }
    }
}

impl UringConfig {
    fn ring(&self) -> Result<Ring, SetupError> {
        let builder = Ring::builder()
            .kernel(self.kernel.clone())
            .entries(self.entries)
            .completions(self.completions)
            .sq_poll(self.sq_poll)
            .without(self.without);
        let needed = in_use(self.operations, self.zero_copy);
        if self.restricted { builder.only(&needed) } else { builder }.build()
    }
}

/// A ring, its buffer rings, and what waits to get in.
#[derive(Debug)]
pub struct Uring {
    ring: Ring,
    streams: Lending,
    /// From the first datagram socket on.
    packets: Option<Lending>,
    /// Entries that found the submission queue full, oldest first.
    backlog: VecDeque<Entry>,
    /// The last turn left nothing behind.
    all_taken: bool,
    alarm: Alarm,
    look: Look,
    /// What is to go back when every completion has been taken.
    trim: Option<Trim>,
    /// Memory went back, which the layer above has not asked about yet.
    pub(crate) trimmed: bool,
    features: Features,
    encoder: Encoder,
    sends_quietly: bool,
    limits_receives: bool,
    offered: Offered,
    files: Files,
    registered: Registered,
    /// Calls that a device should begin soon, queued since the last enter.
    soon: u32,
    counters: Counters,
}

/// Whether the kernel has what is asked of it.
fn check(features: &Features, verbs: Verbs, zero_copy: bool) -> Result<(), SetupError> {
    let needs = [
        (zero_copy, "zero-copy send"),
        (zero_copy, "zero-copy sendmsg"),
        (verbs == Verbs::Multishot, "multishot receive"),
        (true, "multishot accept"),
    ];
    let lacking = needs.into_iter().find(|(wanted, needed)| *wanted && !features.has(needed));
    lacking.map_or(Ok(()), |(_, needed)| Err(SetupError::Lacks(needed)))
}

impl Uring {
    /// Sets ring and pool up on this thread.
    ///
    /// # Errors
    /// [`SetupError`], which says the likely cause and the way out.
    pub fn new(config: UringConfig) -> Result<Self, SetupError> {
        let mut ring = config.ring()?;
        let features = Features::of(&mut ring)?;
        let probe = ring.probe().map_err(|e| SetupError::Step("probing the operations", e))?;
        // The others are features, and named as such.
        let offered = Offered::of(&probe, &in_use(config.operations, false))?;
        check(&features, config.operations.verbs, config.zero_copy)?;
        // With a thread that polls, nobody knows when silence means success.
        let sends_quietly = config.sq_poll.is_none()
            && (!config.operations.verbs.are_of_files() || features.has(WRITES_NOW));
        let streams = Lending::new(&ring, STREAMS, config.pool, config.kernel)?;
        let limits_receives = features.has("receive limit");
        Ok(Self {
            ring,
            streams,
            packets: None,
            backlog: VecDeque::new(),
            all_taken: true,
            alarm: Alarm::default(),
            look: Look::new(config.busy_poll),
            trim: None,
            trimmed: false,
            sends_quietly,
            encoder: Encoder {
                operations: config.operations,
                reports_copies: features.has("zero-copy report"),
            },
            features,
            limits_receives,
            offered,
            files: Files::new(probe, config.restricted),
            registered: Registered::default(),
            soon: 0,
            counters: Counters::default(),
        })
    }

    /// What the kernel under the ring offers.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The flags the ring was set up with.
    pub fn setup_flags(&self) -> SetupFlags {
        self.ring.setup_flags()
    }

    #[inline]
    pub(crate) fn submit(&mut self, token: Token, op: Op) {
        match op {
            Op::Close { fd } if !self.offered.close => return self.kernel().close(fd),
            Op::Cancel { target } if target.kind() == Kind::File && self.files.cancel(target) => {
                return;
            }
            _ => {}
        }
        self.push(self.encoder.entry(token, op));
    }

    /// # Safety
    /// See [`Driver::submit_memory`](crate::Driver::submit_memory).
    #[inline]
    pub(crate) unsafe fn submit_memory(&mut self, token: Token, op: MemoryOp) {
        if let MemoryOp::File { call, soon } = op {
            // SAFETY: the caller's promise, passed on.
            return unsafe { self.submit_file(token, call, soon) };
        }
        // SAFETY: the caller's promise: a header is live.
        let entry = unsafe { self.encoder.memory_entry(token, op) };
        // SAFETY: the caller's promise, passed on.
        unsafe { self.push_unchecked(entry) };
    }

    #[inline]
    fn push(&mut self, entry: SafeEntry) {
        // SAFETY: the entry names no memory, and its descriptors as `Fd`.
        unsafe { self.push_unchecked(entry.into()) };
    }

    /// # Safety
    /// See [`Ring::push_unchecked`].
    #[inline]
    unsafe fn push_unchecked(&mut self, entry: Entry) {
        self.counters.sqes += 1;
        // SAFETY: the caller's promise, passed on.
        if !self.backlog.is_empty() || unsafe { self.ring.push_unchecked(entry) }.is_err() {
            self.make_room(entry);
        }
    }

    /// Makes the pool that datagrams are received into, unless it is there already.
    pub(crate) fn open_packets(&mut self, size: PoolSize) -> io::Result<()> {
        if !self.offered.messages {
            let text = "this kernel's ring cannot receive messages; use the epoll driver";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        if self.packets.is_none() {
            let kernel = self.kernel().clone();
            let lending = Lending::new(&self.ring, PACKETS, size, kernel);
            self.packets = Some(lending.map_err(io::Error::other)?);
            self.refill();
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn packets(&self) -> Option<&Rc<Pool>> {
        self.packets.as_ref().map(|packets| &packets.pool)
    }

    /// The pool that operations of this kind borrow from.
    #[inline]
    fn lending(&self, token: Option<Token>) -> &Lending {
        let packets = self.packets.as_ref();
        let of_packets = packets.filter(|_| token.is_some_and(|t| t.kind() == Kind::Packet));
        of_packets.unwrap_or(&self.streams)
    }

    /// The queue is full: submit without waiting, and queue what still finds no room.
    #[cold]
    fn make_room(&mut self, entry: Entry) {
        self.counters.queue_full += 1;
        self.backlog.push_back(entry);
        self.start_queued();
        self.push_backlog();
    }

    /// Submits what is queued, and takes nothing.
    fn start_queued(&mut self) {
        self.soon = 0;
        // An error shows again at the next turn, which reports it.
        let entered = self.ring.enter(annulus_ring::Wait::No);
        self.counters.enters += u64::from(!matches!(entered, Ok(Entered::Unneeded)));
    }

    fn push_backlog(&mut self) {
        while let Some(&entry) = self.backlog.front() {
            // SAFETY: the entry came through `submit`, whose promise holds until its terminal event.
            if unsafe { self.ring.push_unchecked(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    #[inline]
    pub(crate) fn turn(&mut self, wait: Wait) -> io::Result<()> {
        self.push_backlog();
        if self.alarm.is_due() && self.is_touched() && self.backlog.is_empty() {
            let entry = self.alarm.set(self.counters.cqes);
            self.push(entry);
        }
        if self.trim.is_some() && self.ring.ready() == 0 && !self.ring.overflowed() {
            self.trim_pools();
        }
        let urgent = self.ring.overflowed()
            || self.ring.ready() > 0
            || !self.backlog.is_empty()
            || !self.files.is_empty();
        self.counters.overflows += u64::from(self.ring.overflowed());
        match wait {
            Wait::Upto(timeout) if !urgent => self.sleep(timeout),
            Wait::Upto(_) | Wait::No => self.enter(annulus_ring::Wait::Reap),
        }
    }

    /// Nothing waits to be started.
    pub(crate) fn is_clear(&self) -> bool {
        self.backlog.is_empty() && self.ring.pending() == 0
    }

    #[inline]
    pub(crate) fn all_taken(&self) -> bool {
        self.all_taken
    }

    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        loop {
            let Some(completion) = self.ring.completions().next() else {
                return self.files.next();
            };
            self.counters.cqes += 1;
            if let Some(event) = self.event(completion) {
                return Some(event);
            }
        }
    }

    #[inline]
    pub(crate) fn upcoming(&self, ahead: u32) -> Option<Token> {
        self.ring.peek(ahead).and_then(|completion| Token::from_bits(completion.user_data))
    }

    /// What a completion tells the layer above; nothing, where nobody waits for it.
    #[inline]
    fn event(&mut self, completion: Completion) -> Option<Event> {
        let token = Token::from_bits(completion.user_data);
        let buffer = completion.buffer();
        if let Some(id) = buffer {
            self.lending(token).pool.taken(id, completion.result.max(0) as u32);
        }
        self.counters.zero_copy_copied += u64::from(completion.was_copied());
        // A notification's result is no errno.
        let result = if completion.is_notification() { 0 } else { completion.result };
        let result = Event::outcome(result);
        if result == Err(Errno::NOBUFS) {
            self.counters.enobufs += 1;
            self.lending(token).pool.starved();
        }
        match token {
            Some(token) if token.kind() != Kind::Ignored => {
                Some(Event { token, result, more: completion.more(), buffer })
            }
            _ => {
                if completion.user_data == Files::BELL.bits()
                    && let Some(entry) = self.files.heard(completion.more())
                {
                    self.push(entry);
                }
                buffer.into_iter().for_each(|id| self.lending(token).pool.give_back(id));
                if Alarm::is_mine(completion.user_data) {
                    self.trim = self.alarm.goes_off(result, self.counters.cqes);
                }
                None
            }
        }
    }

    #[inline]
    pub(crate) fn settled(&self) -> bool {
        self.all_taken && self.ring.ready() == 0 && !self.ring.overflowed()
    }

    #[inline]
    pub(crate) fn refill(&mut self) {
        self.streams.refill();
        self.packets.iter_mut().for_each(Lending::refill);
    }

    #[inline]
    pub(crate) fn pool(&self) -> &Rc<Pool> {
        &self.streams.pool
    }

    fn is_touched(&self) -> bool {
        self.streams.pool.touched() || self.packets().is_some_and(|pool| pool.touched())
    }

    /// Every completion was taken.
    #[cold]
    fn trim_pools(&mut self) {
        let Some(trim) = self.trim.take() else { return };
        let flags = self.ring.setup_flags();
        self.streams.trim(trim, flags);
        self.packets.iter().for_each(|packets| packets.trim(trim, flags));
        self.trimmed = true;
    }

    #[inline]
    pub(crate) fn sends_quietly(&self) -> bool {
        self.sends_quietly
    }

    #[inline]
    pub(crate) fn operations(&self) -> Operations {
        self.encoder.operations
    }

    #[inline]
    pub(crate) fn limits_receives(&self) -> bool {
        self.limits_receives
    }

    #[inline]
    pub(crate) fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    #[inline]
    pub(crate) fn kernel(&self) -> &Rc<dyn Kernel> {
        self.ring.kernel()
    }

    pub(crate) fn close(self) -> io::Result<()> {
        let Self { ring, streams, packets, .. } = self;
        // SAFETY: both were made for this ring, the only one of the driver.
        let close = |lending: Lending| unsafe { lending.close(&ring) };
        let outcome = close(streams);
        packets.map_or(Ok(()), close).and(outcome)
    }
}
