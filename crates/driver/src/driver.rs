//! The [`Driver`] type, which forwards calls to io_uring or epoll.
#![allow(unsafe_code)]

use crate::counters::Counters;
use crate::driver_state::DriverState;
use crate::epoll::Epoll;
use crate::event::Event;
use crate::op::{FileStart, MemoryOp, Op};
use crate::pool::{Pool, PoolSize, ReceiveBudget};
use crate::slots::Token;
use crate::uring::{BufferRegistry, Uring};
use crate::wait::Wait;
use crate::workers::FileJob;
use annulus_kernel::file::FileCall;
use annulus_kernel::{Fd, Kernel};
use annulus_ring::Entry;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

/// A driver, chosen at run time.
#[derive(Debug)]
pub enum Driver {
    /// io_uring.
    Uring(Box<Uring>),
    /// epoll, for systems without io_uring.
    Epoll(Box<Epoll>),
}

impl Driver {
    #[inline]
    fn common(&self) -> &DriverState {
        match self {
            Self::Uring(uring) => &uring.common,
            Self::Epoll(epoll) => &epoll.common,
        }
    }

    #[inline]
    fn common_mut(&mut self) -> &mut DriverState {
        match self {
            Self::Uring(uring) => &mut uring.common,
            Self::Epoll(epoll) => &mut epoll.common,
        }
    }

    /// Queues an operation that refers to no memory. Queueing never fails: operations that find the
    /// submission queue full wait in order, and the others start with the next [`turn`](Self::turn)
    /// at the latest.
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

    /// Queues an operation that refers to memory, but otherwise works like
    /// [`submit`](Self::submit).
    ///
    /// # Safety
    /// Memory that the operation refers to must stay valid, unmoved and unused by other code until
    /// its terminal event has been taken. For a `…Now` send, this ends earlier if
    /// [`sends_assumed_complete`](Self::sends_assumed_complete) shows that the send is complete.
    #[inline]
    pub unsafe fn submit_memory(&mut self, token: Token, op: MemoryOp) {
        // SAFETY: the caller fulfils the contract of this function, and both drivers require the
        // same.
        unsafe {
            match self {
                Self::Uring(uring) => uring.submit_memory(token, op),
                Self::Epoll(epoll) => epoll.submit_memory(token, op),
            }
        }
    }

    /// Makes a file call off the loop: on the ring if possible, otherwise on a worker thread. On
    /// epoll, the kernel makes direct reads and writes without a thread if it can. A call that may
    /// hang runs on a separate thread.
    ///
    /// `in_flight` is the number of file calls whose terminal event has not been taken, including
    /// this one, but without [isolated](FileStart::Isolated) ones. It determines how many
    /// [`Early`](FileStart::Early) calls are submitted together.
    ///
    /// # Safety
    /// Until the terminal event has been taken, memory that the call refers to must stay valid,
    /// unmoved and unused by other code, and its descriptors must stay open.
    #[inline]
    pub unsafe fn submit_file(
        &mut self,
        token: Token,
        call: FileCall,
        start: FileStart,
        in_flight: u32,
    ) {
        // SAFETY: the caller fulfils the contract of this function, and a job requires the same.
        let job = unsafe { FileJob::new(token, call) };
        match self {
            Self::Uring(uring) => uring.submit_job(job, start, in_flight),
            Self::Epoll(epoll) => epoll.submit_job(job, start, in_flight),
        }
    }

    /// Checks that [`submit_custom`](Self::submit_custom) can submit an operation.
    ///
    /// # Errors
    /// Returns `Unsupported` on epoll, on a locked-down ring, under a simulated kernel, and if the
    /// kernel's io_uring does not have the operation.
    pub fn check_custom(&self, opcode: u8) -> io::Result<()> {
        let refused = match self {
            Self::Uring(uring) => uring.check_custom(opcode),
            Self::Epoll(_) => Err("the epoll driver has no ring to submit it to".to_owned()),
        };
        refused.map_err(|reason| {
            let text = format!("operation {opcode} of io_uring is not available: {reason}");
            io::Error::new(io::ErrorKind::Unsupported, text)
        })
    }

    /// Queues an operation that a program defines. The driver sets the entry's `user_data`.
    ///
    /// # Panics
    /// If [`check_custom`](Self::check_custom) fails for the operation.
    ///
    /// # Safety
    /// Until the terminal event has been taken, memory that the entry refers to must stay valid,
    /// unmoved and unused by other code, and its descriptors must stay open. The entry must not
    /// affect the ring or other operations, and must have no flags other than
    /// [`ASYNC`](annulus_ring::EntryFlags::ASYNC).
    pub unsafe fn submit_custom(&mut self, token: Token, entry: Entry) {
        match self {
            // SAFETY: the caller fulfils the contract of this function, and the driver requires the
            // same.
            Self::Uring(uring) => unsafe { uring.submit_custom(token, entry) },
            Self::Epoll(_) => panic!("the epoll driver has no ring"),
        }
    }

