//! Connections whose peers cannot be reached, and when their kernel gives them up.

use super::connect::CONNECT_TIME;
use super::socket::{Side, Socket, SocketId, SocketState};
use super::{Net, NetEvent, SocketChange};
use crate::timeline::Nanos;
use annulus_kernel::SocketOption;
use rustix::io::Errno;

const NANOS_PER_SECOND: Nanos = 1_000_000_000;
const NANOS_PER_MILLISECOND: Nanos = 1_000_000;
/// The time for which sent bytes are repeated without `TCP_USER_TIMEOUT`: that of the 15 repetitions
/// of `tcp_retries2`.
const RETRANSMISSION_TIME: Nanos = 924_600_000_000;

/// When a connection, or an attempt to connect, fails unless its peer can be reached again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GiveUp {
    at: Nanos,
    /// Whether bytes wait for an acknowledgement. As on Linux, the connection is then not probed.
    has_sent: bool,
}

impl Net {
    /// Starts to probe the connections with `SO_KEEPALIVE` that have been cut off.
    pub(super) fn probe_cut_off(&mut self) {
        let probed = self.sockets.iter().filter(|(id, socket)| {
            socket.is_open()
                && socket.gives_up.is_none()
                && socket.options.is_on(SocketOption::KeepAlive)
                && self.is_cut_off(*id)
        });
        let ids: Vec<SocketId> = probed.map(|(id, _)| id).collect();
        for id in ids {
            let time = self.socket(id).probing_time();
            self.give_up_after(id, time, false);
        }
    }

    /// Records that a change cannot arrive at `id`: bytes or the end of the stream, which are not
    /// acknowledged to the sender, or the answer to a connect.
    pub(super) fn note_held(&mut self, id: SocketId, change: SocketChange) {
        let socket = self.socket(id);
        if matches!(socket.state, SocketState::Connecting) && socket.gives_up.is_none() {
            self.give_up_after(id, CONNECT_TIME, false);
        }
        let is_sent = matches!(change, SocketChange::Segment(_) | SocketChange::EndOfStream);
        let Some(sender) = self.socket(id).peer.filter(|_| is_sent) else { return };
        let socket = self.socket(sender);
        if socket.is_open() && socket.gives_up.is_none_or(|known| !known.has_sent) {
            let time = socket.retransmission_time();
            self.give_up_after(sender, time, true);
        }
    }

    fn give_up_after(&mut self, id: SocketId, time: Nanos, has_sent: bool) {
        let at = self.time.now().saturating_add(time);
        self.socket_mut(id).gives_up = Some(GiveUp { at, has_sent });
        self.time.schedule(at, NetEvent::GiveUp(id, at));
    }

    /// Ends a connection or an attempt with ETIMEDOUT, unless its peer has been reached in the
    /// meantime. The peer of a connection is not notified.
    pub(super) fn on_give_up(&mut self, id: SocketId, at: Nanos) {
        let Some(socket) = self.sockets.find(id) else { return };
        if socket.gives_up.is_none_or(|known| known.at != at) {
            return;
        }
        match socket.state {
            SocketState::Open => self.vanish(id),
            SocketState::Connecting => {
                self.abandon_attempt(id);
                return self.on_refused(id, Errno::TIMEDOUT);
            }
            _ => return,
        }
        self.socket_mut(id).error = Some(Errno::TIMEDOUT);
        self.wake(id, Side::Read);
        self.wake(id, Side::Write);
    }

    /// Separates a socket from its attempt to connect, so that it can connect again. A closed
    /// socket becomes the peer of the accepting end, if that exists, and resets it once it can be
    /// reached.
    pub(super) fn abandon_attempt(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        socket.gives_up = None;
        socket.given_up = socket.given_up.wrapping_add(1);
        let Some(accepted) = socket.peer.take() else { return };
        let mut closed = Socket::new(socket.domain, socket.options.clone());
        (closed.local, closed.remote) = (socket.local, socket.remote);
        closed.state = std::mem::replace(&mut socket.state, SocketState::Connecting);
        closed.inbound = std::mem::take(&mut socket.inbound);
        (closed.peer, closed.released) = (Some(accepted), true);
        let closed = self.sockets.insert(closed);
        self.socket_mut(accepted).peer = Some(closed);
        self.reset_peer(closed);
    }

    /// Records which connections are no longer cut off.
    pub(super) fn note_reachable(&mut self) {
        let waiting = self.sockets.iter().filter(|(_, socket)| socket.gives_up.is_some());
        let reachable = waiting.map(|(id, _)| id).filter(|&id| !self.is_cut_off(id));
        let ids: Vec<SocketId> = reachable.collect();
        ids.into_iter().for_each(|id| self.socket_mut(id).gives_up = None);
    }
}

impl Socket {
    /// Returns the time until a silent peer counts as unreachable.
    fn probing_time(&self) -> Nanos {
        let value = |option| Nanos::from(self.options.value(option));
        let (idle, interval) =
            (value(SocketOption::KeepAliveTime), value(SocketOption::KeepAliveInterval));
        let until = |probes: Nanos| (idle + interval * probes) * NANOS_PER_SECOND;
        match self.user_timeout() {
            Some(limit) => limit.max(until(1)),
            None => until(value(SocketOption::KeepAliveRetries)),
        }
    }

    /// Returns the time for which bytes are repeated.
    fn retransmission_time(&self) -> Nanos {
        self.user_timeout().unwrap_or(RETRANSMISSION_TIME)
    }

    fn user_timeout(&self) -> Option<Nanos> {
        let limit = Nanos::from(self.options.value(SocketOption::UserTimeout));
        (limit > 0).then_some(limit * NANOS_PER_MILLISECOND)
    }
}
