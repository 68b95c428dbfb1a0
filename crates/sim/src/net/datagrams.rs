//! Sending and receiving datagrams, of all families.

use super::Net;
use super::datagram_queue::{Datagram, DatagramPeer, DatagramQueue};
use super::socket::{Side, SocketId};
use crate::descriptors::FileId;
use annulus_kernel::{Address, Domain};
use rustix::io::Errno;
use std::net::IpAddr;

/// A datagram to send. Its bytes are only copied once it is certain to be sent.
pub(crate) struct OutgoingDatagram<'a> {
    /// The destination; `None` is the connected peer.
    pub(crate) to: Option<&'a Address>,
    pub(crate) len: usize,
    pub(crate) options: SendOptions,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendOptions {
    pub(crate) tos: Option<u8>,
    /// The local address to send from.
    pub(crate) from: Option<IpAddr>,
    /// The size of the datagrams that the bytes are split into.
    pub(crate) segment: Option<u16>,
}

impl Net {
    /// Sends a datagram. A Unix socket passes the descriptors in `rights` and takes them on
    /// success. Returns EAGAIN if the sender must wait.
    pub(crate) fn send_datagram(
        &mut self,
        id: SocketId,
        outgoing: &OutgoingDatagram<'_>,
        rights: &mut Vec<FileId>,
        gather: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), Errno> {
        match self.socket(id).domain {
            Domain::Unix => self.send_unix_datagram(id, outgoing, rights, gather),
            Domain::Inet | Domain::Inet6 => self.send_udp(id, outgoing, gather),
        }
    }

    /// Returns true if a send to this address would succeed or fail at once instead of waiting.
    pub(crate) fn can_send_datagram(&self, id: SocketId, to: Option<&Address>) -> bool {
        let socket = self.socket(id);
        let Some(queue) = &socket.datagrams else { return true };
        let over = socket.error.is_some() || socket.stopped_sending;
        over || queue.charged < socket.options.send_buffer && self.target_has_space(id, to)
    }

    /// Returns true if the destination has space. Only Unix sockets make senders wait, but never
    /// the sender that they are connected to.
    pub(crate) fn target_has_space(&self, id: SocketId, to: Option<&Address>) -> bool {
        if self.socket(id).domain != Domain::Unix {
            return true;
        }
        let Ok(target) = self.target(id, to) else { return true };
        let Some(queue) = &self.socket(target).datagrams else { return true };
        queue.peer == DatagramPeer::Open(id) || !queue.is_full()
    }

    /// Takes the socket's pending error, which the next send on the socket reports.
    pub(super) fn take_datagram_error(&mut self, id: SocketId) -> Result<(), Errno> {
        let socket = self.socket_mut(id);
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        if socket.stopped_sending { Err(Errno::PIPE) } else { Ok(()) }
    }

    /// Charges a datagram to its sender's buffer, until [`uncharge`](Self::uncharge).
    pub(super) fn charge(&mut self, datagram: &mut Datagram, id: SocketId) {
        datagram.sender = Some(id);
        let socket = self.socket_mut(id);
        // Keeps the sender's slot until the datagram is uncharged.
        socket.events += 1;
        if let Some(queue) = &mut socket.datagrams {
            queue.charged += datagram.cost();
        }
    }

    pub(super) fn uncharge(&mut self, datagram: &Datagram) {
        let Some(id) = datagram.sender else { return };
        let socket = self.socket_mut(id);
        socket.events -= 1;
        if let Some(queue) = &mut socket.datagrams {
            queue.charged -= datagram.cost();
        }
        self.wake(id, Side::Write);
        self.reap(id);
    }

    /// Takes the oldest datagram. A pending error is returned first.
    pub(crate) fn recv_datagram(&mut self, id: SocketId) -> Result<Datagram, Errno> {
        let socket = self.socket_mut(id);
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let stopped = socket.stopped_receiving;
        let queue = socket.datagrams.as_mut().expect("the socket is not a datagram socket");
        let Some(mut datagram) = queue.take() else {
            return if stopped { Ok(Datagram::default()) } else { Err(Errno::AGAIN) };
        };
        if let (Domain::Unix, Some(sender)) = (self.socket(id).domain, datagram.sender) {
            // Like on Linux, the name that the sender has now, even if it was bound since.
            datagram.from = self.unix(sender).name;
        }
        self.wake_blocked(id);
        self.uncharge(&datagram);
        Ok(datagram)
    }

    pub(super) fn wake_blocked(&mut self, id: SocketId) {
        let Some(queue) = &mut self.socket_mut(id).datagrams else { return };
        for sender in std::mem::take(&mut queue.blocked) {
            if self.sockets.find(sender).is_some() {
                self.wake(sender, Side::Write);
            }
        }
    }

    pub(super) fn shutdown_datagram(
        &mut self,
        id: SocketId,
        read: bool,
        write: bool,
    ) -> Result<(), Errno> {
        let socket = self.socket_mut(id);
        socket.stopped_receiving |= read;
        socket.stopped_sending |= write;
        // Like on Linux, the shutdown takes effect although an error is returned.
        let missing = socket.domain != Domain::Unix && socket.remote.is_none();
        self.wake(id, Side::Read);
        self.wake(id, Side::Write);
        self.wake_blocked(id);
        if missing { Err(Errno::NOTCONN) } else { Ok(()) }
    }

    /// Discards the unread datagrams of a socket. Returns true if there were any.
    pub(super) fn discard_datagrams(&mut self, id: SocketId) -> bool {
        let mut found = false;
        while let Some(datagram) =
            self.socket_mut(id).datagrams.as_mut().and_then(|queue| queue.take())
        {
            self.discard(datagram);
            found = true;
        }
        found
    }

    /// Discards the datagrams of a socket that is being closed.
    pub(super) fn release_datagrams(&mut self, id: SocketId) {
        self.discard_datagrams(id);
        self.wake_blocked(id);
        if self.socket(id).domain == Domain::Unix {
            self.disconnect_senders(id);
        }
    }

    /// Discards a datagram that will not be read, with its descriptors.
    pub(super) fn discard(&mut self, datagram: Datagram) {
        self.uncharge(&datagram);
        self.orphans.extend(datagram.rights);
    }

    /// Marks the peer of all sockets connected to a closed Unix socket as closed; their next send
    /// fails.
    fn disconnect_senders(&mut self, id: SocketId) {
        let gone = DatagramPeer::Open(id);
        let deserted = |queue: &DatagramQueue| queue.peer == gone;
        let all =
            self.sockets.iter().filter(|(_, it)| it.datagrams.as_deref().is_some_and(deserted));
        let deserted: Vec<SocketId> = all.map(|(id, _)| id).collect();
        let name = self.unix(id).name;
        for id in deserted {
            self.unix_mut(id).last_peer_name = name;
            self.set_datagram_peer(id, DatagramPeer::Closed);
            self.wake(id, Side::Write);
        }
    }

    /// Returns true if the socket's send buffer has space.
    pub(super) fn has_send_buffer(&self, id: SocketId) -> bool {
        let socket = self.socket(id);
        socket.datagrams.as_ref().is_some_and(|queue| queue.charged < socket.options.send_buffer)
    }
}
