//! The events that epoll reports for a socket, and the changes that are edges.

use super::Net;
use super::flow::StreamEnd;
use super::socket::{Side, Socket, SocketId, SocketState};
use crate::descriptors::Watcher;
use annulus_kernel::epoll::EventFlags;

impl Net {
    #[inline]
    pub(crate) fn next_edge(&mut self) -> Option<(SocketId, Side)> {
        self.edges.pop_front()
    }

    /// Records that the readiness of a watched socket has changed.
    #[inline]
    pub(crate) fn edge(&mut self, id: SocketId, side: Side) {
        if !self.socket(id).watchers.is_empty() {
            self.edges.push_back((id, side));
        }
    }

    /// Records that a socket has space to send. The change is an edge only if a send or a readiness
    /// check found the buffer full before, or if the socket is a Unix socket.
    #[inline]
    pub(super) fn edge_for_space(&mut self, id: SocketId) {
        let mark_full = std::mem::take(&mut self.socket_mut(id).no_space);
        if mark_full || self.socket(id).unix.is_some() {
            self.edge(id, Side::Write);
        }
    }

    /// Records that a send or a readiness check found too little space, so that the next space is
    /// an edge.
    #[inline]
    pub(crate) fn mark_full(&mut self, id: SocketId) {
        self.socket_mut(id).no_space = true;
    }

    pub(crate) fn watchers(&mut self, id: SocketId) -> &mut Vec<Watcher> {
        &mut self.socket_mut(id).watchers
    }

    /// Returns the events that polls and epoll report now. Like on Linux, checking a full socket
    /// makes its next space an edge.
    pub(crate) fn readiness(&mut self, id: SocketId) -> EventFlags {
        let events = self.events(id);
        if !events.contains(EventFlags::OUT) {
            self.mark_full(id);
            self.await_space(id, None);
        }
        events
    }

    /// Returns the events of a socket.
    pub(crate) fn events(&self, id: SocketId) -> EventFlags {
        let socket = self.socket(id);
        if socket.is_listening() && socket.unix.is_none() {
            return if socket.readable() { EventFlags::IN } else { EventFlags::empty() };
        }
        let ended = socket.has_ended();
        let flags = [
            (EventFlags::IN, socket.readable()),
            (EventFlags::OUT, !socket.is_listening() && self.writable(id)),
            (EventFlags::RDHUP, ended),
            (EventFlags::HUP, socket.is_unconnected() || ended && socket.stopped_sending),
            (EventFlags::HUP, socket.unix.is_some() && self.peer_is_released(id)),
            (EventFlags::ERR, socket.error.is_some()),
        ];
        let set = flags.into_iter().filter(|(_, is_set)| *is_set);
        set.fold(EventFlags::empty(), |flags, (flag, _)| flags | flag)
    }

    fn peer_is_released(&self, id: SocketId) -> bool {
        self.socket(id).peer.is_some_and(|peer| self.socket(peer).released)
    }
}

impl Socket {
    fn is_listening(&self) -> bool {
        matches!(self.state, SocketState::Listening(_))
    }

    /// Returns true if nothing more will arrive.
    fn has_ended(&self) -> bool {
        self.inbound.end == StreamEnd::Arrived || self.stopped_receiving || self.is_closed()
    }

    /// Returns true for a stream that was never connected, or is closed.
    pub(crate) fn is_unconnected(&self) -> bool {
        !self.is_datagram() && matches!(self.state, SocketState::Fresh | SocketState::Closed)
    }
}
