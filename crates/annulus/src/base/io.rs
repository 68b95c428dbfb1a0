//! The state that all families of slots share: the driver, the timers, the wakers and values for after the borrow, and memory.
//!
//! A family's methods take `&mut Io` beside their own slots. Families do not know each other: what one causes in another is
//! a note here, and the turn acts on it.

use super::exposed::Exposed;
use super::kernel_held::KernelHeld;
use super::recheck::{Recheck, Rechecks};
use crate::base::budget;
use crate::base::connection_limit::Permit;
use crate::bytes::after::After;
use crate::bytes::lease::Lease;
use crate::bytes::spares::Spares;
use crate::memory::{Memory, MemoryLimit};
use crate::timers::HostClock;
use crate::timers::{Instant, TimerAction, TimerKey, Timers};
use annulus_driver::{Counters, Driver, Event, FileStart, Kind, MemoryOp, Op, Token};
use annulus_kernel::file::FileCall;
use annulus_kernel::{Fd, Shutdown, SocketOption, descriptor};
use std::mem;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::Duration;

/// Number of events ahead for which slots are prefetched.
pub(crate) const AHEAD: u32 = 6;

/// The settings of a runtime's streams, in bytes, but for the linger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Minimum bytes of a zero-copy send; `None` disables them.
    pub(crate) zero_copy_threshold: Option<usize>,
    /// Bytes of a receive from which on a copy between two sockets goes through a pipe.
    pub(crate) splice_threshold: usize,
    /// How long a dropped stream may go on sending what it had queued.
    pub(crate) linger: Duration,
}

/// The state that all families of slots share.
pub(crate) struct Io {
    /// The driver, which is freed only once the kernel uses none of its memory.
    pub(crate) driver: KernelHeld<Driver>,
    /// The driver makes sends when they are submitted.
    pub(crate) sends_at_once: bool,
    pub(crate) timers: Timers,
    /// Wakers to wake and values to drop once nothing is borrowed, since both run foreign code.
    pub(crate) after: After,
    /// Wait queues to check again in the next turn.
    pub(crate) rechecks: Rechecks<Recheck>,
    pub(crate) bounds: Bounds,
    /// The bytes that streams and datagram sockets hold, and how many each may hold.
    pub(crate) memory: Memory,
    /// Buffers of the runtime's own for `poll_write`, to use again.
    pub(crate) spares: Spares,
    /// Operations whose terminal event has not come.
    pub(crate) in_flight: usize,
    /// The last turn looked for events. The work that a turn may do without a look is bounded from one look to the next.
    pub(crate) has_looked: bool,
    /// The clock of a guest's host, if it is not the kernel's.
    pub(crate) clock: Option<HostClock>,
    /// Descriptors that handles have lent to other code, and that stay open as long as the handles.
    exposed: Exposed,
    /// A descriptor was closed: listeners that had run out of descriptors may try again.
    fd_closed: bool,
}

impl Io {
    /// Whether a unit of the task's budget is left. At zero the task goes on after the others: it is woken behind the borrow, since a waker
    /// is foreign code.
    #[inline]
    pub(crate) fn poll_budget(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !budget::is_spent() {
            return Poll::Ready(());
        }
        self.after.wakes.push(cx.waker().clone());
        Poll::Pending
    }

    pub(crate) fn new(driver: Driver, bounds: Bounds, memory: Memory) -> Self {
        Self {
            sends_at_once: driver.sends_at_once(),
            driver: KernelHeld::new(driver),
            timers: Timers::new(),
            after: After::default(),
            rechecks: Rechecks::default(),
            bounds,
            memory,
            spares: Spares::default(),
            in_flight: 0,
            has_looked: true,
            clock: None,
            exposed: Exposed::default(),
            fd_closed: false,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        let kernel = || self.driver.kernel().now();
        Instant::since_origin(self.clock.map_or_else(kernel, HostClock::now))
    }

    /// Sets the time within which what was dropped must have sent all it had queued, unless it is set.
    pub(crate) fn start_linger(&mut self, timer: &mut Option<TimerKey>, action: TimerAction) {
        if timer.is_none() {
            *timer = Some(self.timers.insert(self.now() + self.bounds.linger, action));
        }
    }

    /// Starts an operation whose terminal event will be waited for.
    #[inline]
    pub(crate) fn start(&mut self, token: Token, op: Op) {
        self.in_flight += 1;
        self.driver.submit(token, op);
    }

    /// As [`start`](Self::start), of an operation that names memory.
    ///
    /// # Safety
    /// See [`Driver::submit_memory`].
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) unsafe fn start_memory(&mut self, token: Token, op: MemoryOp) {
        self.in_flight += 1;
        // SAFETY: the caller's promise, passed on.
        unsafe { self.driver.submit_memory(token, op) };
    }

    /// Starts a file call off the loop.
    ///
    /// # Safety
    /// See [`Driver::submit_file`].
    #[allow(unsafe_code)]
    pub(crate) unsafe fn start_file(&mut self, token: Token, call: FileCall, start: FileStart) {
        self.in_flight += 1;
        // SAFETY: the caller's promise, passed on.
        unsafe { self.driver.submit_file(token, call, start) };
    }

    /// Cancels an operation in flight; its own terminal event still comes.
    pub(crate) fn cancel(&mut self, target: Token) {
        self.driver.submit(Token::IGNORED, Op::Cancel { target });
    }

    /// A handle has lent its descriptor: it stays open as long as the handle, also beyond the end of the runtime.
    pub(crate) fn expose(&mut self, fd: Fd) {
        self.exposed.add(fd);
    }

