//! The io_uring driver: operations become entries, a turn submits them and waits, completions
//! become events.
#![allow(unsafe_code)]

mod buffer_registry;
mod busy_poll;
mod encode;
mod files;
mod min_wait;
mod notifier;
mod opcodes;
mod pool_ring;
mod sleep_timer;
mod trim_timer;
mod zero_copy_receive;

use crate::driver_state::DriverState;
use crate::event::Event;
use crate::op::{MemoryOp, Op};
use crate::pool::{Pool, PoolSize, Trim};
use crate::slots::{OpKind, Token};
use crate::wait::Wait;
use annulus_kernel::{Kernel, Linux, named};
use annulus_ring::{
    Completion, Entry, EntryFlags, Features, Ring, SafeEntry, SetupError, SetupFlags,
    Wait as RingWait, opcode,
};
pub use buffer_registry::BufferRegistry;
use busy_poll::BusyPoll;
use encode::{Encoder, send_message_now, send_to_now};
use files::FileCalls;
use min_wait::MinWait;
use opcodes::{SupportedOps, opcodes_in_use};
use pool_ring::{DATAGRAM_GROUP, PoolRing, STREAM_GROUP};
use rustix::io::Errno;
use sleep_timer::SleepTimer;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use trim_timer::TrimTimer;
pub use zero_copy_receive::ReceiveArea;
use zero_copy_receive::ZeroCopyReceive;

/// The configuration of the io_uring driver.
#[derive(Clone)]
pub struct UringConfig {
    /// The kernel under the ring.
    pub kernel: Rc<dyn Kernel>,
    /// Number of entries of the submission queue.
    pub sq_entries: u32,
    /// Number of entries of the completion queue.
    pub cq_entries: u32,
    /// Size of the receive memory of streams.
    pub pool: PoolSize,
    /// Setup flags to leave out, as if the kernel were older.
    pub without: SetupFlags,
    /// Whether zero-copy operations will be used (Linux 6.1).
    pub zero_copy: bool,
    /// How long to poll for completions before a sleep, if that pays off; zero disables polling.
    pub busy_poll: Duration,
    /// How long the kernel polls network devices before a sleep; zero disables polling (Linux 6.9).
    pub napi_busy_poll: Duration,
    /// How long a sleep may last while it collects several events; zero ends each sleep with the
    /// first event (Linux 6.12).
    pub min_wait: Duration,
    /// Memory for zero-copy receives, if streams use them (Linux 6.18, without a device 7.1). They
    /// cannot be used on a restricted ring.
    pub receive_area: Option<ReceiveArea>,
    /// Whether to restrict the ring to the operations that the driver uses.
    pub restricted: bool,
}

impl Default for UringConfig {
    fn default() -> Self {
        Self {
            kernel: Rc::new(Linux),
            sq_entries: 256,
            cq_entries: 4096,
            pool: PoolSize::default(),
            without: SetupFlags::empty(),
            zero_copy: false,
            busy_poll: Duration::ZERO,
            napi_busy_poll: Duration::ZERO,
            min_wait: Duration::ZERO,
            receive_area: None,
            restricted: false,
        }
    }
}

impl UringConfig {
    fn ring(&self) -> Result<Ring, SetupError> {
        let builder = Ring::builder()
            .kernel(self.kernel.clone())
            .entries(self.sq_entries)
            .completions(self.cq_entries)
            .napi_busy_poll(self.napi_busy_poll)
            .mixed_completions(self.receive_area.is_some())
            .without(self.without);
        let needed = opcodes_in_use(self.zero_copy);
        let ring = if self.restricted { builder.only_operations(&needed) } else { builder }.build();
        ring.map_err(|error| match (error, self.receive_area) {
            // A kernel without mixed completions refuses the flag.
            (SetupError::Refused(error), Some(area))
                if Errno::from_io_error(&error) == Some(Errno::INVAL) =>
            {
                SetupError::ZeroCopyReceive(area.queue, error)
            }
            (error, _) => error,
        })
    }
}

