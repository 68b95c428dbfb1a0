//! A turn's work for streams and datagram sockets, before the loop enters the kernel and after
//! sends are assumed complete.

use super::arming::ArmList;
use crate::base::queues::Queues;

/// Lists of slots. Each list contains a slot at most once.
#[derive(Default)]
pub(crate) struct TurnLists {
    /// Slots whose receive will be armed, in order.
    pub(super) arms: ArmList,
    /// Slots with something to send.
    pub(super) sends: Vec<u32>,
    /// Slots whose sends of this turn are assumed complete unless an event says otherwise.
    pub(super) unsettled: Vec<u32>,
    /// A task waits for the outcome of one of these sends, or more bytes follow: this turn must not
    /// sleep.
    pub(super) must_settle: bool,
    /// Bytes sent directly in this turn.
    pub(super) sent_directly: usize,
}

impl TurnLists {
    /// Adds the number of slots that wait for the next turn.
    pub(crate) fn add_to(&self, queues: &mut Queues) {
        queues.sends += self.sends.len();
        queues.unsettled += self.unsettled.len();
        queues.receives += self.arms.len();
    }

    /// Returns true if sends of this turn may complete without an event.
    #[inline]
    pub(crate) fn has_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// Returns true if slots have something to send.
    #[inline]
    pub(crate) fn has_sends(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Returns true if there is work for the next turn, so this one must not sleep.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.must_settle || !self.arms.is_empty()
    }
}
