//! Simulated Unix stream sockets. They connect by name, and sent bytes arrive at once.

use super::Net;
use super::datagram_queue::DatagramPeer;
use super::socket::{Side, Socket, SocketId, SocketState};
use crate::descriptors::FileId;
use annulus_kernel::{Address, Credentials, SocketType, UnixName};
use rustix::io::Errno;
use std::collections::VecDeque;

/// The part of a socket that only Unix sockets have.
#[derive(Debug, Default)]
pub(crate) struct UnixPart {
    pub(crate) name: Option<Address>,
    /// The name of a peer that was closed.
    pub(crate) last_peer_name: Option<Address>,
    /// Descriptors passed with unread bytes.
    passed: VecDeque<PassedDescriptors>,
    /// Number of bytes read since the connection began. The offsets in `passed` count from the
    /// first byte of the connection.
    read: u64,
    /// Descriptors passed with the bytes read last.
    received_rights: Vec<FileId>,
    /// Connects that wait for space in the backlog of this listener.
    connecting: VecDeque<SocketId>,
    /// The listener whose backlog this socket waits for.
    connecting_to: Option<SocketId>,
}

/// Descriptors passed with a range of bytes.
#[derive(Debug)]
struct PassedDescriptors {
    start: u64,
    end: u64,
    rights: Vec<FileId>,
}

impl UnixPart {
    /// Returns how many bytes may be read together: a read does not join two sends with
    /// descriptors.
    pub(crate) fn readable_together(&self) -> usize {
        self.passed.front().map_or(usize::MAX, |group| (group.end - self.read) as usize)
    }

    /// Records that bytes were read, which makes the descriptors passed with them available. Like
    /// on Linux, a read of zero bytes takes the descriptors passed with the next byte.
    pub(crate) fn advance(&mut self, count: usize) {
        self.read += count as u64;
        let end = self.read + u64::from(count == 0);
        while self.passed.front().is_some_and(|group| group.start < end) {
            self.received_rights
                .extend(self.passed.pop_front().into_iter().flat_map(|it| it.rights));
        }
    }

    pub(crate) fn take_rights(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.received_rights)
    }

    /// Takes all descriptors that have not been read.
    fn clear(&mut self) -> impl Iterator<Item = FileId> {
        let passed = std::mem::take(&mut self.passed);
        passed.into_iter().flat_map(|group| group.rights).chain(self.take_rights())
    }
}

pub(crate) fn credentials() -> Credentials {
    use rustix::process::{getegid, geteuid};
    Credentials { pid: std::process::id(), uid: geteuid().as_raw(), gid: getegid().as_raw() }
}