/// The io_uring driver: a ring, its buffer rings, and the operations that wait for space in the
/// ring.
#[derive(Debug)]
#[repr(C)]
pub struct Uring {
    pub(crate) common: DriverState,
    ring: Ring,
    streams: PoolRing,
    /// Created with the first datagram socket.
    datagrams: Option<PoolRing>,
    /// Entries that found the submission queue full, oldest first.
    backlog: VecDeque<Entry>,
    /// Whether the last turn submitted everything.
    last_turn_started_all: bool,
    /// Whether another event loop takes the turns, and is notified of completions.
    hosted: bool,
    sleep_timer: SleepTimer,
    trim_timer: TrimTimer,
    busy_poll: BusyPoll,
    min_wait: MinWait,
    /// The trim to carry out once every completion has been taken.
    trim: Option<Trim>,
    features: Features,
    encoder: Encoder,
    zero_copy_receive: Option<Box<ZeroCopyReceive>>,
    supported: SupportedOps,
    files: FileCalls,
    /// Buffers that file calls use as registered ones, if the ring may have them.
    buffers: Option<Rc<BufferRegistry>>,
    /// Number of early file calls that have been queued since the last `io_uring_enter`.
    early_calls: u32,
}

impl Uring {
    /// Sets up the ring and the pool of streams, for this thread.
    ///
    /// # Errors
    /// Returns a [`SetupError`] with the step that failed or the feature that is missing.
    pub fn new(config: UringConfig) -> Result<Self, SetupError> {
        let mut ring = config.ring()?;
        let features = Features::of(&mut ring)?;
        let probe = ring.probe().map_err(|e| SetupError::Step("probing the operations", e))?;
        let supported = SupportedOps::of(&probe, config.zero_copy)?;
        let batches = (!config.min_wait.is_zero()).then_some("minimum wait");
        let mut needs = ["multishot receive", "multishot accept"].into_iter().chain(batches);
        if let Some(lacking) = needs.find(|needed| !features.has(needed)) {
            return Err(SetupError::Lacks(lacking));
        }
        let pool = pool_ring::stream_pool(config.pool, config.receive_area, config.kernel.clone())?;
        let streams = PoolRing::new(&ring, STREAM_GROUP, pool)?;
        let zero_copy_receive = match config.receive_area {
            Some(area) => Some(Box::new(ZeroCopyReceive::new(&ring, area, &streams.pool)?)),
            None => None,
        };
        let common = DriverState {
            // SEND accepts a destination address since Linux 6.1, which also added SENDMSG_ZC.
            supports_send_to_now: probe.has(opcode::SENDMSG_ZC),
            supports_receive_limit: features.has("receive limit"),
            receives_zero_copy: zero_copy_receive.is_some(),
            ..DriverState::new(config.kernel, streams.pool.clone())
        };
        let registers = !config.restricted
            && [opcode::READ_FIXED, opcode::WRITE_FIXED].iter().all(|code| probe.has(*code));
        Ok(Self {
            ring,
            streams,
            datagrams: None,
            backlog: VecDeque::new(),
            last_turn_started_all: true,
            hosted: false,
            sleep_timer: SleepTimer::new(),
            trim_timer: TrimTimer::default(),
            busy_poll: BusyPoll::new(config.busy_poll),
            min_wait: MinWait::new(config.min_wait),
            trim: None,
            encoder: Encoder {
                reports_copies: features.has("zero-copy report"),
                refill_ring: zero_copy_receive.as_ref().map_or(0, |receive| receive.id()),
            },
            zero_copy_receive,
            features,
            supported,
            files: FileCalls::new(probe, config.restricted, &*common.kernel),
            buffers: registers.then(|| Rc::new(BufferRegistry::new())),
            early_calls: 0,
            common,
        })
    }

    pub(crate) fn buffer_registry(&self) -> Option<&Rc<BufferRegistry>> {
        self.buffers.as_ref()
    }

    /// Returns the features of the kernel under the ring.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Returns the flags that the ring was set up with.
    pub fn setup_flags(&self) -> SetupFlags {
        self.ring.setup_flags()
    }

    #[inline]
    pub(crate) fn submit(&mut self, token: Token, op: Op) {
        match op {
            Op::Close { fd } if !self.supported.close => return self.common.kernel.close(fd),
            Op::Cancel { target } if target.kind() == OpKind::File && self.files.cancel(target) => {
                return;
            }
            _ => {}
        }
        self.push(self.encoder.entry(token, op));
        if let Op::AcceptNow { .. } = op {
            // The accept is tried first. The flag by which it would not wait needs Linux 6.10.
            self.push(self.encoder.entry(Token::IGNORED, Op::Cancel { target: token }));
        }
    }

