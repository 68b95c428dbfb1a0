//! The phases of a socket's receive, which streams and datagram sockets share.
//!
//! *Idle* → *wanted* (on the list of those to arm) → *armed* (one operation that receives again and again, into lent buffers)
//! or *single* (one that receives once) → idle again at the terminal event. If the driver polls for readiness apart, a wanted
//! one is *polling* first. A receive in flight that has to stop is *cancelling* until its own terminal event: nothing else is
//! armed before, and what that event brings is delivered.

use rustix::io::Errno;

/// At most one operation is in flight: in every phase but idle and wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RecvPhase {
    #[default]
    Idle,
    Wanted,
    Polling,
    Armed,
    Single,
    Cancelling,
}

/// What has to be cancelled to stop a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToCancel {
    Recv,
    Poll,
}

impl RecvPhase {
    /// Nothing is in flight.
    #[inline]
    pub(super) fn is_idle(self) -> bool {
        matches!(self, Self::Idle | Self::Wanted)
    }

    /// An event has come, the terminal one unless `more` are to come. True if this is the end of a receive that was to stop.
    #[inline]
    pub(super) fn on_event(&mut self, more: bool) -> bool {
        if more {
            return false;
        }
        std::mem::take(self) == Self::Cancelling
    }

    /// Stops: what is in flight has to be cancelled, and its terminal event is still to come.
    pub(super) fn stop(&mut self) -> Option<ToCancel> {
        let (next, to_cancel) = match *self {
            Self::Armed | Self::Single => (Self::Cancelling, Some(ToCancel::Recv)),
            Self::Polling => (Self::Cancelling, Some(ToCancel::Poll)),
            Self::Wanted => (Self::Idle, None),
            unchanged => (unchanged, None),
        };
        *self = next;
        to_cancel
    }
}

/// Errors that end the operation and say nothing about the socket: the receive is armed again.
pub(super) fn ends_operation_only(errno: Errno) -> bool {
    matches!(errno, Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN | Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_that_has_to_stop_is_cancelled_once_and_ends_at_its_terminal_event() {
        let mut phase = RecvPhase::Armed;
        assert!(!phase.on_event(true));
        assert_eq!(phase.stop(), Some(ToCancel::Recv));
        assert_eq!(phase.stop(), None, "cancelled already");
        assert!(!phase.on_event(true) && !phase.is_idle(), "not the terminal event");
        assert!(phase.on_event(false) && phase.is_idle());
    }

    #[test]
    fn what_is_not_in_flight_has_nothing_to_cancel() {
        for (before, after) in [
            (RecvPhase::Idle, RecvPhase::Idle),
            (RecvPhase::Wanted, RecvPhase::Idle),
            (RecvPhase::Cancelling, RecvPhase::Cancelling),
        ] {
            let mut phase = before;
            assert_eq!((phase.stop(), phase), (None, after), "{before:?}");
        }
        let mut phase = RecvPhase::Polling;
        assert_eq!((phase.stop(), phase), (Some(ToCancel::Poll), RecvPhase::Cancelling));
    }
}
