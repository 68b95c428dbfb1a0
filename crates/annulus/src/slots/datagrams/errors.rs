//! Handles datagrams that the kernel has refused, and decides which call returns the error.

use super::outgoing::{OutgoingDatagram, OutgoingState};
use super::{DatagramSocket, PeerAddress};
use crate::errors::{OpError, Operation};
use crate::slots::loop_state::LoopState;
use annulus_kernel::{Domain, with_watch_limit};
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;

/// Maximum number of destinations whose last failure is kept until a call returns it.
const MAX_DESTINATIONS: usize = 16;

/// The reason why a datagram was not sent, although its send has already returned `Ok`.
pub(super) struct SendFailure {
    errno: Errno,
    to: PeerAddress,
    text: String,
    /// Number of earlier failures that this failure replaces.
    others: usize,
}

impl SendFailure {
    pub(super) fn of(datagram: &OutgoingDatagram, errno: Errno) -> Self {
        let (len, to) = (datagram.chunk.len(), &datagram.meta.to);
        let destination = if to.is_empty() { String::new() } else { format!(" to {to:?}") };
        let hint = match errno {
            Errno::MSGSIZE => ", more than the route or the send buffer accepts at once",
            Errno::AGAIN => ", which has no space",
            Errno::ACCESS if matches!(to.address().to_inet(), Ok(SocketAddr::V4(_))) => {
                ", which set_broadcast(true) allows if it is a broadcast address"
            }
            _ => "",
        };
        let text = format!("sending a datagram of {len} bytes{destination}{hint}");
        Self { errno, to: to.clone(), text, others: 0 }
    }

    /// The failure of a datagram that was sent before this one.
    fn of_earlier(datagram: &OutgoingDatagram, errno: Errno) -> Self {
        let text = String::from("sending an earlier datagram");
        Self { text, ..Self::of(datagram, errno) }
    }

    fn into_error(self) -> io::Error {
        let Self { errno, to, text, others } = self;
        let error = with_watch_limit(errno.into());
        let more =
            if others > 0 { format!("; {others} more were not sent") } else { String::new() };
        let text = format!("{text}: {error}{more}");
        let to = (!to.is_empty()).then(|| to.address());
        OpError::new(Operation::Send, to, error).with_text(text).into()
    }
}

/// Failures that no call has returned yet: the last one per destination, with a count of earlier
/// ones. At the limit of destinations, a new failure replaces the oldest one and counts it.
#[derive(Default)]
pub(super) struct SendFailures(Vec<SendFailure>);

impl SendFailures {
    pub(super) fn add(&mut self, failure: SendFailure) {
        let same = self.0.iter().position(|known| known.to == failure.to);
        let oldest = (self.0.len() == MAX_DESTINATIONS).then_some(0);
        let known = same.or(oldest).map(|at| self.0.remove(at));
        let others = known.map_or(0, |known| known.others + 1);
        self.0.push(SendFailure { others, ..failure });
    }

    /// Sets the destination of the failures without one.
    pub(super) fn address_to(&mut self, peer: &PeerAddress) {
        let failures = self.0.iter_mut().filter(|failure| failure.to.is_empty());
        failures.for_each(|failure| failure.to = peer.clone());
    }

    /// Removes the failure of a destination and returns it as an error.
    #[inline]
    pub(super) fn take_of(&mut self, to: &PeerAddress) -> Option<io::Error> {
        let at = self.0.iter().position(|known| known.to == *to)?;
        Some(self.0.remove(at).into_error())
    }

    /// Removes all failures and returns them as one error.
    pub(super) fn take_all(&mut self) -> Option<io::Error> {
        let all = std::mem::take(&mut self.0);
        let last = all.into_iter().reduce(|earlier, failure| {
            let others = earlier.others + 1 + failure.others;
            SendFailure { others, ..failure }
        })?;
        Some(last.into_error())
    }
}

/// Returns true for errors that only an ICMP reply to an earlier datagram can have caused.
fn is_of_an_earlier_one(errno: Errno) -> bool {
    const ONLY_ICMP: [Errno; 5] =
        [Errno::CONNREFUSED, Errno::NOPROTOOPT, Errno::PROTO, Errno::HOSTDOWN, Errno::NONET];
    ONLY_ICMP.contains(&errno)
}

/// Returns true for errors that an ICMP reply to an earlier datagram may have caused: of IPv4
/// (`icmp_err_convert` in the kernel) or of IPv6 (`icmpv6_err_convert`, and *packet too big*).
fn may_be_of_an_earlier_one(errno: Errno) -> bool {
    const ALSO_ICMP: [Errno; 6] = [
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::NETDOWN,
        Errno::OPNOTSUPP,
        Errno::ACCESS,
        Errno::MSGSIZE,
    ];
    is_of_an_earlier_one(errno) || ALSO_ICMP.contains(&errno)
}

impl DatagramSocket {
    /// Returns the error of a failed receive, with the peer's address if the socket is connected.
    #[cold]
    pub(super) fn recv_failed(&self, state: &LoopState, errno: Errno) -> io::Error {
        let peer = state.driver.kernel().peer_address(self.fd).ok();
        OpError::new(Operation::Recv, peer, errno.into()).into()
    }

    /// Decides what happens to a datagram that the kernel refused.
    pub(super) fn on_refused(
        &mut self,
        datagram: &mut OutgoingDatagram,
        errno: Errno,
    ) -> OutgoingState {
        let has_segments = datagram.meta.segment_size.is_some();
        match errno {
            Errno::AGAIN | Errno::INTR => {
                self.tx.no_space_event |= self.has_no_space_event(datagram);
                OutgoingState::NoSpace
            }
            // The last: too many descriptors of this user have been sent and not received yet.
            Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS => {
                self.tx.no_space_event = true;
                OutgoingState::NoSpace
            }
            // The network device cannot split datagrams.
            Errno::IO if has_segments => {
                self.tx.splits_here = true;
                OutgoingState::Retry
            }
            // The segments are larger than the route accepts. Sent as separate datagrams, they may
            // pass as IP fragments.
            Errno::MSGSIZE | Errno::INVAL if has_segments => OutgoingState::Split,
            _ => self.fail(datagram, errno),
        }
    }

    /// Sends the datagram again, once, if an earlier one may have caused the error. Otherwise
    /// records the error for a later call to return.
    fn fail(&mut self, datagram: &mut OutgoingDatagram, errno: Errno) -> OutgoingState {
        // An unconnected socket gets such errors only if other code has set `IP_RECVERR`.
        let may_be_earlier = match self.tx.connected {
            true => may_be_of_an_earlier_one(errno),
            false => is_of_an_earlier_one(errno),
        };
        if may_be_earlier && self.format.domain != Domain::Unix && datagram.earlier.is_none() {
            datagram.earlier = Some(errno);
            return OutgoingState::Retry;
        }
        self.tx.failures.add(SendFailure::of(datagram, errno));
        OutgoingState::Failed
    }

    /// Reports the error that the datagram was first refused with, unless it was the datagram's
    /// own: to a task that waits to receive, otherwise to the next send.
    #[cold]
    pub(super) fn report_earlier(
        &mut self,
        state: &mut LoopState,
        datagram: &OutgoingDatagram,
        errno: Errno,
    ) {
        if datagram.state == OutgoingState::Failed && !is_of_an_earlier_one(errno) {
            return;
        }
        if self.rx.report_error(errno) {
            self.notify_receivers(state);
        } else if self.tx.connected {
            self.tx.failures.add(SendFailure::of_earlier(datagram, errno));
        }
    }
}
