//! Connections: transfer of bytes, and the end of a connection.

use super::datagram_queue::Datagram;
use super::flow::StreamEnd;
use super::socket::{Side, SocketId, SocketState};
use super::{Net, SocketChange};
use crate::memory_range::MemoryRange;
use annulus_kernel::Shutdown;
use rustix::io::Errno;

impl Net {
    /// Returns the space for bytes to send, or the error. A Unix stream accepts no address.
    #[inline]
    pub(crate) fn send_space(&mut self, id: SocketId, has_address: bool) -> Result<usize, Errno> {
        let socket = self.socket(id);
        if socket.unix.is_some() && has_address {
            return Err(if socket.peer.is_some() { Errno::ISCONN } else { Errno::OPNOTSUPP });
        }
        if socket.unix.is_some() && self.peer_is_closed(id) {
            return Err(Errno::PIPE);
        }
        let socket = self.socket_mut(id);
        if let Some(error) = socket.take_send_error() {
            return Err(error);
        }
        let (peer, most) = (socket.peer, socket.options.send_buffer);
        let kept = peer.map_or(0, |peer| self.kept_for(peer));
        if kept < most {
            return Ok(most - kept);
        }
        self.mark_full(id);
        Err(Errno::AGAIN)
    }

    /// Returns how many bytes are in the sender's buffer: those that have not arrived at `peer`, or
    /// on a Unix socket those that `peer` has not read.
    #[inline]
    fn kept_for(&self, peer: SocketId) -> usize {
        let peer = self.socket(peer);
        let local = peer.unix.is_some();
        if local { peer.inbound.bytes.len() } else { peer.inbound.unacknowledged() }
    }

    /// Returns how many sent bytes the peer does not have yet; a pending end of the stream counts
    /// as one.
    pub(crate) fn unacknowledged(&self, id: SocketId) -> usize {
        let socket = self.socket(id);
        let Some(peer) = socket.peer.filter(|_| socket.is_open()) else { return 0 };
        let inbound = &self.socket(peer).inbound;
        inbound.unacknowledged()
            + usize::from(matches!(inbound.end, StreamEnd::Queued | StreamEnd::Flying))
    }

    /// Returns true if the peer can no longer read, which a Unix socket reports at once.
    #[cold]
    fn peer_is_closed(&self, id: SocketId) -> bool {
        let peer = self.socket(id).peer.map(|peer| self.socket(peer));
        peer.is_some_and(|peer| peer.released || peer.stopped_receiving)
    }

    /// Returns true if a waiting send or connect could proceed.
    pub(crate) fn writable(&self, id: SocketId) -> bool {
        let socket = self.socket(id);
        if socket.is_datagram() {
            return self.can_send_datagram(id, None);
        }
        match (&socket.state, socket.peer) {
            (SocketState::Connecting, _) => false,
            (SocketState::Open, Some(peer)) => {
                let most = socket.options.send_buffer;
                let kept = self.kept_for(peer);
                let cut_off = socket.unix.is_some() && self.peer_is_closed(id);
                let over = socket.error.is_some() || socket.stopped_sending || cut_off;
                // Like on Linux, a third must be free. Otherwise a sender would be woken for each
                // freed byte.
                over || 3 * kept <= 2 * most
            }
            _ => true,
        }
    }

    /// Copies the sender's memory; [`send_space`](Self::send_space) has returned enough space for
    /// it.
    #[inline]
    pub(crate) fn write(&mut self, id: SocketId, range: MemoryRange) {
        let peer = self.socket(id).peer.expect("an open socket has no peer");
        range.append_to(&mut self.socket_mut(peer).inbound.bytes);
    }

    /// Sends the bytes that the receiver has space for.
    #[inline]
    pub(crate) fn transmit_from(&mut self, id: SocketId) {
        if let Some(peer) = self.socket(id).peer {
            self.transmit(peer);
        }
    }

    fn transmit(&mut self, to: SocketId) {
        let link = self.links.of(self.socket(to));
        let (segment, latest) =
            (link.short_segment(), self.time.now().saturating_add(link.max_ahead()));
        loop {
            let socket = self.socket_mut(to);
            if socket.inbound.wire.is_busy_at(latest) {
                // The arrival of a segment continues here.
                break;
            }
            let count = socket.inbound.sendable(socket.window(), segment);
            if count == 0 {
                break;
            }
            socket.inbound.depart(count);
            self.send_over_link(to, count as u32, SocketChange::Segment(count as u32));
        }
        let inbound = &mut self.socket_mut(to).inbound;
        if inbound.end == StreamEnd::Queued && inbound.unsent() == 0 {
            inbound.end = StreamEnd::Flying;
            self.schedule_change(to, SocketChange::EndOfStream);
        }
    }

