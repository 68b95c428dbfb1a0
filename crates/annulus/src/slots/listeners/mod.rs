//! A listener's slot: connections accepted and not yet claimed.
#![allow(unsafe_code)]

mod limited;

use crate::net::{ConnectionLimit, Permit};
use crate::runtime::after::After;
use crate::runtime::inner::Inner;
use crate::runtime::recheck::Recheck;
use crate::time::Fire;
use crate::waiters::{Wait, WaiterId, Waiters};
use annulus_driver::{Event, Kind, Op, Token};
use annulus_kernel::{Fd, named};
use limited::Limited;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Connections a listener holds for its user before it leaves the rest to the kernel's backlog. One run of a multishot
/// accept takes the whole backlog, so a burst can bring more, once.
const MOST_UNCLAIMED: usize = 64;
/// So many connections in a row that cannot be accepted are no longer taken for the fault of their peers: where the
/// process may not accept at all (a seccomp filter), trying on at once would never end.
const MOST_FAILED: u32 = 16;
/// When to try again after running out of descriptors, if none is closed here before.
const RETRY: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// Waits for a connection to be there.
    Asking,
    Armed,
    Cancelling,
    /// Out of descriptors, or unable to accept: waits for a descriptor to be closed, or for a moment.
    Paused,
}

/// A listener's slot.
pub(crate) struct Listener {
    pub(crate) fd: Fd,
    state: State,
    unclaimed: VecDeque<Accepted>,
    /// One connection at a time, since the user was slow to claim.
    singly: bool,
    error: Option<Errno>,
    /// Connections in a row that were there and could not be accepted.
    failed: u32,
    waiters: Waiters,
    limited: Option<Box<Limited>>,
    dropped: bool,
}

/// A connection that was accepted, with its permit if its listener has a limit.
pub(crate) struct Accepted {
    pub(crate) fd: Fd,
    pub(crate) permit: Option<Permit>,
}

/// Ends of an operation that say nothing of connections.
fn ends_one_operation(errno: Errno) -> bool {
    [Errno::CANCELED, Errno::INTR, Errno::AGAIN].contains(&errno)
}

/// Errors of one connection: accept(2) lists them as to be treated like EAGAIN.
fn ends_one_connection(errno: Errno) -> bool {
    const OF_ONE: [Errno; 11] = [
        Errno::CONNABORTED,
        Errno::PERM,
        Errno::PROTO,
        Errno::NOPROTOOPT,
        Errno::NETDOWN,
        Errno::HOSTDOWN,
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::OPNOTSUPP,
        Errno::NETUNREACH,
        Errno::TIMEDOUT,
    ];
    OF_ONE.contains(&errno)
}

impl Listener {
    pub(crate) fn is_awaited_by(&self, task: &Waker) -> bool {
        self.waiters.include(task)
    }

    /// What the next polls would take.
    fn available(&self) -> usize {
        self.unclaimed.len() + usize::from(self.error.is_some())
    }
}

impl Inner {
    pub(crate) fn add_listener(&mut self, fd: Fd, limit: Option<ConnectionLimit>) -> u32 {
        self.listeners.insert(Listener {
            fd,
            state: State::Idle,
            unclaimed: VecDeque::new(),
            singly: false,
            error: None,
            failed: 0,
            waiters: Waiters::default(),
            limited: limit.map(Limited::new),
            dropped: false,
        })
    }

