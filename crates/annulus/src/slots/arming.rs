//! The states of a receive or accept, which streams, datagram sockets and listeners share.

use annulus_driver::OpKind;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// Delay before a receive or a poll is tried again after a [shortage](is_shortage). Without the
/// delay, `epoll_ctl` would fail again in each turn.
pub(super) const SHORTAGE_PAUSE: Duration = Duration::from_millis(5);

/// The state of a slot's receive or of a listener's accept.
///
/// A terminal event makes it idle again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Arming {
    #[default]
    Idle,
    /// The turn will arm the receive.
    Listed,
    /// A poll waits for readiness. The receive or accept starts after it.
    Polling,
    /// In flight until it is cancelled or the kernel ends it.
    Multishot,
    /// In flight for one receive or accept.
    Single,
    /// Cancelled. Nothing is armed before the terminal event, which may still deliver bytes.
    Cancelling,
    /// The system is out of memory. A timer will try again.
    Paused,
}

impl Arming {
    /// Returns true if nothing is in flight.
    #[inline]
    pub(super) fn is_idle(self) -> bool {
        matches!(self, Self::Idle | Self::Listed | Self::Paused)
    }

    /// Records an event, which is terminal unless `more` is set. Returns true if it ends a
    /// cancelled operation.
    #[inline]
    pub(super) fn on_event(&mut self, more: bool) -> bool {
        !more && mem::take(self) == Self::Cancelling
    }

    /// Ends a pause. Returns false if the state is no longer `Paused`.
    pub(super) fn resume(&mut self) -> bool {
        let was_paused = *self == Self::Paused;
        if was_paused {
            *self = Self::Idle;
        }
        was_paused
    }

    /// Stops the receive or accept. Returns the kind of the operation that the caller must cancel,
    /// if any. Its terminal event still arrives.
    pub(super) fn stop(&mut self, armed: OpKind, poll: OpKind) -> Option<OpKind> {
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

/// Returns true for errors that end the operation but say nothing about the socket or its peers.
/// The operation is tried again.
pub(super) fn ends_operation_only(errno: Errno) -> bool {
    matches!(errno, Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN | Errno::NOMEM)
}

/// Returns true if a poll has failed because memory is short or, on epoll, because no further
/// descriptor may be watched. It would fail again at once.
pub(super) fn is_shortage(polled: Result<u32, Errno>) -> bool {
    matches!(polled, Err(Errno::NOMEM | Errno::NOSPC))
}

/// Slots that the turn will arm, in the order in which they were added. May contain closed slots.
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

    /// Arms at most `buffers` slots, where `buffers` is the number of receive buffers that the
    /// kernel has. If the kernel has none, arms all slots, which then receive into heap memory.
    /// `arm` returns false for a slot that it skips. Returns true if slots are left.
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

    fn stop(arming: &mut Arming) -> Option<OpKind> {
        arming.stop(OpKind::Recv, OpKind::RecvReady)
    }

    #[test]
    fn stopped_receive_is_cancelled_once_and_ends_at_its_terminal_event() {
        let mut arming = Arming::Multishot;
        assert!(!arming.on_event(true));
        assert_eq!(stop(&mut arming), Some(OpKind::Recv));
        assert_eq!(stop(&mut arming), None, "a receive is cancelled only once");
        assert!(
            !arming.on_event(true) && !arming.is_idle(),
            "an event with `more` is not terminal"
        );
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
        assert_eq!((stop(&mut arming), arming), (Some(OpKind::RecvReady), Arming::Cancelling));
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
