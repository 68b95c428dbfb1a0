//! A connection at work, and how it ends.

use super::flow::End;
use super::mailbox::Letter;
use super::socket::{Side, SocketId, State};
use super::{Change, Net};
use crate::memory::Piece;
use annulus_kernel::Shutdown;
use rustix::io::Errno;

impl Net {
    /// Room for bytes to send, or why there is none.
    #[inline]
    pub(crate) fn room(&mut self, id: SocketId) -> Result<usize, Errno> {
        let socket = self.socket_mut(id);
        if socket.unix.is_some() && self.is_cut_off(id) {
            return Err(Errno::PIPE);
        }
        let socket = self.socket_mut(id);
        if let Some(error) = socket.refuses_to_send() {
            return Err(error);
        }
        let (peer, most) = (socket.peer, socket.options.send_buffer);
        let kept = peer.map_or(0, |peer| self.kept_for(peer));
        if kept < most { Ok(most - kept) } else { Err(Errno::AGAIN) }
    }

    /// Bytes that a sender keeps until its peer has them: within the host, until they are read.
    #[inline]
    fn kept_for(&self, peer: SocketId) -> usize {
        let peer = self.socket(peer);
        let local = peer.unix.is_some();
        if local { peer.inbound.bytes.len() } else { peer.inbound.unacknowledged() }
    }

    /// Whether nobody will ever read what a socket sends. A Unix socket knows that at once.
    #[cold]
    fn is_cut_off(&self, id: SocketId) -> bool {
        let peer = self.socket(id).peer.map(|peer| self.socket(peer));
        peer.is_some_and(|peer| peer.released || peer.stopped_receiving)
    }

    /// Whether a send or connect that waits would get on.
    pub(crate) fn writable(&self, id: SocketId) -> bool {
        let socket = self.socket(id);
        if socket.is_datagram() {
            return self.may_post(id, None);
        }
        match (&socket.state, socket.peer) {
            (State::Connecting, _) => false,
            (State::Open, Some(peer)) => {
                let most = socket.options.send_buffer;
                let kept = self.kept_for(peer);
                let cut_off = socket.unix.is_some() && self.is_cut_off(id);
                let over = socket.error.is_some() || socket.stopped_sending || cut_off;
                // A third, as Linux: a sender that is woken for each freed byte gets nowhere.
                over || 3 * kept <= 2 * most
            }
            _ => true,
        }
    }

    /// Takes a piece of the sender's memory, of which [`room`](Self::room) said that it fits.
    #[inline]
    pub(crate) fn write(&mut self, id: SocketId, piece: Piece) {
        let peer = self.socket(id).peer.expect("an open socket has a peer");
        piece.append_to(&mut self.socket_mut(peer).inbound.bytes);
    }

    /// Puts on the wire what the receiver has room for.
    #[inline]
    pub(crate) fn transmit_from(&mut self, id: SocketId) {
        if let Some(peer) = self.socket(id).peer {
            self.transmit(peer);
        }
    }

    fn transmit(&mut self, to: SocketId) {
        let segment = self.link.segment as usize;
        loop {
            let socket = self.socket_mut(to);
            let count = socket.inbound.sendable(socket.window(), segment);
            if count == 0 {
                break;
            }
            socket.inbound.depart(count);
            self.travel(to, count as u32, Change::Segment(count as u32));
        }
        let inbound = &mut self.socket_mut(to).inbound;
        if inbound.end == End::Queued && inbound.unsent() == 0 {
            inbound.end = End::Flying;
            self.tell(to, Change::EndOfStream);
        }
    }

    pub(super) fn on_segment(&mut self, id: SocketId, len: usize) {
        let socket = self.socket_mut(id);
        if socket.released || !socket.is_open() {
            socket.inbound.lose(len);
            return self.reset_peer(id);
        }
        socket.inbound.arrive(len);
        self.wake(id, Side::Read);
        self.wake_sender_to(id);
    }

    /// The peer of a socket, should it have room to send now.
    #[inline]
    fn wake_sender_to(&mut self, id: SocketId) {
        if let Some(peer) = self.socket(id).peer.filter(|&peer| self.writable(peer)) {
            self.wake(peer, Side::Write);
        }
    }

    pub(super) fn on_end(&mut self, id: SocketId) {
        self.socket_mut(id).inbound.end = End::Arrived;
        self.wake(id, Side::Read);
    }

    pub(super) fn on_reset(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        if !socket.is_open() {
            return;
        }
        let ended = socket.inbound.end == End::Arrived;
        socket.error = Some(if ended { Errno::PIPE } else { Errno::CONNRESET });
        socket.state = State::Closed;
        socket.inbound.discard_unsent();
        let peer = socket.peer;
        if let Some(peer) = peer {
            self.socket_mut(peer).inbound.discard_unsent();
        }
        self.wake(id, Side::Read);
        self.wake(id, Side::Write);
    }

