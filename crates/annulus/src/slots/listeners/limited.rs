//! Accepting within a limit on open connections.
//!
//! While a task waits: *idle* → *asking*, until a connection is there → a permit is taken → *armed*, one accept → idle. A
//! permit is taken only if a connection is there, so that a listener without clients keeps none from the others that
//! share the limit. If the limit is reached, the listener stays idle, and its tasks are woken when a connection closes.
#![allow(unsafe_code)]

use super::State;
use crate::net::{ConnectionLimit, Permit};
use crate::runtime::inner::Inner;
use annulus_driver::{Event, Kind, Op, Token};
use rustix::io::Errno;
use std::task::Context;

/// What a listener with a limit has besides.
pub(super) struct Limited {
    limit: ConnectionLimit,
    /// A connection is there to be accepted.
    has_one: bool,
    /// Of the accept in flight.
    pub(super) permit: Option<Permit>,
}

impl Limited {
    pub(super) fn new(limit: ConnectionLimit) -> Box<Self> {
        Box::new(Self { limit, has_one: false, permit: None })
    }
}

impl Inner {
    /// Goes on with an idle listener that has a limit, unless no task waits for a connection. If the limit is reached, the task
    /// that polls is woken once a connection has closed; if none does, all are woken now, to ask for that themselves: the clone
    /// of a waker is foreign code, and must not run in the loop's own time.
    pub(super) fn accept_within_limit(&mut self, slot: u32, polled: Option<&Context<'_>>) {
        let token = self.accept_token(slot);
        let listener = self.listeners.get(slot);
        let Some(limited) = &mut listener.limited else { return };
        if listener.waiters.is_empty() || !listener.unclaimed.is_empty() {
            return;
        }
        if !limited.has_one {
            return self.ask_for_connection(slot);
        }
        let mut task = polled.map(|cx| cx.waker().clone());
        let permit = limited.limit.take(&mut task);
        self.io.after.drops.extend(task);
        let Some(permit) = permit else {
            if polled.is_none() {
                listener.waiters.notify_all(&mut self.io.after.wakes);
            }
            return;
        };
        (limited.has_one, limited.permit) = (false, Some(permit));
        listener.state = State::Armed;
        let op = Op::Accept { fd: listener.fd };
        self.io.start(token, op);
    }

    fn ask_for_connection(&mut self, slot: u32) {
        let token = self.acceptable_token(slot);
        let listener = self.listeners.get(slot);
        listener.state = State::Asking;
        let op = Op::ReadableOnce { fd: listener.fd };
        self.io.start(token, op);
    }

    /// A connection is there; or the question failed, and the accept will tell why.
    pub(crate) fn on_acceptable(&mut self, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(listener) = self.listeners.find(slot, generation) else {
            return self.io.late(event);
        };
        self.io.in_flight -= 1;
        listener.state = State::Idle;
        if let Some(limited) = &mut listener.limited {
            limited.has_one = event.result != Err(Errno::CANCELED);
        }
        if listener.dropped {
            return self.close_listener_if_done(slot);
        }
        self.accept_more(slot, None);
    }

    pub(super) fn acceptable_token(&self, slot: u32) -> Token {
        Token::new(Kind::AcceptReady, self.listeners.generation(slot), slot)
    }
}
