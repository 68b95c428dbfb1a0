//! How receives and accepts are armed: the states shared by streams, datagram sockets and
//! listeners.

use annulus_driver::Kind;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// Delay before a receive or a poll is armed again when the system is out of memory: `epoll_ctl`
/// fails at once and would otherwise be retried in each turn.
pub(super) const SHORT_OF_MEMORY_PAUSE: Duration = Duration::from_millis(5);

/// The state of a slot's receive, or a listener's accept.
///
/// *Idle* → *listed* for the turn to arm, once a task waits or enough has been taken → *multishot*,
/// which receives repeatedly into lent buffers, or *single*, which receives once → idle again at
/// the terminal event. If the driver polls for readiness separately, a listed slot is *polling*
/// first and is listed again once it is readable. If the system is out of memory, it is *paused*
/// until a timer lists it again. A receive or poll that has to stop is *cancelling* until its own
/// terminal event: nothing else is armed before that, and bytes from that event are queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Arming {
    #[default]
    Idle,
    Listed,
    Polling,
    Multishot,
    Single,
    Cancelling,
    Paused,
}

impl Arming {
    /// Returns true if nothing is in flight.
    #[inline]
    pub(super) fn is_idle(self) -> bool {
        matches!(self, Self::Idle | Self::Listed | Self::Paused)
    }

    /// Records an event, which is the terminal one unless `more` is set. Returns true if it ends a
    /// receive that was told to stop.
    #[inline]
    pub(super) fn on_event(&mut self, more: bool) -> bool {
        !more && mem::take(self) == Self::Cancelling
    }

    /// Ends a pause. Returns false if it has already ended in another way.
    pub(super) fn resume(&mut self) -> bool {
        let was_paused = *self == Self::Paused;
        if was_paused {
            *self = Self::Idle;
        }
        was_paused
    }

    /// Stops the receive or accept. If a kind is returned, the operation of that kind has to be
    /// cancelled, and its terminal event is still to come.
    pub(super) fn stop(&mut self, armed: Kind, poll: Kind) -> Option<Kind> {
        let (next, to_cancel) = match *self {
            Self::Multishot | Self::Single => (Self::Cancelling, Some(armed)),
            Self::Polling => (Self::Cancelling, Some(poll)),
            Self::Listed | Self::Paused => (Self::Idle, None),
            unchanged => (unchanged, None),
        };
        *self = next;
        to_cancel
    }
}

/// Returns true for errors that end the operation but are not errors of the socket or its peers: it
/// is armed again, after a [pause](Arming::Paused) if the system is out of memory (`NOMEM`).
pub(super) fn ends_operation_only(errno: Errno) -> bool {
    matches!(errno, Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN | Errno::NOMEM)
}

/// Slots that the turn will arm, first come first served. May contain slots that have been closed.
#[derive(Default)]
pub(super) struct ArmList(VecDeque<u32>);

impl ArmList {
    #[inline]
    pub(super) fn push(&mut self, slot: u32) {
        self.0.push_back(slot);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Arms at most as many slots as the kernel has buffers; the rest waits. If the kernel has
    /// none, all slots are armed and receive into heap memory. `arm` returns false for a slot that
    /// is no longer to be armed. Returns true if some slots are left.
    #[inline]
    pub(super) fn arm(&mut self, buffers: usize, mut arm: impl FnMut(u32) -> bool) -> bool {
        let mut left = if buffers == 0 { usize::MAX } else { buffers };
        while left > 0
            && let Some(slot) = self.0.pop_front()
        {
            left -= usize::from(arm(slot));
        }
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(arming: &mut Arming) -> Option<Kind> {
        arming.stop(Kind::Recv, Kind::RecvReady)
    }

    #[test]
    fn stopped_receive_is_cancelled_once_and_ends_at_its_terminal_event() {
        let mut arming = Arming::Multishot;
        assert!(!arming.on_event(true));
        assert_eq!(stop(&mut arming), Some(Kind::Recv));
        assert_eq!(stop(&mut arming), None, "cancelled already");
        assert!(!arming.on_event(true) && !arming.is_idle(), "not the terminal event");
        assert!(arming.on_event(false) && arming.is_idle());
    }

    #[test]
    fn stop_without_operation_in_flight_cancels_nothing() {
        for (before, after) in [
            (Arming::Idle, Arming::Idle),
            (Arming::Listed, Arming::Idle),
            (Arming::Paused, Arming::Idle),
            (Arming::Cancelling, Arming::Cancelling),
        ] {
            let mut arming = before;
            assert_eq!((stop(&mut arming), arming), (None, after), "{before:?}");
        }
        let mut arming = Arming::Polling;
        assert_eq!((stop(&mut arming), arming), (Some(Kind::RecvReady), Arming::Cancelling));
    }

    #[test]
    fn arming_stops_at_the_number_of_buffers_and_skips_closed_slots() {
        let list = || ArmList((0..5).collect());
        let mut armed = Vec::new();
        let mut arm = |slot| {
            armed.push(slot);
            slot != 1
        };
        let mut slots = list();
        assert!(slots.arm(2, &mut arm) && slots.len() == 2);
        assert!(!slots.arm(2, &mut arm) && slots.is_empty());
        let mut without_buffers = list();
        assert!(!without_buffers.arm(0, &mut arm));
        assert_eq!(armed, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    }
}
