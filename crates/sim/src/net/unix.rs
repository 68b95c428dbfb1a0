//! Unix stream sockets: connections within the host, by name. What is sent has arrived.

use super::Net;
use super::socket::{Side, Socket, SocketId, State};
use crate::descriptors::FileId;
use annulus_kernel::{Address, Credentials, SocketType};
use rustix::io::Errno;
use std::collections::VecDeque;

/// What a Unix socket has beyond others.
#[derive(Debug, Default)]
pub(crate) struct UnixPart {
    pub(crate) name: Option<Address>,
    pub(crate) peer_name: Option<Address>,
    /// Descriptors among the bytes that it has not read yet.
    parcels: VecDeque<Parcel>,
    /// Bytes read so far: what the parcels' places are counted from.
    read: u64,
    /// Descriptors that came with the bytes read last.
    unpacked: Vec<FileId>,
    /// A listener's callers that found no place.
    callers: VecDeque<SocketId>,
    /// The listener that it is a caller of.
    calling: Option<SocketId>,
}

/// Descriptors that came with a stretch of bytes.
#[derive(Debug)]
struct Parcel {
    start: u64,
    end: u64,
    rights: Vec<FileId>,
}

impl UnixPart {
    /// How many bytes can be read together: the descriptors of two sends are never handed over at once.
    pub(crate) fn stretch(&self) -> usize {
        self.parcels.front().map_or(usize::MAX, |parcel| (parcel.end - self.read) as usize)
    }

    /// So many bytes were read; what was sent with the first of them is there to be taken.
    pub(crate) fn advance(&mut self, count: usize) {
        self.read += count as u64;
        while self.parcels.front().is_some_and(|parcel| parcel.start < self.read) {
            self.unpacked.extend(self.parcels.pop_front().into_iter().flat_map(|it| it.rights));
        }
    }

    pub(crate) fn unpack(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.unpacked)
    }

    /// Every descriptor that nobody will read.
    fn clear(&mut self) -> impl Iterator<Item = FileId> {
        let parcels = std::mem::take(&mut self.parcels);
        parcels.into_iter().flat_map(|parcel| parcel.rights).chain(self.unpack())
    }
}

/// Who the one process of the simulation is.
pub(crate) fn credentials() -> Credentials {
    use rustix::process::{getegid, geteuid};
    Credentials { pid: std::process::id(), uid: geteuid().as_raw(), gid: getegid().as_raw() }
}

impl Net {
    /// Two sockets that are each other's peers.
    pub(crate) fn create_pair(&mut self, kind: SocketType, nonblocking: bool) -> [SocketId; 2] {
        let pair = [(); 2].map(|()| self.create(annulus_kernel::Domain::Unix, kind, nonblocking));
        for (id, peer) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            let socket = self.socket_mut(id);
            match &mut socket.mail {
                Some(mail) => mail.partner = super::mailbox::Partner::Living(peer),
                None => (socket.state, socket.peer) = (State::Open, Some(peer)),
            }
        }
        pair
    }

    pub(super) fn bind_unix(&mut self, id: SocketId, to: &Address) -> Result<(), Errno> {
        if self.unix(id).name.is_some() {
            return Err(Errno::INVAL);
        }
        let datagram = self.socket(id).is_datagram();
        let name = self.names.bind(to, id, datagram)?;
        self.unix_mut(id).name = Some(name);
        Ok(())
    }

    pub(super) fn unix(&self, id: SocketId) -> &UnixPart {
        self.socket(id).unix.as_ref().expect("asked of Unix sockets only")
    }

    pub(super) fn unix_mut(&mut self, id: SocketId) -> &mut UnixPart {
        self.socket_mut(id).unix.as_mut().expect("asked of Unix sockets only")
    }

    /// Connects a stream; one that finds no place waits for one, unless its descriptor must not.
    pub(super) fn connect_unix(&mut self, id: SocketId, to: &Address) -> Result<(), Errno> {
        let listener = self.names.find(to, false)?;
        if self.socket(listener).is_datagram() {
            return Err(Errno::PROTOTYPE);
        }
        if !matches!(self.socket(listener).state, State::Listening(_)) {
            return Err(Errno::CONNREFUSED);
        }
        match self.socket(id).state {
            State::Fresh => {}
            State::Connecting => return Err(Errno::ALREADY),
            State::Listening(_) => return Err(Errno::INVAL),
            State::Open | State::Closed => return Err(Errno::ISCONN),
        }
        if self.has_place(listener) {
            self.join(listener, id);
            return Ok(());
        }
        if self.socket(id).nonblocking {
            return Err(Errno::AGAIN);
        }
        self.socket_mut(id).state = State::Connecting;
        self.unix_mut(id).calling = Some(listener);
        self.unix_mut(listener).callers.push_back(id);
        Ok(())
    }

    /// Makes a connection of a caller and a listener.
    fn join(&mut self, listener: SocketId, client: SocketId) {
        let parent = self.socket(listener);
        let mut child = Socket::new(parent.domain, parent.options);
        let (name, peer_name) = (self.unix(listener).name, self.unix(client).name);
        child.unix = Some(Box::new(UnixPart { name, peer_name, ..UnixPart::default() }));
        (child.state, child.peer) = (State::Open, Some(client));
        let child = self.sockets.insert(child);
        let caller = self.socket_mut(client);
        (caller.state, caller.peer) = (State::Open, Some(child));
        self.unix_mut(client).peer_name = name;
        if let State::Listening(listening) = &mut self.socket_mut(listener).state {
            listening.queue.push_back(child);
        }
        self.wake(listener, Side::Read);
        self.wake(client, Side::Write);
    }

    /// A place has become free at a listener.
    pub(super) fn admit_caller(&mut self, listener: SocketId) {
        let Some(part) = &mut self.socket_mut(listener).unix else { return };
        if let Some(caller) = part.callers.pop_front() {
            self.unix_mut(caller).calling = None;
            self.join(listener, caller);
        }
    }

    /// A connect that waited does so no more.
    pub(crate) fn give_up_connect(&mut self, id: SocketId) {
        let Some(part) = &mut self.socket_mut(id).unix else { return };
        if let Some(listener) = part.calling.take() {
            self.unix_mut(listener).callers.retain(|caller| *caller != id);
            self.socket_mut(id).state = State::Fresh;
        }
    }

    /// Whoever waits for a place at a listener that is gone is refused.
    pub(super) fn refuse_callers(&mut self, listener: SocketId) {
        let Some(part) = &mut self.socket_mut(listener).unix else { return };
        for caller in std::mem::take(&mut part.callers) {
            self.unix_mut(caller).calling = None;
            self.on_refused(caller, Errno::CONNREFUSED);
        }
    }

    /// Sends descriptors along with the next `len` bytes that `id` writes.
    pub(crate) fn enclose(&mut self, id: SocketId, len: usize, rights: Vec<FileId>) {
        let Some(peer) = self.socket(id).peer else { return };
        let waiting = self.socket(peer).inbound.bytes.len() as u64;
        let part = self.unix_mut(peer);
        let start = part.read + waiting;
        part.parcels.push_back(Parcel { start, end: start + len as u64, rights });
    }

    /// The name and the descriptors of a socket that is gone are free.
    pub(super) fn release_unix(&mut self, id: SocketId) {
        let Some(part) = &mut self.sockets.at_mut(id).unix else { return };
        self.orphans.extend(part.clear());
        if let Some(name) = part.name {
            self.names.release(&name, id);
        }
    }
}