    /// The next connection.
    pub(crate) fn poll_accept(
        &mut self,
        slot: u32,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Accepted>> {
        let outcome = self.claim(slot);
        let waiters = &mut self.listeners.get(slot).waiters;
        let After { wakes, drops, .. } = &mut self.io.after;
        if outcome.is_some() {
            waiters.leave(wait, drops);
            self.notify_acceptors(slot);
        } else {
            waiters.wait(wait, cx.waker(), wakes, drops);
        }
        self.accept_more(slot, Some(cx));
        outcome.map_or(Poll::Pending, Poll::Ready)
    }

    fn claim(&mut self, slot: u32) -> Option<io::Result<Accepted>> {
        let listener = self.listeners.get(slot);
        let Some(accepted) = listener.unclaimed.pop_front() else {
            return listener.error.take().map(|errno| Err(named("accept")(errno)));
        };
        if listener.unclaimed.is_empty() {
            listener.singly = false;
        }
        Some(Ok(accepted))
    }

    /// A future that waited for a connection is gone.
    pub(crate) fn leave_accept(&mut self, slot: u32, id: &mut Option<WaiterId>) {
        let waker = self.listeners.get(slot).waiters.remove(id);
        self.io.after.drops.extend(waker);
        self.notify_acceptors(slot);
    }

    /// Notifies as many as there are connections to take.
    fn notify_acceptors(&mut self, slot: u32) {
        let listener = self.listeners.get(slot);
        let available = listener.available();
        if listener.waiters.notify(available, &mut self.io.after.wakes) {
            let generation = self.listeners.generation(slot);
            self.io.rechecks.push(Recheck::Accept(slot, generation));
        }
    }

    pub(crate) fn recheck_acceptors(&mut self, slot: u32, generation: u32) {
        if let Some(listener) = self.listeners.find(slot, generation) {
            let available = listener.available();
            listener.waiters.recheck(available);
            self.notify_acceptors(slot);
        }
    }

    /// Arms an idle listener, for the task that polls, if one does.
    fn accept_more(&mut self, slot: u32, polled: Option<&Context<'_>>) {
        let token = self.accept_token(slot);
        let listener = self.listeners.get(slot);
        let wanted = !listener.dropped && listener.unclaimed.len() < MOST_UNCLAIMED;
        if listener.state != State::Idle || !wanted {
            return;
        }
        if listener.limited.is_some() {
            return self.accept_within_limit(slot, polled);
        }
        listener.state = State::Armed;
        let fd = listener.fd;
        let op = if listener.singly { Op::Accept { fd } } else { Op::AcceptMulti { fd } };
        self.io.start(token, op);
    }

    pub(crate) fn on_accept(&mut self, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(listener) = self.listeners.find(slot, generation) else {
            return self.io.late(event);
        };
        if !event.more {
            listener.state = State::Idle;
            self.io.in_flight -= 1;
        }
        let mut permit = listener.limited.as_mut().and_then(|limited| limited.permit.take());
        // SAFETY: the connection was made for this listener, and nothing else has heard of it.
        let accepted = event.result.map(|fd| unsafe { Fd::from_raw(fd as RawFd) });
        match accepted {
            Ok(fd) => {
                listener.failed = 0;
                let accepted = Accepted { fd, permit: permit.take() };
                if listener.dropped {
                    self.io.close_accepted(accepted.fd, accepted.permit);
                } else {
                    listener.unclaimed.push_back(accepted);
                }
            }
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                self.pause_accepts(slot)
            }
            Err(errno) if ends_one_operation(errno) => {}
            Err(errno) if ends_one_connection(errno) => {
                self.io.driver.counters().aborted_accepts += 1;
                listener.failed += 1;
                if listener.failed >= MOST_FAILED && listener.state == State::Idle {
                    self.pause_accepts(slot);
                }
            }
            Err(errno) => listener.error = Some(errno),
        }
        permit.into_iter().for_each(|permit| self.io.release_permit(permit));
        self.after_accept(slot);
    }

    fn after_accept(&mut self, slot: u32) {
        let token = self.accept_token(slot);
        let listener = self.listeners.get(slot);
        if listener.dropped {
            return self.close_listener_if_done(slot);
        }
        self.notify_acceptors(slot);
        let listener = self.listeners.get(slot);
        if listener.state == State::Armed
            && !listener.singly
            && listener.unclaimed.len() >= MOST_UNCLAIMED
        {
            listener.singly = true;
            listener.state = State::Cancelling;
            return self.io.cancel(token);
        }
        if listener.error.is_none() {
            self.accept_more(slot, None);
        }
    }

    /// Goes on when a descriptor is closed here, or after a moment.
    fn pause_accepts(&mut self, slot: u32) {
        let listener = self.listeners.get(slot);
        if listener.dropped {
            return;
        }
        listener.state = State::Paused;
        self.paused_listeners += 1;
        self.io.driver.counters().accept_pauses += 1;
        let now = self.io.now();
        let generation = self.listeners.generation(slot);
        self.io.timers.insert(now + RETRY, Fire::Accept(slot, generation));
    }

    /// A descriptor was closed: listeners that wait for one try again.
    pub(crate) fn resume_accepts(&mut self) {
        if self.paused_listeners == 0 {
            return;
        }
        for slot in self.listeners.indices() {
            let generation = self.listeners.generation(slot);
            self.on_accept_retry(slot, generation);
        }
    }

    pub(crate) fn on_accept_retry(&mut self, slot: u32, generation: u32) {
        if let Some(listener) = self.listeners.find(slot, generation)
            && listener.state == State::Paused
        {
            listener.state = State::Idle;
            self.paused_listeners -= 1;
            self.accept_more(slot, None);
        }
    }

    /// The handle is gone: connections nobody claimed are closed.
    pub(crate) fn drop_listener(&mut self, slot: u32) {
        let token = self.accept_token(slot);
        let listener = self.listeners.get(slot);
        listener.dropped = true;
        match listener.state {
            State::Armed => {
                listener.state = State::Cancelling;
                self.io.cancel(token);
            }
            State::Asking => {
                listener.state = State::Cancelling;
                self.io.cancel(self.acceptable_token(slot));
            }
            State::Paused => {
                listener.state = State::Idle;
                self.paused_listeners -= 1;
            }
            State::Idle | State::Cancelling => {}
        }
        self.close_listener_if_done(slot);
    }

    fn close_listener_if_done(&mut self, slot: u32) {
        if self.listeners.get(slot).state != State::Idle {
            return;
        }
        let mut listener = self.listeners.remove(slot);
        listener.waiters.notify_all(&mut self.io.after.drops);
        listener
            .unclaimed
            .into_iter()
            .for_each(|accepted| self.io.close_accepted(accepted.fd, accepted.permit));
        self.io.close(listener.fd);
    }

    fn accept_token(&self, slot: u32) -> Token {
        Token::new(Kind::Accept, self.listeners.generation(slot), slot)
    }
}
