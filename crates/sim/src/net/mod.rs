//! The network and its sockets. It knows nothing about rings. It does not run operations, which it
//! knows by their ids, but records which sockets have changed and which timers have expired.

mod connect;
mod datagram_queue;
mod datagrams;
mod flow;
mod hosts;
mod link;
mod links;
mod names;
mod options;
mod partition;
mod ports;
mod readiness;
mod socket;
mod stream;
mod udp;
mod unix;
mod unix_datagram;
mod unreachable;

pub(crate) use datagram_queue::Datagram;
pub(crate) use datagrams::{OutgoingDatagram, SendOptions};
pub use link::Link;
pub(crate) use socket::{Side, Socket, SocketId, SocketState};
pub(crate) use unix::credentials;

use crate::descriptors::FileId;
use crate::op_id::OpId;
use crate::random::Random;
use crate::slab::Slab;
use crate::timeline::{Nanos, Timeline};
use annulus_kernel::{Address, Credentials, Domain, SocketOption, SocketType};
use datagram_queue::DatagramQueue;
use links::Links;
use names::UnixNames;
use options::Options;
use partition::Partitions;
use ports::{Binding, Ports};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use socket::AcceptQueue;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum backlog of a listener (`somaxconn`).
const MAX_BACKLOG: u32 = 4096;
const IPPROTO_UDP: u32 = 17;

#[derive(Clone, Copy, Debug)]
pub(crate) enum NetEvent {
    Socket {
        id: SocketId,
        given_up: u16,
        change: SocketChange,
    },
    /// The timer of an operation expires.
    Timer(OpId),
    /// A timer descriptor expires: its number, and the number of its setting.
    Clock(u32, u64),
    /// The datagram with this number arrives.
    Arrival(u32),
    /// The sender learns that the datagram with this number found no receiver.
    Unreachable(u32),
    /// A connection fails if its peer has not been reachable since this was scheduled, for the time
    /// that is given.
    GiveUp(SocketId, Nanos),
}

/// A change of a socket that arrives over the network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SocketChange {
    /// A connection attempt arrives. Attempts are numbered from 0.
    Attempt(u8),
    Established,
    Refused,
    Segment(u32),
    EndOfStream,
    Reset,
}

pub(crate) struct Net {
    pub(crate) time: Timeline<NetEvent>,
    sockets: Slab<Socket>,
    ports: Ports,
    udp_ports: Ports,
    unix_names: UnixNames,
    in_flight: Slab<Datagram>,
    links: Links,
    /// The calling host; `None` has every address.
    host: Option<IpAddr>,
    partitions: Partitions,
    random: Random,
    /// Sockets whose waiting operations must be tried again.
    woken: VecDeque<(SocketId, Side)>,
    /// Watched sockets whose readiness has changed.
    edges: VecDeque<(SocketId, Side)>,
    /// Operations whose timer has expired.
    fired: VecDeque<OpId>,
    /// Timer descriptors that have expired, with the numbers of their settings.
    expired: VecDeque<(u32, u64)>,
    /// Files passed in messages that no socket will receive.
    orphans: VecDeque<FileId>,
}

impl Net {
    pub(crate) fn new(link: Link, random: Random) -> Self {
        Self {
            time: Timeline::new(),
            sockets: Slab::new(),
            ports: Ports::new(),
            udp_ports: Ports::new(),
            unix_names: UnixNames::default(),
            in_flight: Slab::new(),
            links: Links::new(link),
            host: None,
            partitions: Partitions::default(),
            random,
            woken: VecDeque::new(),
            edges: VecDeque::new(),
            fired: VecDeque::new(),
            expired: VecDeque::new(),
            orphans: VecDeque::new(),
        }
    }

    pub(crate) fn create(
        &mut self,
        domain: Domain,
        kind: SocketType,
        nonblocking: bool,
    ) -> SocketId {
        let mut socket = Socket::new(domain, Options::new(&self.links.usual));
        socket.nonblocking = nonblocking;
        socket.datagrams = (kind == SocketType::Datagram).then(Box::<DatagramQueue>::default);
        self.sockets.insert(socket)
    }

    #[inline]
    pub(crate) fn socket(&self, id: SocketId) -> &Socket {
        self.sockets.at(id)
    }

    #[inline]
    pub(crate) fn socket_mut(&mut self, id: SocketId) -> &mut Socket {
        self.sockets.at_mut(id)
    }

    /// Returns the number of sockets, including those without a descriptor.
    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    #[inline]
    pub(crate) fn next_woken(&mut self) -> Option<(SocketId, Side)> {
        self.woken.pop_front()
    }

