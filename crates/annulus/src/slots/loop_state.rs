//! The state that all families of slots share: the driver, the timers, deferred wakes and drops,
//! and memory.
//!
//! A family's methods take `&mut LoopState` in addition to their own slots. Families do not know
//! each other: if one affects another, it records that here, and the turn acts on it.
#![allow(unsafe_code)]

use super::connection_limit::Permit;
use crate::bytes::chunk::{DeferredDrops, Spares};
use crate::bytes::lease::Lease;
use crate::memory::{Memory, MemoryLimit};
use crate::tasks::budget;
use crate::timers::HostClock;
use crate::timers::{Instant, TimerAction, TimerKey, Timers};
use annulus_driver::{Counters, Driver, Event, FileStart, MemoryOp, Op, OpKind, SlotId, Token};
use annulus_kernel::file::FileCall;
use annulus_kernel::{Fd, Linux, Shutdown, SocketOption, descriptor};
use std::collections::BTreeSet;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Weak;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Number of events ahead for which slots are prefetched.
pub(crate) const PREFETCH_EVENTS: u32 = 6;

/// Settings of a runtime's sockets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Minimum size of a zero-copy send, in bytes. `None` disables zero-copy sends.
    pub(crate) zero_copy_threshold: Option<usize>,
    /// Size of a receive, in bytes, from which a copy between two sockets switches to a pipe.
    pub(crate) splice_threshold: usize,
    /// How long a dropped stream or datagram socket may continue to send its queue.
    pub(crate) linger: Duration,
}

pub(crate) struct LoopState {
    /// Freed only once the kernel no longer uses its memory.
    pub(crate) driver: KernelHeld<Driver>,
    /// Whether the driver performs sends as soon as they are submitted.
    pub(crate) sends_on_submit: bool,
    pub(crate) timers: Timers,
    /// Wakers to wake and values to drop once nothing is borrowed, because both may run foreign
    /// code.
    pub(crate) deferred: DeferredDrops,
    /// Wait queues to check again in the next turn.
    pub(crate) rechecks: Rechecks<Recheck>,
    pub(crate) bounds: Bounds,
    /// The bytes that streams and datagram sockets hold, and how many each may hold.
    pub(crate) memory: Memory,
    /// Spare buffers for bytes that are copied into a queue.
    pub(crate) spares: Spares,
    /// Number of operations whose terminal event has not arrived yet.
    pub(crate) in_flight: usize,
    /// Whether the last turn checked for events. The limits on direct sends and inline file calls
    /// are reset only after a turn that did.
    pub(crate) has_checked_events: bool,
    /// The host loop's clock, if this runtime is a guest and its host does not use the kernel's
    /// clock.
    pub(crate) clock: Option<HostClock>,
    /// Descriptors that handles have exposed to other code. They stay open as long as the handles.
    exposed: Exposed,
    /// Whether a descriptor has been closed since the last check, so that paused listeners may
    /// retry.
    fd_closed: bool,
}

impl LoopState {
    /// Returns `Ready` if the task has budget left, without taking any. Otherwise wakes the task
    /// after the borrow has ended, so that it continues after the other tasks.
    #[inline]
    pub(crate) fn poll_budget(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !budget::refuses() {
            return Poll::Ready(());
        }
        self.deferred.wakes.push(cx.waker().clone());
        Poll::Pending
    }

    pub(crate) fn new(driver: Driver, bounds: Bounds, memory: Memory) -> Self {
        Self {
            sends_on_submit: driver.sends_on_submit(),
            driver: KernelHeld::new(driver),
            timers: Timers::new(),
            deferred: DeferredDrops::default(),
            rechecks: Rechecks::default(),
            bounds,
            memory,
            spares: Spares::default(),
            in_flight: 0,
            has_checked_events: true,
            clock: None,
            exposed: Exposed::default(),
            fd_closed: false,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        let kernel = || self.driver.kernel().now();
        Instant::since_origin(self.clock.map_or_else(kernel, HostClock::now))
    }

    /// Starts the timer that limits how long a dropped socket may send its queue, unless it has
    /// been started already.
    pub(crate) fn start_linger(&mut self, timer: &mut Option<TimerKey>, action: TimerAction) {
        if timer.is_none() {
            *timer = Some(self.timers.insert(self.now() + self.bounds.linger, action));
        }
    }

    /// Starts an operation, which counts as in flight until its terminal event.
    #[inline]
    pub(crate) fn start(&mut self, token: Token, op: Op) {
        self.in_flight += 1;
        self.driver.submit(token, op);
    }

    /// Like [`start`](Self::start), but for an operation that refers to memory.
    ///
    /// # Safety
    /// See [`Driver::submit_memory`].
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) unsafe fn start_memory(&mut self, token: Token, op: MemoryOp) {
        self.in_flight += 1;
        // SAFETY: the caller fulfils the driver's contract, which is also this function's contract.
        unsafe { self.driver.submit_memory(token, op) };
    }

