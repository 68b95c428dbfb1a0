//! The sending half of a mailbox: what waits, what is out, and why nothing may start.

use super::Envelope;
use super::failure::Failure;
use crate::time::TimerKey;
use crate::waiters::Waiters;
use std::collections::VecDeque;
use std::io;
use std::task::Waker;

/// The sending half of a mailbox.
pub(crate) struct Outbox {
    /// Accepted, not started.
    pub(super) queue: VecDeque<u32>,
    /// Out, and not settled.
    pub(super) flying: VecDeque<u32>,
    /// Of these, the ones whose events are still to come.
    pub(super) unheard: usize,
    /// What all of these weigh.
    pub(super) weight: usize,
    /// Most datagrams of the next batch: as many as found room in the last one that did not go out whole, and twice as many
    /// after each that did. What is refused has cost its submission.
    pub(super) window: usize,
    pub(super) unordered: bool,
    /// It has a peer, whose room the kernel tells of.
    pub(crate) connected: bool,
    /// The device refused to cut datagrams: done here from now on.
    pub(super) cuts_here: bool,
    /// Of a mailbox whose datagrams may overtake one another: those that found no room. See `stuck`.
    pub(super) stuck: VecDeque<u32>,
    /// The system is short of memory.
    pub(super) short: bool,
    /// Waits for room: an operation is in flight.
    pub(super) blocked: bool,
    /// Tries again when a timer goes off.
    pub(super) pausing: bool,
    /// On the list of those to send.
    pub(super) listed: bool,
    pub(super) failure: Option<Box<Failure>>,
    pub(super) waiters: Waiters,
    /// When to give up, once the mailbox was dropped.
    pub(super) linger: Option<TimerKey>,
}

impl Outbox {
    pub(super) fn new(unordered: bool) -> Self {
        Self {
            queue: VecDeque::new(),
            flying: VecDeque::new(),
            unheard: 0,
            short: false,
            stuck: VecDeque::new(),
            blocked: false,
            weight: 0,
            window: usize::MAX,
            unordered,
            connected: false,
            cuts_here: false,
            pausing: false,
            listed: false,
            failure: None,
            waiters: Waiters::default(),
            linger: None,
        }
    }

    /// Nothing queued and nothing in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.flying.is_empty() && self.stuck.is_empty()
    }

    pub(crate) fn is_awaited_by(&self, task: &Waker) -> bool {
        self.waiters.include(task)
    }

    /// Nothing is in flight that names the socket.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_idle() && !self.blocked
    }

    /// Whether a batch may start now: the last one is settled, and nothing waits that must not be overtaken.
    pub(super) fn may_start(&self) -> bool {
        let waits = self.blocked || self.pausing;
        (!waits || self.unordered) && self.flying.is_empty() && !self.queue.is_empty()
    }

    pub(super) fn failure_on(&mut self, envelope: &Envelope) -> Option<io::Error> {
        let failure = self.failure.take_if(|failure| failure.to == envelope.to)?;
        Some(failure.error())
    }
}
