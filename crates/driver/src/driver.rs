//! The one driver type, and what a driver must supply.
#![allow(unsafe_code)]

use crate::counters::Counters;
use crate::epoll::Epoll;
use crate::event::Event;
use crate::op::{MemoryOp, Op};
use crate::operations::Operations;
use crate::pool::{Budget, Pool, PoolSize};
use crate::token::Token;
use crate::uring::Uring;
use annulus_kernel::{Fd, IoVec, Kernel};
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// How long a turn may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until something happens or the time is up; `None` is for ever.
    Upto(Option<Duration>),
}

/// The closed set of drivers, chosen at run time. What each must supply is the list of this type's methods.
#[derive(Debug)]
pub enum Driver {
    /// io_uring.
    Uring(Box<Uring>),
    /// epoll, where io_uring is blocked.
    Epoll(Box<Epoll>),
}

impl Driver {
    /// Queues an operation that names no memory; it starts with the next [`turn`](Self::turn) at the latest. Never fails: what
    /// finds no room waits its turn, in order.
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
    /// Memory that the operation names must stay valid, unmoved and untouched until its terminal event was taken; for
    /// the `…Now` sends, until that or until [`settled`](Self::settled) is true once all events were taken.
    ///
    /// Descriptors that a call on files names must be open, and the caller's to use, until the terminal event.
    #[inline]
    pub unsafe fn submit_memory(&mut self, token: Token, op: MemoryOp) {
        match self {
            // SAFETY: the caller's promise, passed on.
            Self::Uring(uring) => unsafe { uring.submit_memory(token, op) },
            // SAFETY: as above.
            Self::Epoll(epoll) => unsafe { epoll.submit_memory(token, op) },
        }
    }

    /// Starts what was queued and waits as told.
    ///
    /// # Errors
    /// What no retry mends: the driver is of no use any more.
    #[inline]
    pub fn turn(&mut self, wait: Wait) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.turn(wait),
            Self::Epoll(epoll) => epoll.turn(wait),
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

    /// Whose event stands `ahead` places behind the next one, where that is known already: a hint.
    #[inline]
    pub fn upcoming(&self, ahead: u32) -> Option<Token> {
        match self {
            Self::Uring(uring) => uring.upcoming(ahead),
            Self::Epoll(epoll) => epoll.upcoming(ahead),
        }
    }

