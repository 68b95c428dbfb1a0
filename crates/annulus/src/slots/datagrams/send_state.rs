//! The sending half of a mailbox: what waits, what is out, and why nothing may start.

use super::errors::Failures;
use crate::time::TimerKey;
use crate::waiters::Waiters;
use annulus_kernel::Domain;
use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

/// When to try again where no readiness tells, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LAST_PAUSE: Duration = Duration::from_millis(64);

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
    /// Something was refused for a want of room of which nothing will tell: another's than the peer's, or the system's.
    pub(super) untold: bool,
    /// Waits for room: an operation is in flight.
    pub(super) blocked: bool,
    /// Tries again when a timer goes off.
    pub(super) pausing: bool,
    /// How long the next such pause is: twice as long after each that moved nothing.
    pub(super) pause: Duration,
    /// On the list of those to send.
    pub(super) listed: bool,
    pub(super) failures: Failures,
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
            untold: false,
            stuck: VecDeque::new(),
            blocked: false,
            weight: 0,
            window: usize::MAX,
            unordered,
            connected: false,
            cuts_here: false,
            pausing: false,
            pause: FIRST_PAUSE,
            listed: false,
            failures: Failures::default(),
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

    /// How many leave together. Unix datagrams keep their order whatever happens, so that of those only one is out at a
    /// time: the second could go where the first had found no room. Where they need not, one's room says nothing of
    /// another's.
    pub(super) fn batch(&self, domain: Domain) -> usize {
        match (domain, self.unordered) {
            (Domain::Unix, false) => 1,
            (Domain::Unix, true) => usize::MAX,
            _ => self.window,
        }
    }

    /// What left last, to be settled. Where order matters it is from the last one on, so that those to be sent again keep
    /// theirs; else what was refused first is set aside first.
    pub(super) fn next_flying(&mut self) -> Option<u32> {
        if self.unordered { self.flying.pop_front() } else { self.flying.pop_back() }
    }

    /// How long to wait this time.
    pub(super) fn next_pause(&mut self) -> Duration {
        let longer = (2 * self.pause).min(LAST_PAUSE);
        std::mem::replace(&mut self.pause, longer)
    }

    /// Something that had waited is out.
    pub(super) fn has_moved(&mut self) {
        self.pause = FIRST_PAUSE;
    }
}
