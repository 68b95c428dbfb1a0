//! Polls: readiness of descriptors that other code reads and writes: the runtime's wake descriptor, and what an `AsyncFd` has.
//!
//! A direction is *idle* until a task waits for it, then *armed*: the driver polls once, for what is so now and not for what changes. With
//! the event it is *ready*, or has *failed*, and stays so until it is cleared. So nothing depends on an edge: what was cleared too early,
//! or read in part, the next wait finds again.
#![allow(unsafe_code)]

use crate::base::io::Io;
use crate::bytes::after::After;
use crate::slots::arming::SHORT_OF_MEMORY_PAUSE;
use crate::slots::find_or_late;
use crate::slots::waits::Waits;
use crate::timers::TimerAction;
use crate::waiters::{Wait, Waiters};
use annulus_driver::{Event, Kind, Op, Slab, SlotId, Token};
use annulus_kernel::{Fd, named};
use rustix::io::Errno;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::task::{Context, Poll};

/// The readiness that is waited for.
///
/// ```
/// use annulus::io::{AsyncFd, Interest};
/// use std::io::{Read, Write};
///
/// # annulus::run(async {
/// let (reading, mut writing) = std::io::pipe()?;
/// let reading = AsyncFd::new(reading)?;
/// writing.write_all(b"hello")?;
/// let mut bytes = [0; 9];
/// let read = reading.async_io(Interest::Readable, |mut pipe| pipe.read(&mut bytes));
/// assert_eq!(read.await?, 5);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something can be read, or the end or an error is there.
    Readable,
    /// Something can be written, or an error is there.
    Writable,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Armed,
    Ready,
    Failed(Errno),
}

/// One direction of a descriptor. Readiness is not taken by those that wait for it, so that all of them are woken.
#[derive(Default)]
struct Direction {
    state: State,
    waiters: Waiters,
}

/// A descriptor. Its owner closes it, after [`Polls::drop_poll`].
struct Readiness {
    fd: Fd,
    /// A description of the wait of a task that polls.
    what: &'static str,
    /// Armed for as long as it is there, so that every change ends the loop's wait: no task waits.
    is_wake: bool,
    readable: Direction,
    writable: Direction,
    dropped: bool,
}

impl Readiness {
    fn direction(&mut self, interest: Interest) -> &mut Direction {
        match interest {
            Interest::Readable => &mut self.readable,
            Interest::Writable => &mut self.writable,
        }
    }

    fn is_armed(&self) -> bool {
        [&self.readable, &self.writable].iter().any(|it| it.state == State::Armed)
    }
}

/// All polls.
#[derive(Default)]
pub(crate) struct Polls(Slab<Readiness>);

impl Polls {
    /// A descriptor that tasks can wait for.
    pub(crate) fn add(&mut self, fd: BorrowedFd<'_>, what: &'static str) -> u32 {
        // SAFETY: its owner closes it after the poll was dropped, or with the runtime.
        let fd = unsafe { Fd::from_raw(fd.as_raw_fd()) };
        let [readable, writable] = [Direction::default(), Direction::default()];
        let (is_wake, dropped) = (false, false);
        self.0.insert(Readiness { fd, what, is_wake, readable, writable, dropped })
    }

    /// The descriptor that wakes the loop: it is never read, and each write to it ends the loop's wait.
    pub(crate) fn add_wake(&mut self, io: &mut Io, fd: BorrowedFd<'_>) -> u32 {
        let slot = self.add(fd, "to be woken");
        self.0.get(slot).is_wake = true;
        self.arm(io, slot, Interest::Readable);
        slot
    }

    /// Ready once the descriptor is, until that is [cleared](Self::clear). Every task that polled is woken.
    ///
    /// # Errors
    /// Why it cannot be polled, once.
    pub(crate) fn poll(
        &mut self,
        io: &mut Io,
        slot: u32,
        interest: Interest,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        let direction = self.0.get(slot).direction(interest);
        match direction.state {
            State::Ready => return Poll::Ready(Ok(())),
            State::Failed(errno) => {
                direction.state = State::Idle;
                return Poll::Ready(Err(named("poll")(errno)));
            }
            State::Idle | State::Armed => {}
        }
        let After { wakes, drops, .. } = &mut io.after;
        direction.waiters.wait(Wait::Polling, cx.waker(), wakes, drops);
        if direction.state == State::Idle {
            self.arm(io, slot, interest);
        }
        Poll::Pending
    }