    /// Starts the queued operations, and waits for events as long as `wait` allows.
    ///
    /// # Errors
    /// Returns the error of the system call. No retry can succeed: the driver is no longer usable.
    #[inline]
    pub fn turn(&mut self, wait: Wait) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.turn(wait),
            Self::Epoll(epoll) => epoll.turn(wait),
        }
    }

    /// Starts the queued operations without taking events. A kernel thread that takes submissions
    /// may start them a little later.
    pub fn start_queued(&mut self) {
        if let Self::Uring(uring) = self {
            uring.submit_queued();
        }
    }

    /// Returns a descriptor that another event loop can watch, edge-triggered. While the notifier
    /// is [enabled](Self::enable_notifier), it becomes readable when a turn has something to do. On
    /// io_uring, it is a duplicate of `eventfd`, which other threads may also write to. On epoll,
    /// it is a duplicate of the epoll instance.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn notifier(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        match self {
            Self::Uring(uring) => uring.notifier(eventfd),
            Self::Epoll(epoll) => epoll.notifier(),
        }
    }

    /// From now on, the [notifier](Self::notifier) becomes readable when a turn has something to
    /// do. Returns false if a turn already has something to do: the caller must take one instead of
    /// waiting.
    #[inline]
    pub fn enable_notifier(&mut self) -> bool {
        match self {
            Self::Uring(uring) => uring.enable_notifier(),
            Self::Epoll(epoll) => epoll.is_drained(),
        }
    }

    /// Disables the [notifier](Self::notifier) during a turn, whose events need no notification.
    #[inline]
    pub fn disable_notifier(&mut self) {
        if let Self::Uring(uring) = self {
            uring.disable_notifier();
        }
    }

    /// Takes the next event, if any. The caller takes all events after each turn.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        match self {
            Self::Uring(uring) => uring.next_event(),
            Self::Epoll(epoll) => epoll.next_event(),
        }
    }

    /// Passes the tokens of upcoming events to `report`, as far as they are known. The next event
    /// has position 0. The tokens are hints: some may have no event.
    #[inline]
    pub fn upcoming_tokens(&self, positions: Range<u32>, report: impl FnMut(Token)) {
        match self {
            Self::Uring(uring) => uring.upcoming_tokens(positions).for_each(report),
            Self::Epoll(epoll) => epoll.upcoming_tokens(positions).for_each(report),
        }
    }

    /// Returns true if every submitted operation has started.
    pub fn has_started_all(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.has_started_all(),
            Self::Epoll(_) => true,
        }
    }

    /// Returns true if nothing is queued to start, and nothing is left over from the last turn. A
    /// turn that does not wait would then only check for events.
    #[inline]
    pub fn has_nothing_queued(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.has_nothing_queued(),
            Self::Epoll(epoll) => epoll.has_nothing_queued(),
        }
    }

    /// Returns true if the last turn started everything that was submitted before it. Memory that
    /// need only outlive the submission may then be freed.
    #[inline]
    pub fn last_turn_started_all(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.last_turn_started_all(),
            // The driver tries each operation, or copies its arguments, at submission.
            Self::Epoll(_) => true,
        }
    }

    /// Like [`last_turn_started_all`](Self::last_turn_started_all), but also requires that every
    /// event so far has been taken. If so, every `…Now` send that was submitted before the last
    /// turn and had no event has sent all its bytes.
    #[inline]
    pub fn sends_assumed_complete(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.sends_assumed_complete(),
            Self::Epoll(epoll) => epoll.sends_assumed_complete(),
        }
    }

    /// Returns true if [`MemoryOp::SendToNow`] is supported. io_uring needs Linux 6.1.
    #[inline]
    pub fn supports_send_to_now(&self) -> bool {
        self.common().supports_send_to_now
    }

    /// Returns true if `…Now` sends are made at submission. A send without an event is then
    /// complete as soon as [`sends_assumed_complete`](Self::sends_assumed_complete) returns true,
    /// even before the next turn.
    pub fn sends_on_submit(&self) -> bool {
        matches!(self, Self::Epoll(_))
    }

    /// Publishes returned buffers, so that the next operations can receive into them. The caller
    /// calls this once before each turn.
    #[inline]
    pub fn refill(&mut self) {
        match self {
            Self::Uring(uring) => uring.refill(),
            Self::Epoll(epoll) => epoll.refill(),
        }
    }

    /// Returns true once after each trim of the pools. The caller can then free memory that it
    /// keeps for reuse.
    #[inline]
    pub fn take_trimmed(&mut self) -> bool {
        std::mem::take(&mut self.common_mut().trimmed)
    }

    /// Limits the number of bytes received before the next turn.
    pub fn set_budget(&mut self, budget: ReceiveBudget) {
        let share = if self.datagram_pool().is_some() && budget != ReceiveBudget::UNLIMITED {
            2
        } else {
            1
        };
        let budget = ReceiveBudget { bytes: budget.bytes / share, ..budget };
        self.pool().set_budget(budget);
        self.datagram_pool().into_iter().for_each(|datagrams| datagrams.set_budget(budget));
        if let Self::Epoll(epoll) = self {
            epoll.set_budget(budget);
        }
    }

    /// Returns the number of resident bytes in the buffers of all pools.
    #[inline]
    pub fn resident_bytes(&self) -> usize {
        self.pool().resident_bytes() + self.datagram_pool().map_or(0, |pool| pool.resident_bytes())
    }

    /// Returns the part of the resident memory that is lent, as estimated by
    /// [`Pool::resident_lent_bytes`].
    pub fn resident_lent_bytes(&self) -> usize {
        self.pool().resident_lent_bytes()
            + self.datagram_pool().map_or(0, |pool| pool.resident_lent_bytes())
    }

    /// Returns the pool that streams receive into.
    #[inline]
    pub fn pool(&self) -> &Rc<Pool> {
        &self.common().pool
    }

    /// Returns the registry of the buffers that file calls may use as registered ones, if the
    /// driver has one.
    pub fn buffer_registry(&self) -> Option<&Rc<BufferRegistry>> {
        match self {
            Self::Uring(uring) => uring.buffer_registry(),
            Self::Epoll(_) => None,
        }
    }

    /// Creates the pool that datagrams are received into, unless it exists.
    ///
    /// # Errors
    /// Returns `Unsupported` if the driver cannot receive messages, or the error from reserving or
    /// registering the memory.
    pub fn open_datagram_pool(&mut self, size: PoolSize) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.open_datagram_pool(size),
            Self::Epoll(epoll) => epoll.open_datagram_pool(size),
        }
    }

    /// Returns the pool that datagrams are received into, once it exists. Operations of
    /// [`OpKind::RecvDatagram`](crate::OpKind::RecvDatagram) receive into its buffers; all others
    /// use [`pool`](Self::pool).
    #[inline]
    pub fn datagram_pool(&self) -> Option<&Rc<Pool>> {
        self.common().datagrams.as_ref()
    }

    /// Returns true if a multishot receive can have a limit.
    #[inline]
    pub fn supports_receive_limit(&self) -> bool {
        self.common().supports_receive_limit
    }

    /// Returns true if the pool has an area for [`Op::RecvZeroCopy`].
    #[inline]
    pub fn receives_zero_copy(&self) -> bool {
        self.common().receives_zero_copy
    }

    /// Records that a zero-copy receive found no free memory (ENOMEM), or no space in the completion
    /// queue (ENOSPC). Returns true if a receive into other memory can replace it.
    pub fn record_zero_copy_shortage(&mut self) -> bool {
        match self {
            Self::Uring(uring) => uring.record_zero_copy_shortage(),
            Self::Epoll(_) => false,
        }
    }

    /// Returns true if a multishot receive may miss a reset that arrives together with data.
    pub fn may_miss_resets(&self) -> bool {
        matches!(self, Self::Uring(_)) && self.kernel().real_descriptors()
    }

    /// Closes a descriptor at once. No operation in flight may refer to it. [`Op::Close`] costs
    /// less, but closes the descriptor only with the turn.
    pub fn close_now(&mut self, fd: Fd) {
        match self {
            Self::Uring(uring) => uring.common.kernel.close(fd),
            Self::Epoll(epoll) => epoll.close(fd),
        }
    }

    /// Closes a descriptor on a separate thread, since the close may hang. No operation may refer
    /// to the descriptor. Calls of one group, such as calls on one mount, delay only each other.
    pub fn close_isolated(&mut self, group: u64, fd: Fd) {
        match self {
            Self::Uring(uring) => uring.close_isolated(group, fd),
            Self::Epoll(epoll) => epoll.close_isolated(group, fd),
        }
    }

    /// Stops watching a descriptor that no operation in flight refers to. The descriptor stays
    /// open, and other code uses and closes it.
    pub fn release(&mut self, fd: Fd) {
        if let Self::Epoll(epoll) = self {
            epoll.release(fd);
        }
    }

    /// Returns the counters, some of which the layer above updates.
    #[inline]
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.common_mut().counters
    }

    /// Returns the kernel, for direct calls.
    #[inline]
    pub fn kernel(&self) -> &Rc<dyn Kernel> {
        &self.common().kernel
    }

    /// Closes the driver. Afterwards the kernel no longer uses the pools' memory.
    ///
    /// # Errors
    /// Fails if a pool cannot be unregistered. The caller must then leak all memory that operations
    /// may still refer to.
    pub fn close(self) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.close(),
            Self::Epoll(_) => Ok(()),
        }
    }
}