    /// What a receive finds: how many bytes, zero at the end, or why not.
    #[inline]
    pub(crate) fn look(&mut self, id: SocketId) -> Result<usize, Errno> {
        let socket = self.socket_mut(id);
        let there = socket.look()?;
        Ok(socket.unix.as_ref().map_or(there, |part| part.stretch().min(there)))
    }

    /// Copies received bytes out, `most` of them at most. [`look`](Self::look) said that there are some.
    #[inline]
    pub(crate) fn read(&mut self, id: SocketId, into: Piece, most: usize) -> usize {
        let socket = self.socket_mut(id);
        let inbound = &mut socket.inbound;
        let count = into.fill_from(&mut inbound.bytes, most.min(inbound.arrived));
        inbound.arrived -= count;
        if socket.unix.is_some() {
            self.after_local_read(id, count);
            // What came beside these bytes has no place to go.
            let rights = self.unpack(id);
            self.orphans.extend(rights);
        } else if inbound.unsent() > 0 {
            // The window has opened.
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

    /// Takes received bytes out, with what came beside them.
    pub(crate) fn read_message(&mut self, id: SocketId, most: usize) -> Letter {
        let inbound = &mut self.socket_mut(id).inbound;
        let bytes: Vec<u8> = inbound.bytes.drain(..most).collect();
        inbound.arrived -= most;
        let window_opened = inbound.unsent() > 0;
        if self.socket(id).unix.is_some() {
            self.after_local_read(id, most);
        } else if window_opened {
            self.transmit(id);
        }
        let from = self.socket(id).unix.as_ref().and_then(|part| part.peer_name);
        Letter { bytes, from, rights: self.unpack(id), ..Letter::default() }
    }

    pub(crate) fn shutdown(&mut self, id: SocketId, how: Shutdown) -> Result<(), Errno> {
        if self.socket(id).is_datagram() {
            return self.shut_datagram(id, how != Shutdown::Write, how != Shutdown::Read);
        }
        match self.socket(id).state {
            State::Listening(_) if how != Shutdown::Write => self.stop_listening(id),
            State::Listening(_) | State::Open => {}
            _ => return Err(Errno::NOTCONN),
        }
        if how != Shutdown::Write {
            self.socket_mut(id).stopped_receiving = true;
            self.wake(id, Side::Read);
            // Within the host, whoever waits to send learns it.
            self.wake_sender_to(id);
        }
        if how != Shutdown::Read {
            self.stop_sending(id);
        }
        Ok(())
    }

    /// The end of the stream leaves behind what was accepted so far.
    fn stop_sending(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        let Some(peer) = socket.peer else { return };
        if !std::mem::replace(&mut socket.stopped_sending, true) {
            self.socket_mut(peer).inbound.end = End::Queued;
            self.transmit(peer);
            self.wake(id, Side::Write);
        }
    }

    /// Those who wait to be accepted are turned away.
    fn stop_listening(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        let port = socket.local.map_or(0, |local| local.port());
        let state = std::mem::replace(&mut socket.state, State::Closed);
        self.ports.unbind(port, id);
        if let State::Listening(listening) = state {
            for child in listening.queue {
                self.reset_peer(child);
                self.release(child);
            }
        }
        self.refuse_callers(id);
    }

    /// The last file that stood for a socket is gone.
    pub(crate) fn release(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        socket.released = true;
        let unread = socket.inbound.arrived > 0;
        socket.inbound.discard_arrived();
        match socket.state {
            State::Listening(_) => self.stop_listening(id),
            State::Open if unread || socket.options.abortive => self.reset_peer(id),
            State::Open => self.stop_sending(id),
            State::Connecting => {
                self.give_up_connect(id);
                self.reset_peer(id);
            }
            State::Fresh | State::Closed => {}
        }
        if self.socket(id).is_datagram() {
            self.release_mail(id);
        }
        if self.socket(id).unix.is_some() {
            self.wake_sender_to(id);
            self.release_unix(id);
        }
        if let Some(local) = self.socket(id).local {
            self.ports_of(id).unbind(local.port(), id);
        }
        self.reap(id);
    }

    /// Ends a connection at once: what was not yet sent is lost, and the peer learns it.
    fn reset_peer(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        let gone = matches!(std::mem::replace(&mut socket.state, State::Closed), State::Closed);
        if let Some(peer) = socket.peer.filter(|_| !gone) {
            self.socket_mut(peer).inbound.discard_unsent();
            self.tell(peer, Change::Reset);
        }
    }

    /// The network loses a connection: both ends are reset.
    pub(crate) fn tear(&mut self, id: SocketId) {
        let socket = self.socket(id);
        let ends = if socket.is_open() { [Some(id), socket.peer] } else { [None; 2] };
        for end in ends.into_iter().flatten() {
            self.socket_mut(end).inbound.discard_unsent();
            self.tell(end, Change::Reset);
        }
    }
}