    pub(super) fn on_segment(&mut self, id: SocketId, len: usize) {
        let socket = self.socket_mut(id);
        if socket.released || !socket.is_open() {
            socket.inbound.lose(len);
            return self.reset_peer(id);
        }
        socket.inbound.arrive(len);
        let (is_local, waits) = (socket.unix.is_some(), socket.inbound.unsent() > 0);
        self.wake(id, Side::Read);
        // Arrived bytes of a Unix socket use the sender's buffer until they are read.
        if !is_local {
            self.wake_sender_to(id);
            if waits {
                self.transmit(id);
            }
        }
    }

    /// Wakes the peer of a socket if it can send now.
    #[inline]
    fn wake_sender_to(&mut self, id: SocketId) {
        if let Some(peer) = self.socket(id).peer.filter(|&peer| self.writable(peer)) {
            self.wake_waiters(peer, Side::Write);
            self.edge_for_space(peer);
        }
    }

    pub(super) fn on_end_of_stream(&mut self, id: SocketId) {
        self.socket_mut(id).inbound.end = StreamEnd::Arrived;
        self.wake(id, Side::Read);
    }

    pub(super) fn on_reset(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        if !socket.is_open() {
            return;
        }
        let ended = socket.inbound.end == StreamEnd::Arrived && socket.unix.is_none();
        socket.error = Some(if ended { Errno::PIPE } else { Errno::CONNRESET });
        socket.state = SocketState::Closed;
        socket.inbound.discard_unsent();
        let peer = socket.peer;
        self.free_port(id);
        if let Some(peer) = peer {
            self.socket_mut(peer).inbound.discard_unsent();
        }
        self.wake(id, Side::Read);
        self.wake(id, Side::Write);
    }

    /// Returns the number of bytes that can be received: zero at the end of the stream, or the
    /// error.
    #[inline]
    pub(crate) fn receivable(&mut self, id: SocketId) -> Result<usize, Errno> {
        let socket = self.socket_mut(id);
        let there = socket.receivable()?;
        Ok(socket.unix.as_ref().map_or(there, |part| part.readable_together().min(there)))
    }

    /// Moves at most `most` received bytes to `into`. [`receivable`](Self::receivable) must have
    /// returned a number above zero.
    #[inline]
    pub(crate) fn read(&mut self, id: SocketId, into: MemoryRange, most: usize) -> usize {
        let socket = self.socket_mut(id);
        let inbound = &mut socket.inbound;
        let count = into.fill_from(&mut inbound.bytes, most.min(inbound.arrived));
        inbound.arrived -= count;
        if socket.unix.is_some() {
            self.after_local_read(id, count);
            // This receive cannot take the descriptors passed with these bytes.
            let rights = self.take_rights(id);
            self.orphans.extend(rights);
        } else if inbound.unsent() > 0 {
            // The read made space in the receive window, so queued bytes can be sent.
            self.transmit(id);
        }
        count
    }

    #[cold]
    fn after_local_read(&mut self, id: SocketId, count: usize) {
        if let Some(part) = &mut self.socket_mut(id).unix {
            part.advance(count);
        }
        self.wake_sender_to(id);
    }

    /// Takes received bytes and the descriptors passed with them.
    pub(crate) fn read_message(&mut self, id: SocketId, most: usize) -> Datagram {
        let inbound = &mut self.socket_mut(id).inbound;
        let bytes: Vec<u8> = inbound.bytes.drain(..most).collect();
        inbound.arrived -= most;
        let window_opened = inbound.unsent() > 0;
        if self.socket(id).unix.is_some() {
            self.after_local_read(id, most);
        } else if window_opened {
            self.transmit(id);
        }
        // Like on Linux, the end of the stream has no sender.
        let has_sender = self.socket(id).unix.is_some() && most > 0;
        let from = if has_sender { self.unix_peer_name(id) } else { None };
        Datagram { bytes, from, rights: self.take_rights(id), ..Datagram::default() }
    }

