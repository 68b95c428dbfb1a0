//! How a connection is made.

use super::datagram_queue::DatagramPeer;
use super::internet;
use super::ports::{mapped, reachable};
use super::socket::{Side, Socket, SocketId, State};
use super::{Change, Net};
use crate::timeline::Nanos;
use annulus_kernel::{Address, Domain};
use rustix::io::Errno;
use std::net::SocketAddr;

/// Attempts at a listener whose queue is full. The waits between them double from one second: `tcp_syn_retries`.
const RETRIES: u8 = 6;
const FIRST_WAIT: Nanos = 1_000_000_000;

/// `AF_UNSPEC`: a connect to it disconnects a datagram socket.
const UNSPECIFIED: u16 = 0;

impl Net {
    /// Starts a connect. Its outcome ends [`State::Connecting`].
    pub(crate) fn connect(&mut self, id: SocketId, to: &Address) -> Result<(), Errno> {
        let socket = self.socket(id);
        match (socket.domain, socket.is_datagram()) {
            (_, true) if to.family() == UNSPECIFIED => {
                self.disconnect(id);
                Ok(())
            }
            (Domain::Unix, true) => self.connect_unix_datagram(id, to),
            (Domain::Unix, false) => self.connect_unix(id, to),
            (_, true) => self.connect_udp(id, internet(to)?),
            (_, false) => self.connect_tcp(id, internet(to)?),
        }
    }

    /// A datagram socket receives from all senders again.
    fn disconnect(&mut self, id: SocketId) {
        self.socket_mut(id).remote = None;
        self.set_datagram_peer(id, DatagramPeer::None);
    }

    fn connect_tcp(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        let socket = self.socket(id);
        match socket.state {
            State::Connecting => return Err(Errno::ALREADY),
            State::Listening(_) => return Err(Errno::ISCONN),
            // A connection that was reset counts.
            _ if socket.peer.is_some() => return Err(Errno::ISCONN),
            _ => {}
        }
        if to.is_ipv4() != (socket.domain == Domain::Inet) {
            return Err(Errno::AFNOSUPPORT);
        }
        let to = reachable(self.on_host(to));
        let own = self.host.unwrap_or(to.ip());
        let local = match socket.local {
            Some(local) if local.ip().is_unspecified() => (own, local.port()).into(),
            Some(local) => local,
            None => (own, self.ports.free_port().map_err(|_| Errno::ADDRNOTAVAIL)?).into(),
        };
        let socket = self.socket_mut(id);
        socket.local = Some(local);
        socket.remote = Some(to);
        socket.state = State::Connecting;
        self.attempt(id, 0, 0);
        Ok(())
    }

    fn attempt(&mut self, id: SocketId, nth: u8, wait: Nanos) {
        let link = self.links.of(self.sockets.at(id));
        let delay = link.delay(&mut self.random);
        self.schedule(self.time.now() + wait + delay, id, Change::Attempt(nth));
    }

    /// An attempt arrives at the address, unless that is behind a partition.
    pub(super) fn on_attempt(&mut self, id: SocketId, nth: u8) {
        let client = self.socket(id);
        if client.released || !matches!(client.state, State::Connecting) {
            return;
        }
        let Some(remote) = client.remote else { return };
        if self.is_cut_off(id) {
            return self.try_later(id, nth);
        }
        let Some(listener) = self.ports.listener(remote, &mut self.random) else {
            return self.schedule_change(id, Change::Refused);
        };
        if !self.has_backlog_space(listener) {
            return self.try_later(id, nth);
        }
        let child = self.child(listener, id);
        if let State::Listening(listening) = &mut self.socket_mut(listener).state {
            listening.queue.push_back(child);
        }
        self.wake(listener, Side::Read);
        self.schedule_change(id, Change::Established);
    }

    /// A full queue takes one more than the backlog, then attempts get no answer.
    pub(super) fn has_backlog_space(&self, listener: SocketId) -> bool {
        match &self.socket(listener).state {
            State::Listening(listening) => listening.queue.len() <= listening.backlog,
            _ => false,
        }
    }

    fn try_later(&mut self, id: SocketId, nth: u8) {
        if nth == RETRIES {
            return self.on_refused(id, Errno::TIMEDOUT);
        }
        self.attempt(id, nth + 1, FIRST_WAIT << nth);
    }

    /// The accepting end of a connection.
    fn child(&mut self, listener: SocketId, client: SocketId) -> SocketId {
        let parent = self.socket(listener);
        let mut child = Socket::new(parent.domain, parent.options.clone());
        let (local, remote) = (self.socket(client).remote, self.socket(client).local);
        let seen = |address: SocketAddr| match child.domain {
            Domain::Inet6 => mapped(address),
            Domain::Inet | Domain::Unix => address,
        };
        (child.local, child.remote) = (local.map(seen), remote.map(seen));
        child.state = State::Open;
        child.peer = Some(client);
        let child = self.sockets.insert(child);
        self.socket_mut(client).peer = Some(child);
        child
    }

    pub(super) fn on_established(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        if matches!(socket.state, State::Connecting) {
            socket.state = State::Open;
            self.wake(id, Side::Write);
            self.wake(id, Side::Read);
        }
    }

    /// An attempt failed.
    pub(super) fn on_refused(&mut self, id: SocketId, error: Errno) {
        let socket = self.socket_mut(id);
        if matches!(socket.state, State::Connecting) {
            socket.state = State::Fresh;
            socket.remote = None;
            socket.error = Some(error);
            self.wake(id, Side::Write);
            self.wake(id, Side::Read);
        }
    }

    /// The result of a connect that waits.
    pub(crate) fn connected(&mut self, id: SocketId) -> Result<(), Errno> {
        let socket = self.socket_mut(id);
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        match socket.state {
            State::Open => Ok(()),
            State::Connecting => Err(Errno::AGAIN),
            _ if socket.is_datagram() => Ok(()),
            _ => Err(Errno::CONNABORTED),
        }
    }

    /// Takes the connection that has waited longest.
    pub(crate) fn accept(&mut self, id: SocketId) -> Result<SocketId, Errno> {
        let child = match &mut self.socket_mut(id).state {
            State::Listening(listening) => listening.queue.pop_front().ok_or(Errno::AGAIN)?,
            _ => return Err(Errno::INVAL),
        };
        self.admit_next(id);
        Ok(child)
    }
}
