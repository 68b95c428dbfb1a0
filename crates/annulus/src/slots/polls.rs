//! Polls: readiness of descriptors that other code reads and writes, namely the runtime's wake
//! descriptor and those in an `AsyncFd`.
//!
//! A direction is *idle* until a task waits for it, then *in flight*: the driver polls once, for
//! the current state and not for changes. At the event it becomes *ready*, until it is cleared, or
//! *failed*, until the error is returned. So nothing depends on edges: if readiness is cleared too
//! early or data is only partly read, the next wait returns at once. The wake descriptor is
//! different: the runtime itself keeps its poll in flight.
#![allow(unsafe_code)]

use crate::bytes::chunk::DeferredDrops;
use crate::slots::Waits;
use crate::slots::arming::{SHORTAGE_PAUSE, is_shortage};
use crate::slots::find_or_late;
use crate::slots::loop_state::LoopState;
use crate::timers::TimerAction;
use crate::waiters::{Wait, Waiters};
use annulus_driver::{Event, Op, OpKind, Slab, SlotId, Token};
use annulus_kernel::{Fd, named, with_watch_limit};
use rustix::io::Errno;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::task::{Context, Poll};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollSide {
    Readable,
    Writable,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum PollState {
    #[default]
    Idle,
    InFlight,
    Ready,
    Failed(Errno),
}

/// One direction of a descriptor. Waiting tasks do not consume readiness, so all of them are woken.
#[derive(Default)]
struct PollDirection {
    state: PollState,
    waiters: Waiters,
}

/// A descriptor that can be waited for. Its owner closes it, after [`Polls::drop_poll`].
struct PolledDescriptor {
    fd: Fd,
    /// What tasks wait for, in reports about waiting tasks. For example, "for a descriptor".
    what: &'static str,
    /// Whether this is the runtime's wake descriptor. Its poll is kept armed, so that each write
    /// ends the loop's wait. No task waits for it.
    is_wake: bool,
    readable: PollDirection,
    writable: PollDirection,
    dropped: bool,
}

impl PolledDescriptor {
    fn direction(&mut self, side: PollSide) -> &mut PollDirection {
        match side {
            PollSide::Readable => &mut self.readable,
            PollSide::Writable => &mut self.writable,
        }
    }

    fn is_armed(&self) -> bool {
        [&self.readable, &self.writable].iter().any(|it| it.state == PollState::InFlight)
    }
}

#[derive(Default)]
pub(crate) struct Polls(Slab<PolledDescriptor>);

impl Polls {
    /// Adds a descriptor that tasks can wait for.
    pub(crate) fn add(&mut self, fd: BorrowedFd<'_>, what: &'static str) -> u32 {
        // SAFETY: the descriptor stays open while it is polled: its owner closes it only after the
        // poll has been dropped or the runtime has ended.
        let fd = unsafe { Fd::from_raw(fd.as_raw_fd()) };
        let [readable, writable] = [PollDirection::default(), PollDirection::default()];
        let (is_wake, dropped) = (false, false);
        self.0.insert(PolledDescriptor { fd, what, is_wake, readable, writable, dropped })
    }

    /// Adds the descriptor that wakes the loop. It is never read, and each write to it ends the
    /// loop's wait.
    pub(crate) fn add_wake(&mut self, state: &mut LoopState, fd: BorrowedFd<'_>) -> u32 {
        let slot = self.add(fd, "to be woken");
        self.0.get(slot).is_wake = true;
        self.arm(state, slot, PollSide::Readable);
        slot
    }

    /// Returns `Ready` once the descriptor is ready, until the readiness is [cleared](Self::clear).
    /// An event wakes every task that waits.
    ///
    /// # Errors
    /// The reason why the descriptor cannot be polled. Each failure is returned once.
    pub(crate) fn poll(
        &mut self,
        state: &mut LoopState,
        slot: u32,
        side: PollSide,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        let direction = self.0.get(slot).direction(side);
        match direction.state {
            PollState::Ready => return Poll::Ready(Ok(())),
            PollState::Failed(errno) => {
                direction.state = PollState::Idle;
                return Poll::Ready(Err(named("poll")(with_watch_limit(errno.into()))));
            }
            PollState::Idle | PollState::InFlight => {}
        }
        let DeferredDrops { wakes, drops, .. } = &mut state.deferred;
        direction.waiters.wait(wait, cx.waker(), wakes, drops);
        if direction.state == PollState::Idle {
            self.arm(state, slot, side);
        }
        Poll::Pending
    }

    /// Removes a future that no longer waits. Readiness belongs to all waiters, so none of them has
    /// to be notified instead.
    pub(crate) fn leave(
        &mut self,
        state: &mut LoopState,
        slot: u32,
        side: PollSide,
        wait: Wait<'_>,
    ) {
        self.0.get(slot).direction(side).waiters.leave(wait, &mut state.deferred.drops);
    }

    /// Clears readiness that has ended, so that the next wait polls again.
    pub(crate) fn clear(&mut self, slot: u32, side: PollSide) {
        let direction = self.0.get(slot).direction(side);
        if direction.state == PollState::Ready {
            direction.state = PollState::Idle;
        }
    }

    /// Records the outcome of a poll. Not inlined, because the events of streams are more frequent
    /// and pass through the same match.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_event(&mut self, state: &mut LoopState, event: Event) {
        let SlotId { index, generation } = event.token.id();
        let (slot, is_writable) = (index / 2, index % 2 == 1);
        let event = Event { token: Token::new(OpKind::Poll, generation, slot), ..event };
        let Some(poll) = find_or_late(&mut self.0, state, &event) else { return };
        if event.more {
            return;
        }
        state.in_flight -= 1;
        let side = if is_writable { PollSide::Writable } else { PollSide::Readable };
        let direction = poll.direction(side);
        direction.state = match event.result {
            // As with poll(2), a descriptor that epoll refuses is always ready.
            Ok(_) | Err(Errno::PERM) => PollState::Ready,
            Err(errno) => PollState::Failed(errno),
        };
        direction.waiters.notify_all(&mut state.deferred.wakes);
        if poll.dropped {
            self.remove_unarmed(slot);
        } else if poll.is_wake && is_shortage(event.result) {
            let retry = TimerAction::WakePoll(self.0.id(slot));
            state.timers.insert(state.now() + SHORTAGE_PAUSE, retry);
        } else if poll.is_wake && !matches!(event.result, Err(Errno::BADF | Errno::INVAL)) {
            self.arm(state, slot, side);
        }
    }

    /// Polls the wake descriptor again after a pause.
    pub(crate) fn on_retry(&mut self, state: &mut LoopState, id: SlotId) {
        if self.0.find(id).is_some_and(|poll| !poll.dropped && !poll.is_armed()) {
            self.arm(state, id.index, PollSide::Readable);
        }
    }

    /// Handles a dropped handle: cancels its polls. The owner of the descriptor closes it.
    pub(crate) fn drop_poll(&mut self, state: &mut LoopState, slot: u32) {
        if mem::replace(&mut self.0.get(slot).dropped, true) {
            return;
        }
        for side in [PollSide::Readable, PollSide::Writable] {
            let token = self.token(slot, side);
            let direction = self.0.get(slot).direction(side);
            direction.waiters.notify_all(&mut state.deferred.drops);
            if direction.state == PollState::InFlight {
                state.cancel(token);
            }
        }
        state.driver.release(self.0.get(slot).fd);
        self.remove_unarmed(slot);
    }

    fn remove_unarmed(&mut self, slot: u32) {
        if !self.0.get(slot).is_armed() {
            self.0.remove(slot);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        for poll in self.0.values() {
            for direction in [&poll.readable, &poll.writable] {
                direction.waiters.wakers().for_each(|waker| waits.note(waker, || poll.what.into()));
            }
        }
    }

    /// Cancels all polls. Handles that outlive the runtime return errors.
    pub(crate) fn stop_all(&mut self, state: &mut LoopState) {
        for slot in self.0.indices() {
            self.drop_poll(state, slot);
        }
    }

    fn arm(&mut self, state: &mut LoopState, slot: u32, side: PollSide) {
        let token = self.token(slot, side);
        let poll = self.0.get(slot);
        let fd = poll.fd;
        poll.direction(side).state = PollState::InFlight;
        let op = match side {
            PollSide::Readable if poll.is_wake => Op::Readable { fd },
            PollSide::Readable => Op::ReadableOnce { fd },
            PollSide::Writable => Op::WritableOnce { fd },
        };
        state.start(token, op);
    }

    /// Returns the token of a direction. Each direction of a slot has its own.
    fn token(&self, slot: u32, side: PollSide) -> Token {
        let name = slot * 2 + u32::from(side == PollSide::Writable);
        Token::new(OpKind::Poll, self.0.id(slot).generation, name)
    }
}
