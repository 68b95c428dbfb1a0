//! The sending half of a slot: the queue, the datagrams in flight, and the event that the next send waits for.

use super::errors::Failures;
use crate::timers::TimerKey;
use crate::waiters::Waiters;
use annulus_kernel::Domain;
use std::collections::VecDeque;
use std::time::Duration;

/// The time until a retry if no event announces space: at first and at most.
const FIRST_RETRY: Duration = Duration::from_millis(2);
const LAST_RETRY: Duration = Duration::from_millis(64);

/// The sending half of a slot.
///
/// The lists hold indices of outgoing datagrams, each in one list: accepted ones are *queued* → the turn submits a batch of
/// them, which is *in flight* → once the batch is settled, each is freed, queued again, or *deferred*. The next batch starts
/// when the last one is settled and no wait for space is on, neither `awaits_writable` nor `awaits_retry`; if order does not
/// matter, such a wait does not keep it from starting.
#[derive(Default)]
pub(super) struct SendState {
    /// Datagrams accepted, not started.
    pub(super) queue: VecDeque<u32>,
    /// Datagrams submitted, not settled.
    pub(super) in_flight: VecDeque<u32>,
    /// Datagrams that found no space, and wait to be queued again. Only if order does not matter.
    pub(super) deferred: VecDeque<u32>,
    /// The weight of all datagrams in these lists.
    pub(super) weight: usize,
    /// Most datagrams of the next batch: as many as found space in the last batch that did not go out whole, and twice as
    /// many after each batch that did. A datagram that is refused has cost its submission.
    pub(super) window: usize,
    /// Sends may overtake one another.
    pub(super) unordered: bool,
    /// The socket has a peer.
    pub(super) connected: bool,
    /// The device refused to split datagrams: from now on it is done here.
    pub(super) splits_here: bool,
    /// A datagram of the last batch was refused for lack of space that no event announces: at a destination other than the
    /// peer, or in the kernel.
    pub(super) no_space_event: bool,
    /// The slot waits for the socket to be writable: an operation is in flight.
    pub(super) awaits_writable: bool,
    /// The slot waits for a timer.
    pub(super) awaits_retry: bool,
    /// How long the next such wait is: twice as long after each that moved nothing.
    retry: Duration,
    /// On the list of slots with something to send.
    pub(super) listed: bool,
    pub(super) failures: Failures,
    pub(super) waiters: Waiters,
    /// The timer to give up, once the socket was dropped.
    pub(super) linger: Option<TimerKey>,
}

impl SendState {
    pub(super) fn new(unordered: bool) -> Self {
        Self { window: usize::MAX, unordered, retry: FIRST_RETRY, ..Self::default() }
    }

    /// Nothing is accepted that has not left.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty() && self.deferred.is_empty()
    }

    /// No operation in flight names the socket.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_idle() && !self.awaits_writable
    }

    /// Whether a batch may start now: the last one is settled, and no wait is on that must not be overtaken.
    #[inline]
    pub(super) fn may_start(&self) -> bool {
        let waits = self.awaits_writable || self.awaits_retry;
        (!waits || self.unordered) && self.in_flight.is_empty() && !self.queue.is_empty()
    }

    /// How many leave together. Ordered Unix datagrams leave one at a time: a second one could find space after the first was
    /// refused, and overtake it. Without order, a refusal says nothing about the next destination, and all leave.
    pub(super) fn batch(&self, domain: Domain) -> usize {
        match (domain, self.unordered) {
            (Domain::Unix, false) => 1,
            (Domain::Unix, true) => usize::MAX,
            _ => self.window,
        }
    }

    /// The next one of a batch to be settled. If order matters it is the last, so that those which return to the front of the
    /// queue keep their order; else the first, so that the first refused is the first deferred.
    #[inline]
    pub(super) fn next_to_settle(&mut self) -> Option<u32> {
        if self.unordered { self.in_flight.pop_front() } else { self.in_flight.pop_back() }
    }

    /// How long to wait this time.
    pub(super) fn next_retry(&mut self) -> Duration {
        let longer = (2 * self.retry).min(LAST_RETRY);
        std::mem::replace(&mut self.retry, longer)
    }

    /// A datagram left that had waited for space.
    pub(super) fn has_moved(&mut self) {
        self.retry = FIRST_RETRY;
    }
}