    /// It was found not to be ready: the next wait polls again.
    pub(crate) fn clear(&mut self, slot: u32, interest: Interest) {
        let direction = self.0.get(slot).direction(interest);
        if direction.state == State::Ready {
            direction.state = State::Idle;
        }
    }

    /// Not inlined, since the events of streams pass by it: that saves them two instructions.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_event(&mut self, io: &mut Io, event: Event) {
        let SlotId { index, generation } = event.token.id();
        let (slot, is_writable) = (index / 2, index % 2 == 1);
        let event = Event { token: Token::new(Kind::Poll, generation, slot), ..event };
        let Some(poll) = find_or_late(&mut self.0, io, &event) else { return };
        if event.more {
            return;
        }
        io.in_flight -= 1;
        let interest = if is_writable { Interest::Writable } else { Interest::Readable };
        let direction = poll.direction(interest);
        direction.state = match event.result {
            // A descriptor that epoll refuses is always ready, as poll(2) has it.
            Ok(_) | Err(Errno::PERM) => State::Ready,
            Err(errno) => State::Failed(errno),
        };
        direction.waiters.notify(1, &mut io.after.wakes);
        if poll.dropped {
            self.remove_unarmed(slot);
        } else if poll.is_wake && event.result == Err(Errno::NOMEM) {
            let retry = TimerAction::WakePoll(self.0.id(slot));
            io.timers.insert(io.now() + SHORT_OF_MEMORY_PAUSE, retry);
        } else if poll.is_wake && !matches!(event.result, Err(Errno::BADF | Errno::INVAL)) {
            self.arm(io, slot, interest);
        }
    }

    /// The pause of a poll for which the system had no memory is over.
    pub(crate) fn on_retry(&mut self, io: &mut Io, id: SlotId) {
        if self.0.find(id).is_some_and(|poll| !poll.dropped && !poll.is_armed()) {
            self.arm(io, id.index, Interest::Readable);
        }
    }

    /// The handle is gone, and closes the descriptor.
    pub(crate) fn drop_poll(&mut self, io: &mut Io, slot: u32) {
        if mem::replace(&mut self.0.get(slot).dropped, true) {
            return;
        }
        for interest in [Interest::Readable, Interest::Writable] {
            let token = self.token(slot, interest);
            let direction = self.0.get(slot).direction(interest);
            direction.waiters.notify(1, &mut io.after.drops);
            if direction.state == State::Armed {
                io.cancel(token);
            }
        }
        io.driver.release(self.0.get(slot).fd);
        self.remove_unarmed(slot);
    }

    fn remove_unarmed(&mut self, slot: u32) {
        if !self.0.get(slot).is_armed() {
            self.0.remove(slot);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the waits of tasks in these slots.
    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        for poll in self.0.values() {
            for direction in [&poll.readable, &poll.writable] {
                direction.waiters.wakers().for_each(|waker| waits.note(waker, || poll.what.into()));
            }
        }
    }

    /// Ends all polls. Handles that outlive the runtime find it ended.
    pub(crate) fn stop_all(&mut self, io: &mut Io) {
        for slot in self.0.indices() {
            self.drop_poll(io, slot);
        }
    }

    fn arm(&mut self, io: &mut Io, slot: u32, interest: Interest) {
        let token = self.token(slot, interest);
        let poll = self.0.get(slot);
        let fd = poll.fd;
        poll.direction(interest).state = State::Armed;
        let op = match interest {
            Interest::Readable if poll.is_wake => Op::Readable { fd },
            Interest::Readable => Op::ReadableOnce { fd },
            Interest::Writable => Op::WritableOnce { fd },
        };
        io.start(token, op);
    }

    /// Each direction of a slot has a number of its own.
    fn token(&self, slot: u32, interest: Interest) -> Token {
        let name = slot * 2 + u32::from(interest == Interest::Writable);
        Token::new(Kind::Poll, self.0.id(slot).generation, name)
    }
}