    /// Starts a file call off the loop.
    ///
    /// # Safety
    /// See [`Driver::submit_file`].
    #[allow(unsafe_code)]
    pub(crate) unsafe fn start_file(
        &mut self,
        token: Token,
        call: FileCall,
        start: FileStart,
        in_flight: u32,
    ) {
        self.in_flight += 1;
        // SAFETY: the caller fulfils the driver's contract, which is also this function's contract.
        unsafe { self.driver.submit_file(token, call, start, in_flight) };
    }

    /// Cancels an operation in flight. Its terminal event still arrives.
    pub(crate) fn cancel(&mut self, target: Token) {
        self.driver.submit(Token::IGNORED, Op::Cancel { target });
    }

    /// Records that a handle has exposed its descriptor, which then stays open as long as the
    /// handle, even if the runtime ends first.
    pub(crate) fn expose(&mut self, fd: Fd) {
        self.exposed.add(fd);
    }

    /// From now on, closing an exposed descriptor keeps it open. Called when the runtime ends.
    pub(crate) fn keep_exposed(&mut self) {
        self.exposed.keep = true;
    }

    /// Returns true if other code may use the descriptor.
    pub(crate) fn is_exposed(&self, fd: Fd) -> bool {
        self.exposed.contains(fd)
    }

    /// Takes the exposed descriptors that must stay open until every handle is gone.
    pub(crate) fn take_kept(&mut self) -> Vec<OwnedFd> {
        mem::take(&mut self.exposed.kept)
    }

    /// Gives `fd`, which has no operation in flight, to other code. That code closes it.
    pub(crate) fn release(&mut self, fd: Fd) {
        self.exposed.remove(fd);
        self.driver.release(fd);
    }

    /// Releases `fd` from the driver if it is exposed. At the end of the runtime, also keeps it
    /// open and returns true: the caller must not close it. The peer then sees EOF or a reset, as
    /// after a close. A listener is not shut down, because a shutdown would also end its
    /// duplicates.
    #[cold]
    #[allow(unsafe_code)]
    fn keep_if_exposed(&mut self, fd: Fd) -> bool {
        if !self.exposed.remove(fd) {
            return false;
        }
        // A duplicate may outlive the descriptor and keep its epoll registration. The edges of that
        // registration would then go to the next descriptor with this number.
        self.driver.release(fd);
        let kernel = self.driver.kernel();
        // Other code may have set a time for which the close would block the loop.
        let off = SocketOption::NO_LINGER;
        if kernel.option(fd, SocketOption::Linger).is_ok_and(|time| time != 0 && time != off) {
            _ = kernel.set_option(fd, SocketOption::Linger, off);
        }
        if !self.exposed.keep {
            return false;
        }
        if kernel.option(fd, SocketOption::Listens).ok() != Some(1) && !descriptor::reset(fd) {
            // Fails for pipes and for sockets without a peer.
            _ = kernel.shutdown(fd, Shutdown::Both);
        }
        // SAFETY: only real descriptors are exposed. The callers do not close `fd` if this function
        // returns true, and the driver has released it.
        unsafe { self.exposed.keep(fd) };
        true
    }

    /// Closes a descriptor that has no operation in flight. At the end of the runtime, an exposed
    /// descriptor is kept open instead.
    pub(crate) fn close(&mut self, fd: Fd) {
        if !self.exposed.is_empty() && self.keep_if_exposed(fd) {
            return;
        }
        self.driver.submit(Token::IGNORED, Op::Close { fd });
        self.note_closed();
    }

    /// Like [`close`](Self::close), but closes the descriptor before returning.
    pub(crate) fn close_now(&mut self, fd: Fd) {
        if !self.exposed.is_empty() && self.keep_if_exposed(fd) {
            return;
        }
        self.driver.close_now(fd);
        self.note_closed();
    }