    pub(crate) fn shutdown(&mut self, id: SocketId, how: Shutdown) -> Result<(), Errno> {
        if self.socket(id).is_datagram() {
            return self.shutdown_datagram(id, how != Shutdown::Write, how != Shutdown::Read);
        }
        let is_unix = self.socket(id).unix.is_some();
        let is_connected = match self.socket(id).state {
            SocketState::Listening(_) if how != Shutdown::Write => {
                self.stop_listening(id);
                true
            }
            SocketState::Listening(_) | SocketState::Open => {
                self.socket_mut(id).connect_is_unreported = false;
                true
            }
            SocketState::Connecting => return Err(Errno::NOTCONN),
            SocketState::Fresh | SocketState::Closed => is_unix,
        };
        if how != Shutdown::Write {
            self.socket_mut(id).stopped_receiving = true;
            self.wake(id, Side::Read);
            if let Some(peer) = self.socket(id).peer.filter(|_| is_unix) {
                // A waiting sender gets an error.
                self.socket_mut(peer).stopped_sending = true;
                self.wake(peer, Side::Write);
            }
        }
        if how != Shutdown::Read {
            self.stop_sending(id);
        }
        // Like on Linux, the shutdown takes effect although an error is returned.
        if is_connected { Ok(()) } else { Err(Errno::NOTCONN) }
    }

    /// Sends the end of the stream after the bytes accepted so far.
    fn stop_sending(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        socket.stopped_sending = true;
        let peer = socket.peer.map(|peer| (peer, self.socket(peer).inbound.end));
        if let Some((peer, StreamEnd::Open)) = peer.filter(|_| !self.socket(id).is_closed()) {
            self.socket_mut(peer).inbound.end = StreamEnd::Queued;
            self.transmit(peer);
        }
        self.wake(id, Side::Write);
    }

    /// Stops listening, and resets connections that wait to be accepted.
    fn stop_listening(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        let port = socket.local.map_or(0, |local| local.port());
        let state = std::mem::replace(&mut socket.state, SocketState::Closed);
        self.ports.unbind(port, id);
        if let SocketState::Listening(listening) = state {
            for child in listening.queue {
                self.reset_peer(child);
                self.release(child);
            }
        }
        self.refuse_connecting(id);
    }

    /// Closes a socket whose last file was closed.
    pub(crate) fn release(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        socket.released = true;
        // Keeps the socket until the end of this function. Datagrams that it has sent to itself
        // would free it when they are discarded.
        socket.events += 1;
        let unread = socket.inbound.arrived > 0;
        socket.inbound.discard_arrived();
        match socket.state {
            SocketState::Listening(_) => self.stop_listening(id),
            SocketState::Open if unread || socket.options.is_abortive() => self.reset_peer(id),
            SocketState::Open => self.stop_sending(id),
            SocketState::Connecting => {
                self.give_up_connect(id);
                self.reset_peer(id);
            }
            SocketState::Fresh | SocketState::Closed => {}
        }
        if self.socket(id).is_datagram() {
            self.release_datagrams(id);
        }
        if self.socket(id).unix.is_some() {
            self.wake_sender_to(id);
            self.release_unix(id);
        }
        if let Some(local) = self.socket(id).local {
            self.ports_of(id).unbind(local.port(), id);
        }
        self.socket_mut(id).events -= 1;
        self.reap(id);
    }

    /// Ends a connection at once. Unsent bytes are lost, and the peer gets a reset.
    pub(super) fn reset_peer(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        let gone = matches!(
            std::mem::replace(&mut socket.state, SocketState::Closed),
            SocketState::Closed
        );
        if let Some(peer) = socket.peer.filter(|_| !gone) {
            self.socket_mut(peer).inbound.discard_unsent();
            self.schedule_change(peer, SocketChange::Reset);
        }
    }

    /// Resets both ends of a connection, as a fault of the network.
    pub(crate) fn reset_both(&mut self, id: SocketId) {
        let socket = self.socket(id);
        let ends = if socket.is_open() { [Some(id), socket.peer] } else { [None; 2] };
        for end in ends.into_iter().flatten() {
            self.socket_mut(end).inbound.discard_unsent();
            self.schedule_change(end, SocketChange::Reset);
        }
    }
}
