//! Unix datagram sockets: nothing is lost, and a send to a full socket waits.

use super::Net;
use super::datagram_queue::{Datagram, DatagramPeer};
use super::datagrams::OutgoingDatagram;
use super::socket::{Side, SocketId};
use crate::descriptors::FileId;
use annulus_kernel::{Address, UnixName};
use rustix::io::Errno;

/// The part of the send buffer that a datagram cannot use.
const SEND_BUFFER_RESERVE_BYTES: usize = 32;

impl Net {
    pub(super) fn connect_unix_datagram(
        &mut self,
        id: SocketId,
        to: &Address,
    ) -> Result<(), Errno> {
        let target = self.unix_names.find(to, true)?;
        if !self.socket(target).is_datagram() {
            return Err(Errno::PROTOTYPE);
        }
        self.accepts_from(target, id)?;
        self.change_datagram_peer(id, DatagramPeer::Open(target));
        Ok(())
    }

    /// Connects a socket to another peer, or to none. Like on Linux, unread datagrams are lost, and
    /// if there are any, the peer so far gets an error.
    pub(super) fn change_datagram_peer(&mut self, id: SocketId, peer: DatagramPeer) {
        let old = self.datagram_peer(id);
        self.set_datagram_peer(id, peer);
        let is_left = !matches!(old, DatagramPeer::None) && old != peer;
        if !is_left || !self.discard_datagrams(id) {
            return;
        }
        self.wake_blocked(id);
        if let DatagramPeer::Open(old) = old
            && self.datagram_peer(old) == DatagramPeer::Open(id)
        {
            self.socket_mut(old).error = Some(Errno::CONNRESET);
            self.wake(old, Side::Read);
            self.wake(old, Side::Write);
        }
    }

    pub(super) fn set_datagram_peer(&mut self, id: SocketId, peer: DatagramPeer) {
        if let Some(queue) = &mut self.socket_mut(id).datagrams {
            queue.peer = peer;
        }
    }

    pub(super) fn datagram_peer(&self, id: SocketId) -> DatagramPeer {
        self.socket(id).datagrams.as_ref().map_or(DatagramPeer::None, |queue| queue.peer)
    }

    /// Returns the destination of a datagram.
    pub(super) fn target(&self, id: SocketId, to: Option<&Address>) -> Result<SocketId, Errno> {
        match (to, self.datagram_peer(id)) {
            (Some(name), _) => self.unix_names.find(name, true),
            (None, DatagramPeer::Open(peer)) => Ok(peer),
            (None, DatagramPeer::Closed) => Err(Errno::CONNREFUSED),
            (None, DatagramPeer::None) => Err(Errno::NOTCONN),
        }
    }

    /// Returns an error if `target` is connected to another socket, and so does not receive from
    /// `id`.
    fn accepts_from(&self, target: SocketId, id: SocketId) -> Result<(), Errno> {
        match self.datagram_peer(target) {
            DatagramPeer::None => Ok(()),
            DatagramPeer::Open(peer) if peer == id => Ok(()),
            _ => Err(Errno::PERM),
        }
    }

    /// Returns the destination of a datagram, if it accepts datagrams from this sender.
    fn accepting_target(&mut self, id: SocketId, to: Option<&Address>) -> Result<SocketId, Errno> {
        let target = self.target(id, to);
        if to.is_none() && target == Err(Errno::CONNREFUSED) {
            // The error is reported once.
            self.change_datagram_peer(id, DatagramPeer::None);
        }
        let target = target?;
        if !self.socket(target).is_datagram() {
            return Err(Errno::PROTOTYPE);
        }
        self.accepts_from(target, id)?;
        Ok(target)
    }

    pub(super) fn send_unix_datagram(
        &mut self,
        id: SocketId,
        outgoing: &OutgoingDatagram<'_>,
        rights: &mut Vec<FileId>,
        gather: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), Errno> {
        if let Some(to) = outgoing.to
            && !matches!(to.to_unix(), Ok(UnixName::Path(_) | UnixName::Abstract(_)))
        {
            return Err(Errno::INVAL);
        }
        if outgoing.len + SEND_BUFFER_RESERVE_BYTES > self.socket(id).options.send_buffer {
            return Err(Errno::MSGSIZE);
        }
        self.take_datagram_error(id)?;
        let target = self.accepting_target(id, outgoing.to)?;
        if self.socket(target).stopped_receiving {
            return Err(Errno::PIPE);
        }
        if !self.can_send_datagram(id, outgoing.to) {
            self.await_space(id, outgoing.to);
            return Err(Errno::AGAIN);
        }
        let rights = std::mem::take(rights);
        let mut datagram = Datagram { bytes: gather(), rights, ..Datagram::default() };
        self.charge(&mut datagram, id);
        self.deliver(target, datagram);
        Ok(())
    }

    /// Records that a socket waits for space at its destination, if that is full.
    pub(crate) fn await_space(&mut self, id: SocketId, to: Option<&Address>) {
        if self.target_has_space(id, to) {
            return;
        }
        let Ok(target) = self.target(id, to) else { return };
        if let Some(queue) = &mut self.socket_mut(target).datagrams
            && !queue.blocked.contains(&id)
        {
            queue.blocked.push(id);
        }
    }

    fn deliver(&mut self, target: SocketId, mut datagram: Datagram) {
        datagram.at = self.time.now();
        if let Some(queue) = &mut self.socket_mut(target).datagrams {
            // The limit is on the number of datagrams, not on bytes.
            queue.receive(datagram, usize::MAX, false);
        }
        self.wake(target, Side::Read);
    }
}
