//! A turn's work for streams and datagram sockets, before the loop enters the kernel and after
//! sends are assumed complete.

use super::arming::ArmList;

/// Lists of slots. Each list contains a slot at most once.
#[derive(Default)]
pub(crate) struct TurnLists {
    /// Slots whose receive will be armed, in order.
    pub(super) arms: ArmList,
    /// Slots with something to send.
    pub(super) sends: Vec<u32>,
    /// Slots whose sends of this turn are assumed complete unless an event says otherwise.
    pub(super) unconfirmed_sends: Vec<u32>,
    /// A task waits for the outcome of one of these sends, or more bytes follow: this turn must not
    /// sleep.
    pub(super) must_not_sleep: bool,
    /// Bytes sent directly in this turn.
    pub(super) sent_directly: usize,
}

impl TurnLists {
    /// Adds the number of slots that wait for the next turn.
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

    /// Returns true if slots have something to send.
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
    /// Sockets whose receive waits for a turn or for buffers to be armed.
    pub receives: usize,
    /// Wait queues with waiters that have not been notified yet.
    pub rechecks: usize,
}