    /// # Safety
    /// See [`Driver::submit_memory`](crate::Driver::submit_memory).
    #[inline]
    pub(crate) unsafe fn submit_memory(&mut self, token: Token, op: MemoryOp) {
        // SAFETY: the caller guarantees that all memory stays valid until the terminal event, as
        // the ring requires.
        unsafe {
            match op {
                // Datagram sends have their own match arms, so that the entry is built in the queue
                // instead of being copied there.
                MemoryOp::SendToNow { fd, buffer, len, to, to_len } => {
                    let entry = send_to_now(fd, buffer, len, to, to_len).user_data(token.bits());
                    self.push_unchecked(entry);
                }
                MemoryOp::SendMessageNow { fd, header } => {
                    let entry = send_message_now(fd, header).user_data(token.bits());
                    self.push_unchecked(entry);
                }
                op => self.push_unchecked(self.encoder.memory_entry(token, op)),
            }
        }
    }

    /// Checks that the ring can make an operation that a program defines.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(crate) fn check_custom(&self, opcode: u8) -> Result<(), String> {
        if self.files.is_restricted() {
            return Err("a locked-down ring allows only the operations of the runtime".into());
        }
        if !self.common.kernel.real_descriptors() {
            return Err("a simulated kernel has only the operations of the runtime".into());
        }
        if !self.files.has_opcode(opcode) {
            return Err("this kernel's io_uring does not have it".into());
        }
        Ok(())
    }

    /// # Safety
    /// See [`Driver::submit_custom`](crate::Driver::submit_custom).
    pub(crate) unsafe fn submit_custom(&mut self, token: Token, entry: Entry) {
        debug_assert!(
            entry.flags & !EntryFlags::ASYNC.bits() == 0,
            "flags of the entry: {entry:?}"
        );
        // SAFETY: the caller guarantees that all memory stays valid until the terminal event, as
        // the ring requires.
        unsafe { self.push_unchecked(entry.user_data(token.bits())) };
    }

    #[inline]
    fn push(&mut self, entry: SafeEntry) {
        // SAFETY: a `SafeEntry` refers to no memory that can be freed, and its descriptors are
        // `Fd`s.
        unsafe { self.push_unchecked(entry.into()) };
    }

    /// # Safety
    /// See [`Ring::push_unchecked`].
    #[inline]
    unsafe fn push_unchecked(&mut self, entry: Entry) {
        self.common.counters.sqes += 1;
        // SAFETY: the caller guarantees what `Ring::push_unchecked` requires.
        if !self.backlog.is_empty() || unsafe { self.ring.push_unchecked(entry) }.is_err() {
            // Not a separate function: passing the entry to it would force the entry into
            // memory, from where it would be copied to the queue.
            self.backlog.push_back(entry);
            self.make_space();
        }
    }

    /// Creates the pool that datagrams are received into, unless it exists.
    pub(crate) fn open_datagram_pool(&mut self, size: PoolSize) -> io::Result<()> {
        if !self.supported.messages {
            let text = "this kernel's io_uring does not support RECVMSG; use the epoll driver";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        if self.datagrams.is_none() {
            let kernel = self.common.kernel.clone();
            let pool = pool_ring::reserved(Pool::of_datagrams(size, kernel));
            let pool_ring = pool.and_then(|pool| PoolRing::new(&self.ring, DATAGRAM_GROUP, pool));
            let pool_ring = self.datagrams.insert(pool_ring?);
            self.common.datagrams = Some(pool_ring.pool.clone());
            self.refill();
        }
        Ok(())
    }

    /// Returns the pool whose buffers an operation fills.
    #[inline]
    fn pool_of(&self, token: Option<Token>) -> &Pool {
        let datagrams = self.common.datagrams.as_ref();
        let datagrams =
            datagrams.filter(|_| token.is_some_and(|t| t.kind() == OpKind::RecvDatagram));
        datagrams.unwrap_or(&self.common.pool)
    }

    /// Submits without waiting, since the submission queue is full. Entries that still find no
    /// space stay in the backlog.
    #[cold]
    fn make_space(&mut self) {
        self.common.counters.queue_full += 1;
        self.submit_queued();
        self.push_backlog();
    }

    fn push_backlog(&mut self) {
        while let Some(&entry) = self.backlog.front() {
            // SAFETY: the entry came from `push_unchecked`, whose caller keeps its memory until the
            // terminal event, which cannot arrive before the entry is submitted.
            if unsafe { self.ring.push_unchecked(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    #[inline]
    pub(crate) fn turn(&mut self, wait: Wait) -> io::Result<()> {
        self.push_backlog();
        if self.trim_timer.is_due()
            && self.common.pools().any(|pool| pool.used_since_trim())
            && self.backlog.is_empty()
        {
            let entry = self.trim_timer.start(self.common.counters.cqes);
            self.push(entry);
        }
        self.buffers.iter().for_each(|buffers| buffers.clear(&self.ring));
        if self.trim.is_some() && self.ring.ready() == 0 && !self.ring.overflowed() {
            self.trim_pools();
        }
        let urgent = self.ring.overflowed()
            || self.ring.ready() > 0
            || !self.backlog.is_empty()
            || !self.files.is_empty();
        self.common.counters.overflows += u64::from(self.ring.overflowed());
        match wait {
            Wait::UpTo(timeout) if !urgent => self.sleep(timeout),
            Wait::Until(deadline) if !urgent => {
                let timeout = self.timeout_until(deadline);
                self.sleep(timeout)
            }
            Wait::No if self.needs_no_enter() => {
                self.last_turn_started_all = true;
                Ok(())
            }
            Wait::UpTo(_) | Wait::Until(_) | Wait::No => self.enter(RingWait::Reap),
        }
    }

    /// Returns the timeout of a sleep that must end by a deadline; none if a timer ends it.
    #[inline]
    fn timeout_until(&mut self, deadline: Duration) -> Option<Duration> {
        if self.sleep_timer.ends_sleep_by(deadline) {
            return None;
        }
        let left = deadline.saturating_sub(self.common.kernel.now());
        let Some(entry) = self.sleep_timer.start(deadline, left) else { return Some(left) };
        // SAFETY: the time that the entry points to is in a box of the timer, which does not change
        // it before the completion. It is dropped after the ring.
        unsafe { self.push_unchecked(entry) };
        // An entry that found no space starts later, and a timer that was cancelled now is started
        // again for the next sleep.
        let is_started = self.backlog.is_empty() && self.sleep_timer.ends_sleep_by(deadline);
        (!is_started).then_some(left)
    }

    /// Submits, and waits for a completion or until the time is up. Polls first if that pays off.
    #[inline]
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = match self.busy_poll.before_sleep() {
            None => timeout,
            Some(limit) => match self.poll_briefly(limit, timeout)? {
                None => return Ok(()),
                Some(left) => timeout.and(Some(left)),
            },
        };
        if self.min_wait.is_enabled() {
            return self.sleep_for_batch(timeout);
        }
        self.enter(RingWait::For { completions: 1, timeout })
    }

    /// Sleeps with a minimum wait. It is separate so that other sleeps do not pay for it.
    #[cold]
    fn sleep_for_batch(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let wait = self.min_wait.before_sleep(self.common.counters.cqes, timeout);
        self.enter(wait)
    }

    /// Calls `io_uring_enter`, unless the ring needs no call.
    #[inline]
    pub(super) fn enter(&mut self, wait: RingWait) -> io::Result<()> {
        let entered = self.ring.enter(wait);
        self.early_calls = 0;
        self.last_turn_started_all = self.has_started_all();
        self.common.counters.enters += 1;
        entered.map(drop).map_err(named("io_uring_enter"))
    }

    /// Submits the queued entries without taking completions.
    pub(crate) fn submit_queued(&mut self) {
        self.early_calls = 0;
        // An error occurs again at the end of the turn, where it is reported.
        _ = self.ring.enter(RingWait::No);
        self.common.counters.enters += 1;
    }

    /// Returns true if everything that was submitted has been started.
    pub(crate) fn has_started_all(&self) -> bool {
        self.backlog.is_empty() && self.ring.pending() == 0
    }

    #[inline]
    pub(crate) fn last_turn_started_all(&self) -> bool {
        self.last_turn_started_all
    }

    #[inline]
    pub(crate) fn sends_assumed_complete(&self) -> bool {
        self.last_turn_started_all && self.ring.ready() == 0 && !self.ring.overflowed()
    }

    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        loop {
            let Some(completion) = self.ring.completions().next() else {
                return self.files.next();
            };
            self.common.counters.cqes += 1;
            if let Some(event) = self.event(completion) {
                return Some(event);
            }
        }
    }

    #[inline]
    pub(crate) fn upcoming_tokens(&self, positions: Range<u32>) -> impl Iterator<Item = Token> {
        let known = positions.map_while(|position| self.ring.peek(position));
        known.filter_map(|completion| Token::from_bits(completion.user_data))
    }

    /// Returns the event of a completion, or `None` if the operation was the driver's own or its
    /// token is ignored.
    #[inline]
    fn event(&mut self, completion: Completion) -> Option<Event> {
        let token = Token::from_bits(completion.user_data);
        let buffer = completion.buffer();
        if let Some(id) = buffer {
            self.pool_of(token).mark_lent(id, completion.result.max(0) as u32);
        } else if completion.is_large() {
            return self.received_piece(completion);
        }
        self.common.counters.zero_copy_copied += u64::from(completion.was_copied());
        // The result of a notification is not an errno.
        let result = if completion.is_notification() { 0 } else { completion.result };
        let result = Event::outcome(result);
        if result == Err(Errno::NOBUFS) {
            self.common.counters.enobufs += 1;
            self.pool_of(token).record_shortage();
        }
        match token {
            Some(token) if token.kind() != OpKind::Ignored => {
                Some(Event { token, result, more: completion.more(), buffer })
            }
            _ => {
                if completion.user_data == FileCalls::WORKERS_DONE.bits()
                    && let Some(entry) = self.files.workers_done(completion.more())
                {
                    self.push(entry);
                }
                buffer.into_iter().for_each(|id| self.pool_of(token).give_back(id));
                if SleepTimer::owns(completion.user_data) {
                    self.sleep_timer.expired(result);
                    self.trim_timer.leave_out_completion();
                } else if TrimTimer::owns(completion.user_data) {
                    self.trim = self.trim_timer.expired(result, self.common.counters.cqes);
                }
                None
            }
        }
    }

    /// Returns the event of a zero-copy receive.
    #[cold]
    fn received_piece(&mut self, completion: Completion) -> Option<Event> {
        let offset = self.ring.completions().next()?.user_data;
        let len = completion.result.max(0) as u32;
        let buffer = self.zero_copy_receive.as_mut()?.lend(offset, len);
        self.common.counters.zero_copy_receives += 1;
        let token = Token::from_bits(completion.user_data)?;
        let result = if buffer.is_some() { Ok(len) } else { Err(Errno::IO) };
        Some(Event { token, result, more: completion.more(), buffer })
    }

    /// See [`Driver::record_zero_copy_shortage`](crate::Driver::record_zero_copy_shortage).
    pub(crate) fn record_zero_copy_shortage(&mut self) -> bool {
        self.zero_copy_receive.as_mut().is_some_and(|receive| receive.record_shortage())
    }

    #[inline]
    pub(crate) fn refill(&mut self) {
        self.streams.refill();
        self.datagrams.iter_mut().for_each(PoolRing::refill);
        if let Some(receive) = &mut self.zero_copy_receive {
            receive.refill(&self.ring);
        }
    }

    /// Trims the pools. Every completion must have been taken.
    #[cold]
    fn trim_pools(&mut self) {
        let Some(trim) = self.trim.take() else { return };
        let flags = self.ring.setup_flags();
        self.streams.trim(trim, flags);
        self.datagrams.iter().for_each(|datagrams| datagrams.trim(trim, flags));
        self.common.trimmed = true;
    }

    pub(crate) fn close(self) -> io::Result<()> {
        let Self { ring, streams, datagrams, .. } = self;
        // SAFETY: both buffer rings were created for this ring, the only ring of the driver.
        let close = |pool_ring: PoolRing| unsafe { pool_ring.close(&ring) };
        let outcome = close(streams);
        datagrams.map_or(Ok(()), close).and(outcome)
    }
}