    #[inline]
    pub(crate) fn next_fired(&mut self) -> Option<OpId> {
        self.fired.pop_front()
    }

    #[inline]
    pub(crate) fn next_expired(&mut self) -> Option<(u32, u64)> {
        self.expired.pop_front()
    }

    #[inline]
    pub(crate) fn next_orphan(&mut self) -> Option<FileId> {
        self.orphans.pop_front()
    }

    /// Takes the descriptors passed with the bytes that were read last.
    fn take_rights(&mut self, id: SocketId) -> Vec<FileId> {
        self.socket_mut(id).unix.as_mut().map_or_else(Vec::new, |part| part.take_rights())
    }

    pub(crate) fn start_timer(&mut self, after: Nanos, id: OpId) {
        self.time.schedule(self.time.now().saturating_add(after), NetEvent::Timer(id));
    }

    pub(crate) fn start_clock(&mut self, after: Nanos, timer: u32, setting: u64) {
        self.time.schedule(self.time.now().saturating_add(after), NetEvent::Clock(timer, setting));
    }

    pub(crate) fn set_option(
        &mut self,
        id: SocketId,
        option: SocketOption,
        value: u32,
    ) -> Result<(), Errno> {
        let socket = self.sockets.at_mut(id);
        let late = option == SocketOption::V6Only && socket.local.is_some();
        if late && socket.domain == Domain::Inet6 {
            return Err(Errno::INVAL);
        }
        socket.options.set(socket.domain, option, value)
    }

    pub(crate) fn option(&mut self, id: SocketId, option: SocketOption) -> Result<u32, Errno> {
        let socket = self.sockets.at_mut(id);
        match option {
            SocketOption::Error => {
                Ok(socket.error.take().map_or(0, |error| error.raw_os_error() as u32))
            }
            SocketOption::Protocol => Ok(protocol_of(socket)),
            SocketOption::Domain => Ok(family(socket.domain)),
            SocketOption::Drops => Ok(socket.datagrams.as_ref().map_or(0, |queue| queue.drops)),
            _ => socket.options.query(socket.domain, option),
        }
    }

    pub(crate) fn bind(&mut self, id: SocketId, to: &Address) -> Result<(), Errno> {
        match self.socket(id).domain {
            Domain::Unix => self.bind_unix(id, to),
            Domain::Inet | Domain::Inet6 => self.bind_internet(id, internet(to)?),
        }
    }

    /// Removes the path that a Unix socket was bound to.
    pub(crate) fn unlink(&mut self, name: &Address) {
        self.unix_names.unlink(name);
    }

    fn bind_internet(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        let socket = self.sockets.at_mut(id);
        if to.is_ipv4() != (socket.domain == Domain::Inet) {
            return Err(Errno::AFNOSUPPORT);
        }
        if socket.local.is_some() && !socket.lost_port {
            return Err(Errno::INVAL);
        }
        let to = self.bindable(to)?;
        let socket = self.sockets.at_mut(id);
        let datagram = socket.is_datagram();
        let binding = Binding {
            socket: id,
            ip: if datagram { to.ip().to_canonical() } else { to.ip() },
            v6_only: socket.options.is_on(SocketOption::V6Only),
            reuse_address: socket.options.is_on(SocketOption::ReuseAddress),
            reuse_port: socket.options.is_on(SocketOption::ReusePort),
            listening: false,
        };
        let port = self.ports_of(id).bind(to.port(), binding)?;
        let socket = self.socket_mut(id);
        socket.local = Some((to.ip(), port).into());
        socket.chose_address = !to.ip().is_unspecified();
        socket.chose_port = to.port() != 0;
        socket.lost_port = false;
        Ok(())
    }

    /// Frees the port of a TCP socket whose connection has ended, unless `bind` chose it.
    fn free_port(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        if let Some(local) = socket.local.filter(|_| !socket.chose_port) {
            socket.lost_port = true;
            self.ports_of(id).unbind(local.port(), id);
        }
    }

    /// Returns the ports of the socket's protocol.
    fn ports_of(&mut self, id: SocketId) -> &mut Ports {
        if self.socket(id).is_datagram() { &mut self.udp_ports } else { &mut self.ports }
    }

