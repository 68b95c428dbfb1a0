//! The driver type, and what a driver must provide.
#![allow(unsafe_code)]

use crate::common::Common;
use crate::counters::Counters;
use crate::epoll::Epoll;
use crate::event::Event;
use crate::op::{FileStart, MemoryOp, Op};
use crate::pool::{Budget, Pool, PoolSize};
use crate::slots::Token;
use crate::uring::Uring;
use crate::wait::Wait;
use crate::workers::Job;
use annulus_kernel::file::FileCall;
use annulus_kernel::{Fd, Kernel};
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

/// The drivers, one of which is chosen at run time. The methods are those that each driver must provide.
#[derive(Debug)]
pub enum Driver {
    /// io_uring.
    Uring(Box<Uring>),
    /// epoll, for systems without io_uring.
    Epoll(Box<Epoll>),
}

impl Driver {
    #[inline]
    fn common(&self) -> &Common {
        match self {
            Self::Uring(uring) => &uring.common,
            Self::Epoll(epoll) => &epoll.common,
        }
    }

    #[inline]
    fn common_mut(&mut self) -> &mut Common {
        match self {
            Self::Uring(uring) => &mut uring.common,
            Self::Epoll(epoll) => &mut epoll.common,
        }
    }

    /// Queues an operation that names no memory; it starts with the next [`turn`](Self::turn) at the latest. It never fails: if there
    /// is no space, operations wait in order.
    ///
    /// ```compile_fail,E0308
    /// use annulus_driver::{Driver, MemoryOp, Token};
    ///
    /// fn sends(driver: &mut Driver, fd: annulus_kernel::Fd) {
    ///     let (buffer, len) = (std::ptr::null(), 64);
    ///     driver.submit(Token::IGNORED, MemoryOp::SendNow { fd, buffer, len });
    /// }
    /// ```
    #[inline]
    pub fn submit(&mut self, token: Token, op: Op) {
        match self {
            Self::Uring(uring) => uring.submit(token, op),
            Self::Epoll(epoll) => epoll.submit(token, op),
        }
    }

    /// Queues an operation that names memory; otherwise as [`submit`](Self::submit).
    ///
    /// # Safety
    /// Memory that the operation names must stay valid, unmoved and unused by other code until its terminal event was taken; for the
    /// `…Now` sends, until that or until [`settled`](Self::settled) is true after all events were taken.
    #[inline]
    pub unsafe fn submit_memory(&mut self, token: Token, op: MemoryOp) {
        // SAFETY: both drivers demand what this function demands.
        unsafe {
            match self {
                Self::Uring(uring) => uring.submit_memory(token, op),
                Self::Epoll(epoll) => epoll.submit_memory(token, op),
            }
        }
    }

    /// Makes a file call off the loop: by the ring if it has the operation, else by a worker thread; one that may hang by a thread apart
    /// from the others.
    ///
    /// # Safety
    /// Memory that the call names must stay valid, unmoved and unused by other code until its terminal event was taken, and descriptors
    /// open and the caller's to use.
    #[inline]
    pub unsafe fn submit_file(&mut self, token: Token, call: FileCall, start: FileStart) {
        // SAFETY: a job demands what this function demands.
        let job = unsafe { Job::new(token, call) };
        match self {
            Self::Uring(uring) => uring.submit_job(job, start),
            Self::Epoll(epoll) => epoll.submit_job(job, start.group()),
        }
    }

