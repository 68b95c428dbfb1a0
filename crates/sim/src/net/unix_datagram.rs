//! Unix datagram sockets: nothing is lost, and a send to a full socket waits.

use super::Net;
use super::datagram_queue::{Datagram, Partner};
use super::datagrams::OutgoingDatagram;
use super::socket::{Side, SocketId};
use crate::descriptors::FileId;
use annulus_kernel::Address;
use rustix::io::Errno;

/// The part of the send buffer that a datagram cannot use.
const RESERVE: usize = 32;

impl Net {
    pub(super) fn connect_unix_datagram(
        &mut self,
        id: SocketId,
        to: &Address,
    ) -> Result<(), Errno> {
        let target = self.names.find(to, true)?;
        if !self.socket(target).is_datagram() {
            return Err(Errno::PROTOTYPE);
        }
        self.accepts_from(target, id)?;
        let name = self.unix(target).name;
        self.unix_mut(id).peer_name = name;
        self.set_partner(id, Partner::Open(target));
        Ok(())
    }

    pub(super) fn set_partner(&mut self, id: SocketId, partner: Partner) {
        if let Some(queue) = &mut self.socket_mut(id).datagrams {
            queue.partner = partner;
        }
    }

    fn partner(&self, id: SocketId) -> Partner {
        self.socket(id).datagrams.as_ref().map_or(Partner::None, |queue| queue.partner)
    }

    /// The destination of a datagram.
    pub(super) fn target(&self, id: SocketId, to: Option<&Address>) -> Result<SocketId, Errno> {
        match (to, self.partner(id)) {
            (Some(name), _) => self.names.find(name, true),
            (None, Partner::Open(partner)) => Ok(partner),
            (None, Partner::Closed) => Err(Errno::CONNREFUSED),
            (None, Partner::None) => Err(Errno::NOTCONN),
        }
    }

    /// A connected socket receives only from its peer.
    fn accepts_from(&self, target: SocketId, id: SocketId) -> Result<(), Errno> {
        match self.partner(target) {
            Partner::None => Ok(()),
            Partner::Open(partner) if partner == id => Ok(()),
            _ => Err(Errno::PERM),
        }
    }

    /// The destination of a datagram, if it accepts from this sender.
    fn accepting_target(&mut self, id: SocketId, to: Option<&Address>) -> Result<SocketId, Errno> {
        let target = self.target(id, to);
        if to.is_none() && target == Err(Errno::CONNREFUSED) {
            // The error is reported once.
            self.set_partner(id, Partner::None);
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
        if outgoing.len + RESERVE > self.socket(id).options.send_buffer {
            return Err(Errno::MSGSIZE);
        }
        let target = self.accepting_target(id, outgoing.to)?;
        self.refusal(id)?;
        if self.socket(target).stopped_receiving {
            return Err(Errno::PIPE);
        }
        if !self.can_send_datagram(id, outgoing.to) {
            self.await_space(id, outgoing.to);
            return Err(Errno::AGAIN);
        }
        let from = self.unix(id).name;
        let rights = std::mem::take(rights);
        let mut datagram = Datagram { bytes: gather(), from, rights, ..Datagram::default() };
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
            // The limit is the number of datagrams, not of bytes.
            queue.receive(datagram, usize::MAX, false);
        }
        self.wake(target, Side::Read);
    }
}