    /// Closes an accepted connection. If it counts against a limit, it is closed before any thread
    /// may accept the next one.
    pub(crate) fn close_accepted(&mut self, fd: Fd, permit: Option<Permit>) {
        let Some(permit) = permit else { return self.close(fd) };
        self.close_now(fd);
        self.release_permit(permit);
    }

    /// Stops counting a connection against its limit, and wakes tasks that wait for another one to
    /// close.
    pub(crate) fn release_permit(&mut self, permit: Permit) {
        self.deferred.wakes.extend(permit.release());
    }

    pub(crate) fn note_closed(&mut self) {
        self.fd_closed = true;
    }

    /// Returns true if a descriptor has been closed since the last call.
    #[inline]
    pub(crate) fn take_closed(&mut self) -> bool {
        mem::take(&mut self.fd_closed)
    }

    /// Counts a late event, and reclaims the buffer or connection that it carries.
    #[cold]
    #[allow(unsafe_code)]
    pub(crate) fn late(&mut self, event: Event) {
        self.driver.counters().late_completions += 1;
        if let Some(id) = event.buffer {
            let pool =
                self.driver.datagram_pool().filter(|_| event.token.kind() == OpKind::RecvDatagram);
            pool.unwrap_or(self.driver.pool()).give_back(id);
        }
        if let (OpKind::Accept, Ok(fd)) = (event.token.kind(), event.result) {
            // SAFETY: the connection was accepted for this runtime, and nothing else knows the
            // descriptor.
            self.close(unsafe { Fd::from_raw(fd as i32) });
        }
    }

    /// Returns the number of bytes that count against the memory limit.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.memory.meter.bytes() + self.driver.resident_bytes()
    }

    /// Returns the driver's counters, with the current memory gauges.
    pub(crate) fn counters(&mut self) -> Counters {
        let limit = self.memory.limit().map_or(0, MemoryLimit::bytes);
        let mut counters = *self.driver.counters();
        counters.memory_held = self.held() as u64;
        counters.memory_limit = limit as u64;
        counters.streams_paused = self.memory.streams_paused() as u64;
        counters
    }

    /// Returns the current bound on a stream's unsent bytes, which shrinks while memory is short.
    #[inline]
    pub(crate) fn send_bound(&self) -> usize {
        self.memory.send_bound
    }

    /// Compares the held memory with the limit, and sets how much streams may hold until the next
    /// turn. Returns true if their bounds have fallen.
    #[inline]
    pub(crate) fn update_bounds(&mut self) -> bool {
        let held = self.held();
        self.memory.update_held(held).is_some_and(|total| self.allow(total))
    }

    #[cold]
    #[inline(never)]
    fn allow(&mut self, total: usize) -> bool {
        let in_use = self.memory.meter.bytes() + self.driver.resident_lent_bytes();
        let changed = self.memory.allow(total, in_use);
        if let Some(budget) = changed.budget {
            self.driver.set_budget(budget);
        }
        changed.have_fallen
    }

    /// Copies a lease's bytes to the heap, so that its buffer returns to the pool.
    #[cold]
    pub(crate) fn copied_out(&mut self, lease: Lease) -> Lease {
        self.driver.counters().heap_receives += 1;
        lease.copied(&self.memory.meter)
    }
}

/// The exposed descriptors that are open.
#[derive(Default)]
pub(crate) struct Exposed {
    exposed_fds: BTreeSet<RawFd>,
    /// Whether the runtime is ending, so that descriptors are kept instead of closed.
    pub(crate) keep: bool,
    pub(crate) kept: Vec<OwnedFd>,
}

impl Exposed {
    pub(crate) fn is_empty(&self) -> bool {
        self.exposed_fds.is_empty()
    }

    pub(crate) fn add(&mut self, fd: Fd) {
        self.exposed_fds.insert(fd.raw());
    }

    pub(crate) fn contains(&self, fd: Fd) -> bool {
        self.exposed_fds.contains(&fd.raw())
    }

    /// Removes a descriptor that is about to be closed or given away. Returns true if it was
    /// exposed.
    pub(crate) fn remove(&mut self, fd: Fd) -> bool {
        self.exposed_fds.remove(&fd.raw())
    }

    /// Takes over a descriptor that the runtime no longer uses.
    ///
    /// # Safety
    /// `fd` must be a real, open descriptor that the caller owns and no longer closes. No copy of
    /// `fd` may be used afterwards.
    pub(crate) unsafe fn keep(&mut self, fd: Fd) {
        // SAFETY: the caller guarantees that the descriptor is open and has no other owner.
        self.kept.push(unsafe { OwnedFd::from_raw_fd(fd.raw()) });
    }
}

