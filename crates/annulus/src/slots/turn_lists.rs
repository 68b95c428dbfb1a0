//! The work of a turn for sockets, before it enters the kernel and once the driver is settled, as far as streams and datagram sockets share it.

use super::arming::ArmList;
use crate::base::queues::Queues;

/// Lists of slots. Each names a slot at most once.
#[derive(Default)]
pub(crate) struct TurnLists {
    /// Slots whose receive is to be armed, in order.
    pub(super) arms: ArmList,
    /// Slots with something to send.
    pub(super) sends: Vec<u32>,
    /// Slots whose sends of this turn count as done, unless an event says otherwise.
    pub(super) unsettled: Vec<u32>,
    /// A task waits for the outcome of one of these, or more is to follow: this turn must not wait.
    pub(super) must_settle: bool,
    /// Bytes that went directly in this turn.
    pub(super) sent_directly: usize,
}

impl TurnLists {
    /// Adds the slots that wait for the next turn.
    pub(crate) fn add_to(&self, queues: &mut Queues) {
        queues.sends += self.sends.len();
        queues.unsettled += self.unsettled.len();
        queues.receives += self.arms.len();
    }

    /// Sends of this turn are to be settled.
    #[inline]
    pub(crate) fn has_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// Slots have something to send.
    #[inline]
    pub(crate) fn has_sends(&self) -> bool {
        !self.sends.is_empty()
    }

    /// There is work for the next turn, so that this one must not wait.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.must_settle || !self.arms.is_empty()
    }
}
