//! How receives and accepts are armed: the states that streams, datagram sockets and listeners share.

use annulus_driver::Kind;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// How long a receive or a poll waits before it is armed again if the system is short of memory: `epoll_ctl` fails at once, and would be
/// tried in each turn.
pub(super) const SHORT_OF_MEMORY_PAUSE: Duration = Duration::from_millis(5);

/// The state of a slot's receive, or a listener's accept.
///
/// *Idle* → *listed*, to be armed by the turn, once a task waits or enough was taken → *multishot*, which receives again and
/// again into lent buffers, or *single*, which receives once → idle again at the terminal event. If the driver polls for
/// readiness apart, a listed one is *polling* first, and listed again once it is readable. If the system is short of memory, it is *paused*
/// until a timer lists it again. A receive or poll that has to stop
/// is *cancelling* until its own terminal event: nothing else is armed before, and what that event brings is queued.
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
    /// Nothing is in flight.
    #[inline]
    pub(super) fn is_idle(self) -> bool {
        matches!(self, Self::Idle | Self::Listed | Self::Paused)
    }

    /// An event has come, the terminal one unless `more` are to come. True if this is the end of a receive that was to stop.
    #[inline]
    pub(super) fn on_event(&mut self, more: bool) -> bool {
        !more && mem::take(self) == Self::Cancelling
    }

    /// The pause is over. False if it has ended otherwise.
    pub(super) fn resume(&mut self) -> bool {
        let was_paused = *self == Self::Paused;
        if was_paused {
            *self = Self::Idle;
        }
        was_paused
    }

    /// Stops. The operation in flight, if this returns its kind, has to be cancelled, and its terminal event is still to come.
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

/// Returns true for errors that end the operation and say nothing about the socket or its peers: it is armed again, after a
/// [pause](Arming::Paused) if the system is short of memory (`NOMEM`).
pub(super) fn ends_operation_only(errno: Errno) -> bool {
    matches!(errno, Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN | Errno::NOMEM)
}

/// Slots to be armed by the turn, first come first served. Slots that were closed since may be among them.
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

    /// Arms no more slots than the kernel has buffers, and all of them if it has none, since they receive into heap memory
    /// then: a slot that finds no buffer goes to the back of the list. `arm` is false for a slot that is not armed any more.
    /// True if some are left.
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
    fn a_receive_that_has_to_stop_is_cancelled_once_and_ends_at_its_terminal_event() {
        let mut arming = Arming::Multishot;
        assert!(!arming.on_event(true));
        assert_eq!(stop(&mut arming), Some(Kind::Recv));
        assert_eq!(stop(&mut arming), None, "cancelled already");
        assert!(!arming.on_event(true) && !arming.is_idle(), "not the terminal event");
        assert!(arming.on_event(false) && arming.is_idle());
    }

    #[test]
    fn what_is_not_in_flight_has_nothing_to_cancel() {
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
    fn as_many_are_armed_as_the_kernel_has_buffers_and_closed_ones_take_no_place() {
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