/// Borrows the descriptor of a handle. If the handle has none that other code may use (after the
/// runtime's end, or in a simulation), returns a number on which every call fails with `EBADF`.
pub(crate) fn borrowed_fd<'a>(fd: Option<Fd>) -> BorrowedFd<'a> {
    // SAFETY: the number is not -1, and no descriptor ever has it, since the kernel's limit on
    // descriptors (`fs.nr_open`) is at most 2^31 - 64. So no other code can own it.
    fd.map_or_else(|| unsafe { BorrowedFd::borrow_raw(RawFd::MAX) }, Linux::borrow)
}

/// Owns memory that operations in flight may use. Dropping it leaks that memory, so unwinding never
/// frees memory that the kernel uses. Only [`open`](Self::open) and [`take`](Self::take) return the
/// memory to be freed.
pub(crate) struct KernelHeld<T>(ManuallyDrop<T>);

impl<T> KernelHeld<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    /// Returns the value, to be freed.
    ///
    /// # Safety
    /// The kernel must no longer use the memory: every operation that refers to it has had its
    /// terminal event.
    pub(crate) unsafe fn open(self) -> T {
        ManuallyDrop::into_inner(self.0)
    }

    /// Like [`open`](Self::open), but in place.
    ///
    /// # Safety
    /// Like [`open`](Self::open). In addition, the value must not be used through `self` again.
    pub(crate) unsafe fn take(&mut self) -> T {
        // SAFETY: the caller guarantees that the kernel no longer uses the memory and that the
        // value is not used again.
        unsafe { ManuallyDrop::take(&mut self.0) }
    }
}

impl<T> Deref for KernelHeld<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for KernelHeld<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Wait queues to check once the tasks that were woken have run.
///
/// Tasks that are woken by the end of a turn run at the start of the next turn. So entries that
/// were pushed before the end of a turn are due in the next turn, after its tasks have run.
#[derive(Debug)]
pub(crate) struct Rechecks<T> {
    list: Vec<T>,
    /// Number of entries at the front that are due.
    due: usize,
}

impl<T> Default for Rechecks<T> {
    fn default() -> Self {
        Self { list: Vec::new(), due: 0 }
    }
}

impl<T> Rechecks<T> {
    #[cold]
    pub(crate) fn push(&mut self, one: T) {
        self.list.push(one);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Removes and returns the entries that are due.
    pub(crate) fn take_due(&mut self) -> Vec<T> {
        self.list.drain(..std::mem::take(&mut self.due)).collect()
    }

    /// Makes all entries due. Called at the end of a turn.
    #[inline]
    pub(crate) fn age(&mut self) {
        self.due = self.list.len();
    }
}

/// A wait queue to check again.
pub(crate) enum Recheck {
    /// The accepts of a listener.
    Accept(SlotId),
    /// The receives of a datagram socket.
    Receive(SlotId),
    /// Any other wait queue, such as the one of a file's cursor.
    Queue(Weak<dyn RecheckQueue>),
}

/// An object with a wait queue of its own.
pub(crate) trait RecheckQueue {
    /// Notifies further waiters of items that the notified waiters have not taken. Returns true if
    /// the queue must be checked again.
    fn recheck(&self, wakes: &mut Vec<Waker>) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn dropping_leaks_the_value_and_opening_frees_it() {
        let value = Rc::new(());
        _ = KernelHeld::new(value.clone());
        assert_eq!(Rc::strong_count(&value), 2);
        let held = KernelHeld::new(value.clone());
        // SAFETY: no kernel uses the value.
        drop(unsafe { held.open() });
        assert_eq!(Rc::strong_count(&value), 2);
        // SAFETY: the first `KernelHeld` leaked this count.
        unsafe { Rc::decrement_strong_count(Rc::as_ptr(&value)) };
    }

    #[test]
    fn entries_are_due_after_the_turn() {
        let mut rechecks = Rechecks::default();
        rechecks.push("while tasks ran");
        assert!(rechecks.take_due().is_empty() && !rechecks.is_empty());
        rechecks.push("by an event");
        rechecks.age();
        rechecks.push("while the next tasks ran");
        assert_eq!(rechecks.take_due(), ["while tasks ran", "by an event"]);
        rechecks.age();
        assert_eq!(rechecks.take_due(), ["while the next tasks ran"]);
        assert!(rechecks.is_empty());
    }
}