    pub(crate) fn listen(&mut self, id: SocketId, backlog: u32) -> Result<(), Errno> {
        let socket = self.socket(id);
        if socket.is_datagram() {
            return Err(Errno::OPNOTSUPP);
        }
        let is_connected = matches!(socket.state, SocketState::Connecting | SocketState::Open);
        // Like on Linux, a connection that has failed must first be reported by a connect.
        if is_connected || socket.peer.is_some() || socket.connect_is_unreported {
            return Err(Errno::INVAL);
        }
        match socket.domain {
            Domain::Unix if self.unix(id).name.is_none() => return Err(Errno::INVAL),
            domain if domain != Domain::Unix && (socket.local.is_none() || socket.lost_port) => {
                let mut local = socket.local.unwrap_or_else(|| wildcard(domain));
                local.set_port(0);
                self.bind_internet(id, local)?;
            }
            _ => {}
        }
        let backlog = backlog.min(MAX_BACKLOG) as usize;
        let port = self.socket(id).local.map_or(0, |local| local.port());
        if let SocketState::Listening(listening) = &mut self.socket_mut(id).state {
            listening.backlog = backlog;
            return Ok(());
        }
        if self.socket(id).domain != Domain::Unix {
            self.ports.listen(port, id)?;
        }
        self.socket_mut(id).state =
            SocketState::Listening(AcceptQueue { backlog, queue: VecDeque::new() });
        Ok(())
    }

    pub(crate) fn local_address(&self, id: SocketId) -> Address {
        let socket = self.socket(id);
        match &socket.unix {
            Some(part) => part.name.unwrap_or_else(unnamed),
            None => socket.local.unwrap_or_else(|| wildcard(socket.domain)).into(),
        }
    }

    pub(crate) fn peer_address(&self, id: SocketId) -> Result<Address, Errno> {
        let socket = self.socket(id);
        let connected = socket.is_open() || socket.has_datagram_peer();
        match &socket.unix {
            // Like on Linux, a Unix stream keeps its peer after a reset.
            Some(_) if connected || socket.peer.is_some() => {
                Ok(self.unix_peer_name(id).unwrap_or_else(unnamed))
            }
            None if connected || socket.is_datagram() => {
                let remote = socket.remote.filter(|remote| remote.port() != 0);
                let remote = remote.ok_or(Errno::NOTCONN)?;
                Ok(self.address_seen_by(id, remote).into())
            }
            _ => Err(Errno::NOTCONN),
        }
    }

    /// Describes a socket: its kind, its addresses, and what it has for its user.
    pub(crate) fn describe(&self, id: SocketId) -> String {
        let socket = self.socket(id);
        let kind = match (&socket.unix, &socket.datagrams) {
            (None, None) => "TCP socket",
            (None, Some(_)) => "UDP socket",
            (Some(_), None) => "Unix stream",
            (Some(_), Some(_)) => "Unix datagram socket",
        };
        let state = match (&socket.state, self.peer_address(id)) {
            (SocketState::Listening(_), _) => ", listening".to_owned(),
            (SocketState::Connecting, _) => match socket.remote {
                Some(remote) => format!(", connecting to {remote}"),
                None => ", connecting".to_owned(),
            },
            (SocketState::Closed, _) => ", closed".to_owned(),
            (_, Ok(peer)) => format!(", connected to {peer:?}"),
            (_, Err(_)) => String::new(),
        };
        let (count, what) = match (&socket.state, &socket.datagrams) {
            (SocketState::Listening(queue), _) => (queue.queue.len(), "connections to accept"),
            (_, Some(queue)) => (queue.len(), "unread datagrams"),
            (_, None) => (socket.inbound.arrived, "unread bytes"),
        };
        let rest = if count == 0 { String::new() } else { format!(", {count} {what}") };
        format!("{kind} {:?}{state}{rest}", self.local_address(id))
    }

    /// Returns the credentials of the peer of a Unix socket, which is always this process. Without
    /// a peer, the ids are invalid.
    pub(crate) fn peer_credentials(&self, id: SocketId) -> Result<Credentials, Errno> {
        let socket = self.socket(id);
        match &socket.unix {
            Some(_) if socket.peer.is_some() || socket.has_datagram_peer() => Ok(credentials()),
            Some(_) => Ok(Credentials { pid: 0, uid: u32::MAX, gid: u32::MAX }),
            None => Err(Errno::NOPROTOOPT),
        }
    }

    #[inline]
    pub(crate) fn run(&mut self) {
        while let Some(event) = self.time.pop_due() {
            self.run_event(event);
        }
    }