    /// True where nothing that was submitted waits to be started.
    pub fn is_clear(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.is_clear(),
            Self::Epoll(_) => true,
        }
    }

    /// True where the last turn started everything that had been submitted before it: what was to outlive the submission
    /// only may go.
    #[inline]
    pub fn all_taken(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.all_taken(),
            // Whatever was submitted was tried there and then.
            Self::Epoll(_) => true,
        }
    }

    /// True where, besides, every event so far was taken: a `…Now` send submitted before the last turn and without an
    /// event by then went out whole.
    #[inline]
    pub fn settled(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.settled(),
            Self::Epoll(epoll) => epoll.settled(),
        }
    }

    /// Whether there are `…Now` sends at all. Where not, submit the others: each has an event.
    #[inline]
    pub fn sends_quietly(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.sends_quietly(),
            Self::Epoll(_) => true,
        }
    }

    /// Which operations carry the bytes of streams. What is asked for by another name is done by these.
    #[inline]
    pub fn operations(&self) -> Operations {
        match self {
            Self::Uring(uring) => uring.operations(),
            Self::Epoll(_) => Operations::default(),
        }
    }

    /// True where `…Now` sends happen as they are submitted, and every event so far was taken: each of them that has no
    /// event by now went out whole.
    #[inline]
    pub fn sent_at_once(&self) -> bool {
        match self {
            Self::Uring(_) => false,
            Self::Epoll(epoll) => epoll.settled(),
        }
    }

    /// Publishes returned buffers, so that [`Pool::with_kernel`] tells what the next operations will find. Once a turn,
    /// before it.
    #[inline]
    pub fn refill(&mut self) {
        match self {
            Self::Uring(uring) => uring.refill(),
            Self::Epoll(epoll) => epoll.refill(),
        }
    }

    /// True once after receive memory that was not needed has gone back to the system: time for the caller to do the same.
    #[inline]
    pub fn take_trimmed(&mut self) -> bool {
        let trimmed = match self {
            Self::Uring(uring) => &mut uring.trimmed,
            Self::Epoll(epoll) => &mut epoll.trimmed,
        };
        std::mem::take(trimmed)
    }

    /// Sets how much receives may bring before the next turn.
    pub fn set_budget(&mut self, budget: Budget) {
        let share = if self.packets().is_some() && budget != Budget::NONE { 2 } else { 1 };
        let budget = Budget { bytes: budget.bytes / share, ..budget };
        self.pool().set_budget(budget);
        self.packets().into_iter().for_each(|packets| packets.set_budget(budget));
        if let Self::Epoll(epoll) = self {
            epoll.set_budget(budget);
        }
    }

    /// Bytes of memory that the pools' buffers have.
    #[inline]
    pub fn resident(&self) -> usize {
        self.pool().resident() + self.packets().map_or(0, |pool| pool.resident())
    }

    /// The lent memory.
    #[inline]
    pub fn pool(&self) -> &Rc<Pool> {
        match self {
            Self::Uring(uring) => uring.pool(),
            Self::Epoll(epoll) => epoll.pool(),
        }
    }

    /// Makes the pool that datagrams are received into, unless it is there already.
    ///
    /// # Errors
    /// `Unsupported`, where the driver cannot receive messages; or as [`Pool::new`].
    pub fn open_packets(&mut self, size: PoolSize) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.open_packets(size),
            Self::Epoll(epoll) => epoll.open_packets(size),
        }
    }

    /// The pool that datagrams are received into, once it is open. Operations of [`Kind::Packet`](crate::Kind::Packet)
    /// borrow from it, all others from [`pool`](Self::pool).
    #[inline]
    pub fn packets(&self) -> Option<&Rc<Pool>> {
        match self {
            Self::Uring(uring) => uring.packets(),
            Self::Epoll(epoll) => epoll.packets(),
        }
    }

    /// Has the kernel hold on to memory, so that reads and writes of files within it have no pages to look up. The answer
    /// names it.
    ///
    /// # Errors
    /// `Unsupported`, where the driver has no such thing; or whatever the kernel says. The memory is as good as any other.
    ///
    /// # Safety
    /// The memory must stay where it is until it was [forgotten](Self::forget_memory), or the driver has gone.
    pub unsafe fn register_memory(&mut self, memory: IoVec) -> io::Result<u32> {
        match self {
            // SAFETY: the caller's promise, passed on.
            Self::Uring(uring) => unsafe { uring.register_memory(memory) },
            Self::Epoll(_) => {
                let text = "the epoll driver registers no memory";
                Err(io::Error::new(io::ErrorKind::Unsupported, text))
            }
        }
    }

    /// Gives registered memory up: it may go once no operation names it any more.
    pub fn forget_memory(&mut self, name: u32) {
        match self {
            Self::Uring(uring) => uring.forget_memory(name),
            Self::Epoll(_) => unreachable!("it has named none"),
        }
    }

    /// Whether a receive can be given a total limit.
    #[inline]
    pub fn limits_receives(&self) -> bool {
        match self {
            Self::Uring(uring) => uring.limits_receives(),
            Self::Epoll(_) => true,
        }
    }

    /// Closes a descriptor of which nothing is in flight, before this returns: [`Op::Close`] closes it with the turn, which
    /// costs less.
    pub fn close_now(&mut self, fd: Fd) {
        match self {
            Self::Uring(uring) => uring.kernel().close(fd),
            Self::Epoll(epoll) => epoll.close(fd),
        }
    }

    /// A descriptor of which nothing is in flight leaves, open: it will be used and closed elsewhere.
    pub fn release(&mut self, fd: Fd) {
        match self {
            Self::Uring(_) => {}
            Self::Epoll(epoll) => epoll.release(fd),
        }
    }

    /// What was counted so far.
    #[inline]
    pub fn counters(&mut self) -> &mut Counters {
        match self {
            Self::Uring(uring) => uring.counters(),
            Self::Epoll(epoll) => epoll.counters(),
        }
    }

    /// The kernel for direct calls.
    #[inline]
    pub fn kernel(&self) -> &Rc<dyn Kernel> {
        match self {
            Self::Uring(uring) => uring.kernel(),
            Self::Epoll(epoll) => epoll.kernel(),
        }
    }

    /// Ends the driver: afterwards the kernel knows none of the pool's memory.
    ///
    /// # Errors
    /// Where the kernel would not let go. The caller must then leak what operations may still name.
    pub fn close(self) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.close(),
            Self::Epoll(_) => Ok(()),
        }
    }
}
