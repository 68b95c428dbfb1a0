//! How a connection is established.

use super::datagram_queue::DatagramPeer;
use super::ports::{ipv4_mapped, wildcard_to_loopback};
use super::socket::{Side, Socket, SocketId, SocketState};
use super::{Net, SocketChange, internet, wildcard};
use crate::timeline::Nanos;
use annulus_kernel::{Address, Domain};
use rustix::io::Errno;
use std::net::SocketAddr;

/// Maximum number of retries of an unanswered connect (`tcp_syn_retries`). The delay doubles each
/// time.
const MAX_CONNECT_RETRIES: u8 = 6;
const FIRST_RETRY_DELAY: Nanos = 1_000_000_000;
/// The time after which an unanswered connect fails.
pub(super) const CONNECT_TIME: Nanos = FIRST_RETRY_DELAY * ((1 << MAX_CONNECT_RETRIES) - 1);

/// `AF_UNSPEC`: connecting to it disconnects a datagram socket.
const AF_UNSPEC: u16 = 0;

impl Net {
    /// Starts a connect. While the outcome is unknown, the socket is in
    /// [`SocketState::Connecting`].
    pub(crate) fn connect(&mut self, id: SocketId, to: &Address) -> Result<(), Errno> {
        let socket = self.socket(id);
        match (socket.domain, socket.is_datagram()) {
            (_, true) if to.family() == AF_UNSPEC => {
                self.disconnect(id);
                Ok(())
            }
            (Domain::Unix, true) => self.connect_unix_datagram(id, to),
            (Domain::Unix, false) => self.connect_unix(id, to),
            (_, true) => self.connect_udp(id, internet(to)?),
            (_, false) => self.connect_tcp(id, internet(to)?),
        }
    }

    /// Makes a datagram socket receive from all senders again.
    fn disconnect(&mut self, id: SocketId) {
        self.socket_mut(id).remote = None;
        self.change_datagram_peer(id, DatagramPeer::None);
    }

    fn connect_tcp(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        if let Some(Some(error)) = self.take_failed_connect(id) {
            return Err(error);
        }
        let socket = self.socket(id);
        match socket.state {
            SocketState::Connecting => return Err(Errno::ALREADY),
            SocketState::Listening(_) => return Err(Errno::ISCONN),
            SocketState::Open if socket.connect_is_unreported => return Ok(()),
            // A connection that has been reset counts as connected.
            _ if socket.peer.is_some() => return Err(Errno::ISCONN),
            _ => {}
        }
        if to.is_ipv4() != (socket.domain == Domain::Inet) {
            return Err(Errno::AFNOSUPPORT);
        }
        let to = wildcard_to_loopback(self.on_host(to));
        let own = self.host.unwrap_or(to.ip());
        let ip = socket.local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
        let port = match socket.local.filter(|_| !socket.lost_port) {
            Some(local) => local.port(),
            None => self.ports.free_port().map_err(|_| Errno::ADDRNOTAVAIL)?,
        };
        let socket = self.socket_mut(id);
        socket.local = Some((ip.unwrap_or(own), port).into());
        socket.lost_port = false;
        socket.remote = Some(to);
        socket.state = SocketState::Connecting;
        socket.connect_is_unreported = true;
        self.schedule_attempt(id, 0, 0);
        Ok(())
    }

    /// If a TCP connect has failed and no call has reported it, returns its error, unless that has
    /// been read as `SO_ERROR`. The socket can then connect again.
    pub(crate) fn take_failed_connect(&mut self, id: SocketId) -> Option<Option<Errno>> {
        let socket = self.socket_mut(id);
        if !(socket.connect_is_unreported && socket.is_closed()) {
            return None;
        }
        socket.connect_is_unreported = false;
        let error = socket.error.take();
        self.abandon_attempt(id);
        let socket = self.socket_mut(id);
        socket.state = SocketState::Fresh;
        (socket.stopped_sending, socket.stopped_receiving) = (false, false);
        if let Some(local) = socket.local.as_mut().filter(|_| !socket.chose_address) {
            local.set_ip(wildcard(socket.domain).ip());
        }
        Some(error)
    }