    fn run_event(&mut self, event: NetEvent) {
        let (id, given_up, change) = match event {
            NetEvent::Timer(id) => return self.fired.push_back(id),
            NetEvent::Clock(timer, setting) => return self.expired.push_back((timer, setting)),
            NetEvent::Arrival(datagram) => return self.on_arrival(datagram),
            NetEvent::Unreachable(datagram) => return self.on_unreachable(datagram),
            NetEvent::GiveUp(id, at) => return self.on_give_up(id, at),
            NetEvent::Socket { id, given_up, change } => (id, given_up, change),
        };
        let is_stale = self.socket(id).given_up != given_up;
        if !is_stale && self.is_cut_off(id) && !matches!(change, SocketChange::Attempt(_)) {
            return self.hold(id, change);
        }
        self.socket_mut(id).events -= 1;
        if !is_stale && !self.drop_if_lost(id, change) {
            self.apply(id, change);
        }
        self.reap(id);
    }

    #[inline]
    fn apply(&mut self, id: SocketId, change: SocketChange) {
        match change {
            SocketChange::Attempt(nth) => self.on_attempt(id, nth),
            SocketChange::Established => self.on_established(id),
            SocketChange::Refused => self.on_refused(id, Errno::CONNREFUSED),
            SocketChange::Segment(len) => self.on_segment(id, len as usize),
            SocketChange::EndOfStream => self.on_end_of_stream(id),
            SocketChange::Reset => self.on_reset(id),
        }
    }

    /// Schedules a change that takes no time on the link.
    fn schedule_change(&mut self, to: SocketId, change: SocketChange) {
        self.send_over_link(to, 0, change);
    }

    /// Schedules a change after everything that is in flight to `to`. A Unix socket changes at
    /// once.
    #[inline]
    fn send_over_link(&mut self, to: SocketId, bytes: u32, change: SocketChange) {
        let Self { sockets, links, random, time, .. } = self;
        let socket = sockets.at_mut(to);
        if socket.unix.is_some() {
            return self.apply(to, change);
        }
        let link = links.of(socket);
        let (now, occupied) = (time.now(), link.time_on_wire(bytes));
        let at = socket.inbound.wire.schedule(now, occupied, link.delay(random));
        socket.events += 1;
        let given_up = socket.given_up;
        time.schedule(at, NetEvent::Socket { id: to, given_up, change });
    }

    #[inline]
    fn schedule(&mut self, at: Nanos, id: SocketId, change: SocketChange) {
        let socket = self.sockets.at_mut(id);
        socket.events += 1;
        let given_up = socket.given_up;
        self.time.schedule(at, NetEvent::Socket { id, given_up, change });
    }

    /// Reports that a socket has changed, to its waiting operations and to epoll.
    #[inline]
    fn wake(&mut self, id: SocketId, side: Side) {
        self.wake_waiters(id, side);
        self.edge(id, side);
    }

    #[inline]
    fn wake_waiters(&mut self, id: SocketId, side: Side) {
        if !self.socket_mut(id).waiters(side).is_empty() {
            self.woken.push_back((id, side));
        }
    }

    /// Frees a socket and its peer once nothing refers to either.
    fn reap(&mut self, id: SocketId) {
        let over = |socket: &Socket| socket.released && socket.events == 0;
        let socket = self.socket(id);
        if !over(socket) {
            return;
        }
        let peer = socket.peer;
        if peer.is_some_and(|peer| !over(self.socket(peer))) {
            return;
        }
        for id in peer.into_iter().chain([id]) {
            self.sockets.remove(id);
        }
    }
}

/// Returns the value of `SO_DOMAIN`.
fn family(domain: Domain) -> u32 {
    let family = match domain {
        Domain::Inet => AddressFamily::INET,
        Domain::Inet6 => AddressFamily::INET6,
        Domain::Unix => AddressFamily::UNIX,
    };
    family.as_raw().into()
}

/// Returns the value of `SO_PROTOCOL`.
fn protocol_of(socket: &Socket) -> u32 {
    match (socket.domain, socket.is_datagram()) {
        (Domain::Unix, _) => 0,
        (_, true) => IPPROTO_UDP,
        (_, false) => SocketOption::TCP,
    }
}

/// Fails with EINVAL if the address is too short, and with EAFNOSUPPORT if it is not an internet
/// address.
fn internet(address: &Address) -> Result<SocketAddr, Errno> {
    let least = if address.family() == 2 { 16 } else { 28 };
    if address.as_bytes().len() < least {
        return Err(Errno::INVAL);
    }
    address.to_inet().map_err(|_| Errno::AFNOSUPPORT)
}

/// Returns the address of an unbound Unix socket, which is only its family.
fn unnamed() -> Address {
    Address::from_bytes(&1u16.to_ne_bytes())
}

fn wildcard(domain: Domain) -> SocketAddr {
    match domain {
        Domain::Inet6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
        Domain::Inet | Domain::Unix => (Ipv4Addr::UNSPECIFIED, 0).into(),
    }
}