impl Net {
    pub(crate) fn create_pair(&mut self, kind: SocketType, nonblocking: bool) -> [SocketId; 2] {
        let pair = [(); 2].map(|()| self.create(annulus_kernel::Domain::Unix, kind, nonblocking));
        for (id, peer) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            let socket = self.socket_mut(id);
            match &mut socket.datagrams {
                Some(queue) => queue.peer = DatagramPeer::Open(peer),
                None => (socket.state, socket.peer) = (SocketState::Open, Some(peer)),
            }
        }
        pair
    }

    pub(super) fn bind_unix(&mut self, id: SocketId, to: &Address) -> Result<(), Errno> {
        if self.unix(id).name.is_some() {
            // Like on Linux, a bound socket needs no other automatic name.
            let is_automatic = matches!(to.to_unix(), Ok(UnixName::Unnamed));
            return if is_automatic { Ok(()) } else { Err(Errno::INVAL) };
        }
        let datagram = self.socket(id).is_datagram();
        let name = self.unix_names.bind(to, id, datagram)?;
        self.unix_mut(id).name = Some(name);
        Ok(())
    }

    pub(super) fn unix(&self, id: SocketId) -> &UnixPart {
        self.socket(id).unix.as_ref().expect("the socket is not a Unix socket")
    }

    /// Returns the name of the peer of a Unix socket: the current one, as on Linux.
    pub(super) fn unix_peer_name(&self, id: SocketId) -> Option<Address> {
        match (self.socket(id).peer, self.datagram_peer(id)) {
            (Some(peer), _) | (None, DatagramPeer::Open(peer)) => self.unix(peer).name,
            (None, DatagramPeer::Closed) => self.unix(id).last_peer_name,
            (None, DatagramPeer::None) => None,
        }
    }

    pub(super) fn unix_mut(&mut self, id: SocketId) -> &mut UnixPart {
        self.socket_mut(id).unix.as_mut().expect("the socket is not a Unix socket")
    }

    /// Connects a stream. If the backlog is full, the connect waits unless the socket is
    /// non-blocking.
    pub(super) fn connect_unix(&mut self, id: SocketId, to: &Address) -> Result<(), Errno> {
        let listener = self.unix_names.find(to, false)?;
        if self.socket(listener).is_datagram() {
            return Err(Errno::PROTOTYPE);
        }
        let target = self.socket(listener);
        if !matches!(target.state, SocketState::Listening(_)) || target.stopped_receiving {
            return Err(Errno::CONNREFUSED);
        }
        match self.socket(id).state {
            SocketState::Fresh => {}
            SocketState::Connecting => return Err(Errno::ALREADY),
            SocketState::Listening(_) => return Err(Errno::INVAL),
            SocketState::Open | SocketState::Closed => return Err(Errno::ISCONN),
        }
        if self.has_backlog_space(listener) {
            self.join(listener, id);
            return Ok(());
        }
        if self.socket(id).nonblocking {
            return Err(Errno::AGAIN);
        }
        self.socket_mut(id).state = SocketState::Connecting;
        self.unix_mut(id).connecting_to = Some(listener);
        self.unix_mut(listener).connecting.push_back(id);
        Ok(())
    }

    /// Establishes a connection.
    fn join(&mut self, listener: SocketId, client: SocketId) {
        let parent = self.socket(listener);
        let mut child = Socket::new(parent.domain, parent.options.clone());
        let name = self.unix(listener).name;
        child.unix = Some(Box::new(UnixPart { name, ..UnixPart::default() }));
        (child.state, child.peer) = (SocketState::Open, Some(client));
        let child = self.sockets.insert(child);
        let connected = self.socket_mut(client);
        (connected.state, connected.peer) = (SocketState::Open, Some(child));
        if let SocketState::Listening(listening) = &mut self.socket_mut(listener).state {
            listening.queue.push_back(child);
        }
        self.wake(listener, Side::Read);
        self.wake(client, Side::Write);
    }

    /// Establishes the next waiting connection, now that the listener's backlog has space.
    pub(super) fn admit_next(&mut self, listener: SocketId) {
        let Some(part) = &mut self.socket_mut(listener).unix else { return };
        if let Some(client) = part.connecting.pop_front() {
            self.unix_mut(client).connecting_to = None;
            self.join(listener, client);
        }
    }

    /// Cancels a connect that waits for a backlog.
    pub(crate) fn give_up_connect(&mut self, id: SocketId) {
        let Some(part) = &mut self.socket_mut(id).unix else { return };
        if let Some(listener) = part.connecting_to.take() {
            self.unix_mut(listener).connecting.retain(|client| *client != id);
            self.socket_mut(id).state = SocketState::Fresh;
        }
    }

    /// Refuses the connects that wait for a listener that is being closed.
    pub(super) fn refuse_connecting(&mut self, listener: SocketId) {
        let Some(part) = &mut self.socket_mut(listener).unix else { return };
        for client in std::mem::take(&mut part.connecting) {
            self.unix_mut(client).connecting_to = None;
            self.on_refused(client, Errno::CONNREFUSED);
        }
    }

    /// Passes descriptors with the next `len` bytes that `id` writes.
    pub(crate) fn attach_rights(&mut self, id: SocketId, len: usize, rights: Vec<FileId>) {
        let Some(peer) = self.socket(id).peer else { return };
        let waiting = self.socket(peer).inbound.bytes.len() as u64;
        let part = self.unix_mut(peer);
        let start = part.read + waiting;
        part.passed.push_back(PassedDescriptors { start, end: start + len as u64, rights });
    }

    /// Frees the name and the descriptors of a closed socket.
    pub(super) fn release_unix(&mut self, id: SocketId) {
        let Some(part) = &mut self.sockets.at_mut(id).unix else { return };
        self.orphans.extend(part.clear());
        if let Some(name) = part.name {
            self.unix_names.release(&name, id);
        }
    }
}