    /// Starts what was queued, and waits.
    ///
    /// # Errors
    /// An error that no retry can mend: the driver cannot be used any more.
    #[inline]
    pub fn turn(&mut self, wait: Wait) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.turn(wait),
            Self::Epoll(epoll) => epoll.turn(wait),
        }
    }

    /// A descriptor that becomes readable when a turn has something to do while the driver is [armed](Self::arm): for an event loop
    /// that waits for other things too, and watches it for edges. It is another descriptor of the given eventfd, which other threads may
    /// write to as well, or of the epoll instance.
    ///
    /// # Errors
    /// The system's.
    pub fn notifier(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        match self {
            Self::Uring(uring) => uring.notifier(eventfd),
            Self::Epoll(epoll) => epoll.notifier(),
        }
    }

    /// From now on the [notifier](Self::notifier) becomes readable when something happens. False if there is something to do already:
    /// then take a turn instead of waiting.
    #[inline]
    pub fn arm(&mut self) -> bool {
        match self {
            Self::Uring(uring) => uring.arm(),
            Self::Epoll(epoll) => epoll.is_drained(),
        }
    }

    /// Ends what [`arm`](Self::arm) has begun: for the time of a turn, whose events need no notice.
    #[inline]
    pub fn disarm(&mut self) {
        if let Self::Uring(uring) = self {
            uring.disarm();
        }
    }

    /// Takes the next event, if there is one. Take all of them after each turn.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        match self {
            Self::Uring(uring) => uring.next_event(),
            Self::Epoll(epoll) => epoll.next_event(),
        }
    }

    /// Tells the tokens of the events that come so many events `ahead` of the next one, as far as they are known already: hints.
    #[inline]
    pub fn upcoming(&self, ahead: Range<u32>, tell: impl FnMut(Token)) {
        match self {
            Self::Uring(uring) => uring.upcoming(ahead).for_each(tell),
            Self::Epoll(epoll) => epoll.upcoming(ahead).for_each(tell),
        }
    }

    /// True if every operation that was submitted has been started.
    pub fn is_clear(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.is_clear(),
            Self::Epoll(_) => true,
        }
    }

    /// True if a turn that does not wait would only look for events: nothing is queued to start, and nothing is left of the last turn.
    #[inline]
    pub fn has_nothing_queued(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.has_nothing_queued(),
            Self::Epoll(epoll) => epoll.has_nothing_queued(),
        }
    }

    /// True if the last turn started everything that was submitted before it: memory that need outlive only the submission may be
    /// freed.
    #[inline]
    pub fn all_taken(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.all_taken(),
            // An operation is tried, or its arguments are copied, when it is submitted.
            Self::Epoll(_) => true,
        }
    }

    /// True if, besides, every event so far was taken: a `…Now` send that was submitted before the last turn and has had no event
    /// was sent whole.
    #[inline]
    pub fn settled(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.settled(),
            Self::Epoll(epoll) => epoll.settled(),
        }
    }

    /// Whether [`MemoryOp::SendToNow`] is there: in io_uring since 6.1.
    #[inline]
    pub fn addresses_sends(&self) -> bool {
        self.common().addresses_sends
    }

    /// Whether `…Now` sends are made when they are submitted: then each that has had no event once the driver is
    /// [settled](Self::settled) was sent whole, also before the next turn.
    pub fn sends_at_once(&self) -> bool {
        matches!(self, Self::Epoll(_))
    }

    /// Publishes returned buffers, so that [`Pool::with_kernel`] is what the next operations will find. Call it once before each
    /// turn.
    #[inline]
    pub fn refill(&mut self) {
        match self {
            Self::Uring(uring) => uring.refill(),
            Self::Epoll(epoll) => epoll.refill(),
        }
    }

    /// True once after the pools were trimmed: the caller can free what it keeps for reuse.
    #[inline]
    pub fn take_trimmed(&mut self) -> bool {
        std::mem::take(&mut self.common_mut().trimmed)
    }

    /// Limits how much receives may bring before the next turn.
    pub fn set_budget(&mut self, budget: Budget) {
        let share = if self.datagram_pool().is_some() && budget != Budget::NONE { 2 } else { 1 };
        let budget = Budget { bytes: budget.bytes / share, ..budget };
        self.pool().set_budget(budget);
        self.datagram_pool().into_iter().for_each(|datagrams| datagrams.set_budget(budget));
        if let Self::Epoll(epoll) = self {
            epoll.set_budget(budget);
        }
    }

    /// Bytes of memory that the buffers of the pools have.
    #[inline]
    pub fn resident(&self) -> usize {
        self.pool().resident() + self.datagram_pool().map_or(0, |pool| pool.resident())
    }

    /// The part of the resident memory that users have, as [`Pool::resident_lent`] knows it.
    pub fn resident_lent(&self) -> usize {
        self.pool().resident_lent() + self.datagram_pool().map_or(0, |pool| pool.resident_lent())
    }

    /// The pool that streams receive into.
    #[inline]
    pub fn pool(&self) -> &Rc<Pool> {
        &self.common().pool
    }

    /// Makes the pool that datagrams are received into, unless it exists.
    ///
    /// # Errors
    /// `Unsupported` if the driver cannot receive messages; or the errors of [`Pool::new`].
    pub fn open_datagram_pool(&mut self, size: PoolSize) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.open_datagram_pool(size),
            Self::Epoll(epoll) => epoll.open_datagram_pool(size),
        }
    }

    /// The pool that datagrams are received into, once it exists. Operations of [`Kind::RecvDatagram`](crate::Kind::RecvDatagram) receive into
    /// its buffers, all others into those of [`pool`](Self::pool).
    #[inline]
    pub fn datagram_pool(&self) -> Option<&Rc<Pool>> {
        self.common().datagrams.as_ref()
    }

    /// Whether a multishot receive can have a limit.
    #[inline]
    pub fn limits_receives(&self) -> bool {
        self.common().limits_receives
    }

    /// Whether a multishot receive may miss a reset that comes together with data.
    pub fn loses_resets(&self) -> bool {
        matches!(self, Self::Uring(_)) && self.kernel().real_descriptors()
    }

    /// Closes a descriptor that no operation in flight names, before it returns. [`Op::Close`] closes it with the turn, which costs
    /// less.
    pub fn close_now(&mut self, fd: Fd) {
        match self {
            Self::Uring(uring) => uring.common.kernel.close(fd),
            Self::Epoll(epoll) => epoll.close(fd),
        }
    }

    /// Closes a descriptor that no operation names on a thread apart from others, since the close may hang. Calls of one group, such as
    /// those on one mount, hold up each other only.
    pub fn close_apart(&mut self, group: u64, fd: Fd) {
        match self {
            Self::Uring(uring) => uring.close_apart(group, fd),
            Self::Epoll(epoll) => epoll.close_apart(group, fd),
        }
    }

    /// Releases a descriptor that no operation in flight names. It stays open, and is used and closed elsewhere.
    pub fn release(&mut self, fd: Fd) {
        if let Self::Epoll(epoll) = self {
            epoll.release(fd);
        }
    }

    /// The counters.
    #[inline]
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.common_mut().counters
    }

    /// The kernel, for direct calls.
    #[inline]
    pub fn kernel(&self) -> &Rc<dyn Kernel> {
        &self.common().kernel
    }

    /// Closes the driver. Afterwards the kernel uses none of the pools' memory.
    ///
    /// # Errors
    /// If a pool could not be unregistered. The caller must then leak what operations may still name.
    pub fn close(self) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.close(),
            Self::Epoll(_) => Ok(()),
        }
    }
}
