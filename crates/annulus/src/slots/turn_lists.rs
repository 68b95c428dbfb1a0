//! Lists of the streams and datagram sockets that need a receive or a send in a turn.

use super::arming::ArmList;

/// Lists of slots. Some slots may have been closed, and even reused, since they were added.
#[derive(Default)]
pub(crate) struct TurnLists {
    /// Slots whose receive will be armed, in order.
    pub(super) arms: ArmList,
    /// Slots with something to send.
    pub(super) sends: Vec<u32>,
    /// Slots whose sends of this turn are assumed complete unless an event says otherwise.
    pub(super) unconfirmed_sends: Vec<u32>,
    /// Whether this turn must not sleep, for example because a task waits for an unconfirmed send,
    /// or because more data is queued behind that send.
    pub(super) must_not_sleep: bool,
    /// Bytes sent by direct system calls since the last turn that checked for events.
    pub(super) sent_directly: usize,
}

impl TurnLists {
    pub(crate) fn add_to(&self, queues: &mut Queues) {
        queues.sends += self.sends.len();
        queues.unsettled += self.unconfirmed_sends.len();
        queues.receives += self.arms.len();
    }

    /// Returns true if sends of this turn may complete without an event.
    #[inline]
    pub(crate) fn has_unconfirmed_sends(&self) -> bool {
        !self.unconfirmed_sends.is_empty()
    }

    #[inline]
    pub(crate) fn has_sends(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Returns true if there is work for the next turn, so this one must not sleep.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.must_not_sleep || !self.arms.is_empty()
    }
}

/// Counts of work queued for the next turn of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queues {
    /// Sockets with something to send.
    pub sends: usize,
    /// Sockets with a send from the last turn that may complete without an event.
    pub unsettled: usize,
    /// Sockets whose receive is not armed yet, because it waits for the next turn or for buffers.
    pub receives: usize,
    /// Wait queues with waiters that have not been notified yet.
    pub rechecks: usize,
}