    fn schedule_attempt(&mut self, id: SocketId, nth: u8, wait: Nanos) {
        let link = self.links.of(self.sockets.at(id));
        let delay = link.delay(&mut self.random);
        let at = self.time.now().saturating_add(wait).saturating_add(delay);
        self.schedule(at, id, SocketChange::Attempt(nth));
    }

    /// Handles a connection attempt at its destination. It is retried later if a partition or a
    /// full backlog stops it.
    pub(super) fn on_attempt(&mut self, id: SocketId, nth: u8) {
        let client = self.socket(id);
        if client.released || !matches!(client.state, SocketState::Connecting) {
            return;
        }
        let Some(remote) = client.remote else { return };
        if self.is_cut_off(id) {
            return self.retry_connect(id, nth);
        }
        let Some(listener) = self.ports.listener(remote, &mut self.random) else {
            return self.schedule_change(id, SocketChange::Refused);
        };
        if !self.has_backlog_space(listener) {
            return self.retry_connect(id, nth);
        }
        let child = self.create_child(listener, id);
        if let SocketState::Listening(listening) = &mut self.socket_mut(listener).state {
            listening.queue.push_back(child);
        }
        self.wake(listener, Side::Read);
        self.schedule_change(id, SocketChange::Established);
    }

    /// Returns true unless the listener's queue is full. As on Linux, the queue holds one
    /// connection more than the backlog.
    pub(super) fn has_backlog_space(&self, listener: SocketId) -> bool {
        match &self.socket(listener).state {
            SocketState::Listening(listening) => listening.queue.len() <= listening.backlog,
            _ => false,
        }
    }

    pub(super) fn retry_connect(&mut self, id: SocketId, nth: u8) {
        if nth == MAX_CONNECT_RETRIES {
            return self.on_refused(id, Errno::TIMEDOUT);
        }
        self.schedule_attempt(id, nth + 1, FIRST_RETRY_DELAY << nth);
    }

    /// Creates the accepting end of a connection.
    fn create_child(&mut self, listener: SocketId, client: SocketId) -> SocketId {
        let parent = self.socket(listener);
        let mut child = Socket::new(parent.domain, parent.options.clone());
        let (local, remote) = (self.socket(client).remote, self.socket(client).local);
        let seen = |address: SocketAddr| match child.domain {
            Domain::Inet6 => ipv4_mapped(address),
            Domain::Inet | Domain::Unix => address,
        };
        (child.local, child.remote) = (local.map(seen), remote.map(seen));
        child.state = SocketState::Open;
        child.peer = Some(client);
        let child = self.sockets.insert(child);
        self.socket_mut(client).peer = Some(child);
        child
    }

    pub(super) fn on_established(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        // Without a peer, the accepting end was lost in a crash.
        if matches!(socket.state, SocketState::Connecting) && socket.peer.is_some() {
            socket.state = SocketState::Open;
            self.wake(id, Side::Write);
            self.wake(id, Side::Read);
        }
    }

    pub(super) fn on_refused(&mut self, id: SocketId, error: Errno) {
        let socket = self.socket_mut(id);
        if matches!(socket.state, SocketState::Connecting) {
            let is_unix = socket.unix.is_some();
            socket.state = if is_unix { SocketState::Fresh } else { SocketState::Closed };
            socket.remote = None;
            socket.error = Some(error);
            self.free_port(id);
            self.wake(id, Side::Write);
            self.wake(id, Side::Read);
        }
    }

    /// Returns the result of a pending connect; EAGAIN while it is unknown.
    pub(crate) fn connected(&mut self, id: SocketId) -> Result<(), Errno> {
        let socket = self.socket_mut(id);
        if socket.is_datagram() {
            // An earlier error stays pending.
            return Ok(());
        }
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        match socket.state {
            SocketState::Open => {
                socket.connect_is_unreported = false;
                Ok(())
            }
            SocketState::Connecting => Err(Errno::AGAIN),
            _ => Err(Errno::CONNABORTED),
        }
    }

    /// Takes the oldest connection from the queue of a listener.
    pub(crate) fn accept(&mut self, id: SocketId) -> Result<SocketId, Errno> {
        let child = match &mut self.socket_mut(id).state {
            SocketState::Listening(listening) => listening.queue.pop_front().ok_or(Errno::AGAIN)?,
            _ => return Err(Errno::INVAL),
        };
        self.admit_next(id);
        Ok(child)
    }
}