    /// The runtime ends: from here on, descriptors that were lent are kept.
    pub(crate) fn keep_exposed(&mut self) {
        self.exposed.keep = true;
    }

    /// Returns true if other code may have the descriptor.
    pub(crate) fn is_exposed(&self, fd: Fd) -> bool {
        self.exposed.contains(fd)
    }

    /// Descriptors that were lent, to be kept until every handle is gone.
    pub(crate) fn take_kept(&mut self) -> Vec<OwnedFd> {
        mem::take(&mut self.exposed.kept)
    }

    /// Releases a descriptor of which nothing is in flight, which is used and closed elsewhere.
    pub(crate) fn release(&mut self, fd: Fd) {
        self.exposed.remove(fd);
        self.driver.release(fd);
    }

    /// Releases a descriptor that was lent. At the end of the runtime, keeps it instead of closing it, and returns true. The peer sees what it would see of a close: the end, or a reset. A listener
    /// is left as it is: its end would be that of its duplicates, to which a close does nothing.
    #[cold]
    #[allow(unsafe_code)]
    fn keep_if_exposed(&mut self, fd: Fd) -> bool {
        if !self.exposed.remove(fd) {
            return false;
        }
        // A duplicate may live on, and would keep the registration: its edges would name whatever has the number next.
        self.driver.release(fd);
        if !self.exposed.keep {
            return false;
        }
        let kernel = self.driver.kernel();
        if kernel.option(fd, SocketOption::Listens).ok() != Some(1) && !descriptor::reset(fd) {
            // Fails for sockets without a peer, and for pipes.
            _ = kernel.shutdown(fd, Shutdown::Both);
        }
        // SAFETY: only real descriptors are lent. The callers were to close this one, and do not; the driver has released it.
        unsafe { self.exposed.keep(fd) };
        true
    }

    /// Closes a descriptor of which nothing is in flight.
    pub(crate) fn close(&mut self, fd: Fd) {
        if !self.exposed.is_empty() && self.keep_if_exposed(fd) {
            return;
        }
        self.driver.submit(Token::IGNORED, Op::Close { fd });
        self.note_closed();
    }

    /// As [`close`](Self::close), before this returns.
    pub(crate) fn close_now(&mut self, fd: Fd) {
        if !self.exposed.is_empty() && self.keep_if_exposed(fd) {
            return;
        }
        self.driver.close_now(fd);
        self.note_closed();
    }

    /// Closes a connection that was accepted. One that counts against a limit is closed before the next may be accepted, on
    /// any thread.
    pub(crate) fn close_accepted(&mut self, fd: Fd, permit: Option<Permit>) {
        let Some(permit) = permit else { return self.close(fd) };
        self.close_now(fd);
        self.release_permit(permit);
    }

    /// Stops counting a connection against its limit.
    pub(crate) fn release_permit(&mut self, permit: Permit) {
        self.after.wakes.extend(permit.release());
    }

    /// Notes that a descriptor was closed.
    pub(crate) fn note_closed(&mut self) {
        self.fd_closed = true;
    }

    /// Whether a descriptor was closed since this was asked last.
    #[inline]
    pub(crate) fn take_closed(&mut self) -> bool {
        mem::take(&mut self.fd_closed)
    }

    /// An event whose slot has moved on: counted, and what it carries reclaimed.
    #[cold]
    #[allow(unsafe_code)]
    pub(crate) fn late(&mut self, event: Event) {
        self.driver.counters().late_completions += 1;
        if let Some(id) = event.buffer {
            let pool =
                self.driver.datagram_pool().filter(|_| event.token.kind() == Kind::RecvDatagram);
            pool.unwrap_or(self.driver.pool()).give_back(id);
        }
        if let (Kind::Accept, Ok(fd)) = (event.token.kind(), event.result) {
            // SAFETY: the connection was made for this runtime, and nothing else knows the descriptor.
            self.close(unsafe { Fd::from_raw(fd as i32) });
        }
    }

    /// Bytes that count against the memory limit.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.memory.meter.bytes() + self.driver.resident()
    }

    /// The driver's counters, and the amounts held now.
    pub(crate) fn counters(&mut self) -> Counters {
        let limit = self.memory.limit().map_or(0, MemoryLimit::bytes);
        let mut counters = *self.driver.counters();
        counters.memory_held = self.held() as u64;
        counters.memory_limit = limit as u64;
        counters.streams_paused = self.memory.streams_paused() as u64;
        counters
    }

    /// The bound of a stream's unsent bytes, as far as there is memory.
    #[inline]
    pub(crate) fn send_bound(&self) -> usize {
        self.memory.send_bound
    }

    /// Compares the memory that is held with the limit, and sets what streams may hold until the next turn. True if their bounds have fallen.
    #[inline]
    pub(crate) fn update_bounds(&mut self) -> bool {
        let held = self.held();
        self.memory.update_held(held).is_some_and(|total| self.allow(total))
    }

    #[cold]
    #[inline(never)]
    fn allow(&mut self, total: usize) -> bool {
        let in_use = self.memory.meter.bytes() + self.driver.resident_lent();
        let changed = self.memory.allow(total, in_use);
        if let Some(budget) = changed.budget {
            self.driver.set_budget(budget);
        }
        changed.have_fallen
    }

    /// A lease's bytes on the heap, so that its buffer goes back.
    #[cold]
    pub(crate) fn copied_out(&mut self, lease: Lease) -> Lease {
        self.driver.counters().heap_receives += 1;
        lease.copied(&self.memory.meter)
    }
}
