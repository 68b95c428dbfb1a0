//! The network and the sockets on it. It knows no rings and no operations: whom an event concerns, it only notes.

mod connect;
mod flow;
mod link;
mod mailbox;
mod names;
mod options;
mod ports;
mod post;
mod socket;
mod stream;
mod udp;
mod unix;
mod unix_datagram;
mod wire;

pub use link::Link;
pub(crate) use mailbox::Letter;
pub(crate) use post::{Draft, Wishes};
pub(crate) use socket::{Side, Socket, SocketId, State};
pub(crate) use unix::credentials;

use crate::descriptors::FileId;
use crate::op::OpId;
use crate::random::Random;
use crate::slab::Slab;
use crate::timeline::{Nanos, Timeline};
use annulus_kernel::{Address, Credentials, Domain, SocketOption, SocketQuery, SocketType};
use mailbox::Mailbox;
use names::Names;
use options::Options;
use ports::{Binding, Ports};
use rustix::io::Errno;
use socket::Listening;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most connections a listener keeps for `accept`, whatever it asks for (`somaxconn`).
const MOST_WAITING: u32 = 4096;

/// Something that happens later.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// To a socket.
    Socket(SocketId, Change),
    /// A timer's end.
    Alarm(OpId),
    /// A letter's, by its number.
    Arrival(u32),
    /// Of the answer to a letter that nobody heard.
    Bounce(u32),
}

/// What happens to a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// Its connection attempt reaches the other side, for the nth time.
    Attempt(u8),
    Established,
    Refused,
    Segment(u32),
    EndOfStream,
    Reset,
}

/// The network.
pub(crate) struct Net {
    pub(crate) time: Timeline<Event>,
    sockets: Slab<Socket>,
    ports: Ports,
    udp_ports: Ports,
    names: Names,
    /// Letters under way.
    flying: Slab<Letter>,
    link: Link,
    random: Random,
    /// Whose waiters should look again.
    woken: VecDeque<(SocketId, Side)>,
    /// Timers that have ended.
    fired: VecDeque<OpId>,
    /// Files that were passed along, and that nobody will receive.
    orphans: VecDeque<FileId>,
}

impl Net {
    pub(crate) fn new(link: Link, random: Random) -> Self {
        Self {
            time: Timeline::new(),
            sockets: Slab::new(),
            ports: Ports::new(),
            udp_ports: Ports::new(),
            names: Names::default(),
            flying: Slab::new(),
            link,
            random,
            woken: VecDeque::new(),
            fired: VecDeque::new(),
            orphans: VecDeque::new(),
        }
    }

    pub(crate) fn create(
        &mut self,
        domain: Domain,
        kind: SocketType,
        nonblocking: bool,
    ) -> SocketId {
        let mut socket = Socket::new(domain, Options::new(&self.link));
        socket.nonblocking = nonblocking;
        socket.mail = (kind == SocketType::Datagram).then(Box::<Mailbox>::default);
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

    /// Sockets that exist, those without a descriptor included.
    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Takes the next note of somebody to wake.
    #[inline]
    pub(crate) fn next_woken(&mut self) -> Option<(SocketId, Side)> {
        self.woken.pop_front()
    }

    /// Takes the next timer that has ended.
    #[inline]
    pub(crate) fn next_fired(&mut self) -> Option<OpId> {
        self.fired.pop_front()
    }

    /// Takes the next file that nobody will receive.
    #[inline]
    pub(crate) fn next_orphan(&mut self) -> Option<FileId> {
        self.orphans.pop_front()
    }

    /// Descriptors that came with what was read last.
    fn unpack(&mut self, id: SocketId) -> Vec<FileId> {
        self.socket_mut(id).unix.as_mut().map_or_else(Vec::new, |part| part.unpack())
    }

    /// Notes the end of a timer after so much time.
    pub(crate) fn set_alarm(&mut self, after: Nanos, id: OpId) {
        self.time.schedule(self.time.now().saturating_add(after), Event::Alarm(id));
    }

    pub(crate) fn set_option(&mut self, id: SocketId, option: SocketOption) -> Result<(), Errno> {
        if let Some(answer) = self.membership(id, option) {
            return answer;
        }
        let socket = self.sockets.at_mut(id);
        let late = matches!(option, SocketOption::V6Only(_)) && socket.local.is_some();
        if late && socket.domain == Domain::Inet6 {
            return Err(Errno::INVAL);
        }
        socket.options.set(socket.domain, option)
    }

    pub(crate) fn option(&mut self, id: SocketId, query: SocketQuery) -> Result<u32, Errno> {
        let socket = self.sockets.at_mut(id);
        match query {
            SocketQuery::Error => {
                Ok(socket.error.take().map_or(0, |error| error.raw_os_error() as u32))
            }
            SocketQuery::Drops => Ok(socket.mail.as_ref().map_or(0, |mail| mail.drops)),
            _ => socket.options.query(socket.domain, query),
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
        self.names.unlink(name);
    }

    fn bind_internet(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        let socket = self.sockets.at_mut(id);
        if to.is_ipv4() != (socket.domain == Domain::Inet) {
            return Err(Errno::AFNOSUPPORT);
        }
        if socket.local.is_some() {
            return Err(Errno::INVAL);
        }
        let datagram = socket.is_datagram();
        let binding = Binding {
            socket: id,
            ip: if datagram { to.ip().to_canonical() } else { to.ip() },
            v6_only: socket.options.v6_only,
            reuse_address: socket.options.reuse_address,
            reuse_port: socket.options.reuse_port,
            listening: false,
        };
        let port = self.ports_of(id).bind(to.port(), binding)?;
        self.socket_mut(id).local = Some((to.ip(), port).into());
        Ok(())
    }

    /// The ports of a socket's protocol.
    fn ports_of(&mut self, id: SocketId) -> &mut Ports {
        if self.socket(id).is_datagram() { &mut self.udp_ports } else { &mut self.ports }
    }

    pub(crate) fn listen(&mut self, id: SocketId, backlog: u32) -> Result<(), Errno> {
        let socket = self.socket(id);
        if socket.is_datagram() {
            return Err(Errno::OPNOTSUPP);
        }
        if matches!(socket.state, State::Connecting | State::Open) {
            return Err(Errno::INVAL);
        }
        match socket.domain {
            Domain::Unix if self.unix(id).name.is_none() => return Err(Errno::INVAL),
            domain if domain != Domain::Unix && socket.local.is_none() => {
                self.bind_internet(id, wildcard(domain))?;
            }
            _ => {}
        }
        let backlog = backlog.min(MOST_WAITING) as usize;
        let port = self.socket(id).local.map_or(0, |local| local.port());
        if let State::Listening(listening) = &mut self.socket_mut(id).state {
            listening.backlog = backlog;
            return Ok(());
        }
        if self.socket(id).domain != Domain::Unix {
            self.ports.listen(port, id)?;
        }
        self.socket_mut(id).state = State::Listening(Listening { backlog, queue: VecDeque::new() });
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
        let connected = socket.is_open() || socket.has_partner();
        match &socket.unix {
            Some(part) if connected => Ok(part.peer_name.unwrap_or_else(unnamed)),
            None if connected || socket.is_datagram() => {
                let remote = socket.remote.ok_or(Errno::NOTCONN)?;
                Ok(self.seen(id, remote).into())
            }
            _ => Err(Errno::NOTCONN),
        }
    }

    /// Who made the other end of a Unix socket: this process, as there is no other.
    pub(crate) fn peer_credentials(&self, id: SocketId) -> Result<Credentials, Errno> {
        let socket = self.socket(id);
        match &socket.unix {
            Some(_) if socket.is_open() || socket.has_partner() => Ok(credentials()),
            Some(_) => Ok(Credentials { pid: 0, uid: u32::MAX, gid: u32::MAX }),
            None => Err(Errno::NOPROTOOPT),
        }
    }

    /// Lets everything happen that is due by now.
    #[inline]
    pub(crate) fn run(&mut self) {
        while let Some(event) = self.time.pop_due() {
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        let (id, change) = match event {
            Event::Alarm(id) => return self.fired.push_back(id),
            Event::Arrival(letter) => return self.on_arrival(letter),
            Event::Bounce(letter) => return self.on_bounce(letter),
            Event::Socket(id, change) => (id, change),
        };
        self.socket_mut(id).events -= 1;
        self.befall(id, change);
        self.reap(id);
    }

    #[inline]
    fn befall(&mut self, id: SocketId, change: Change) {
        match change {
            Change::Attempt(nth) => self.on_attempt(id, nth),
            Change::Established => self.on_established(id),
            Change::Refused => self.on_refused(id, Errno::CONNREFUSED),
            Change::Segment(len) => self.on_segment(id, len as usize),
            Change::EndOfStream => self.on_end(id),
            Change::Reset => self.on_reset(id),
        }
    }

    /// Schedules a change that occupies the wire for no time.
    fn tell(&mut self, to: SocketId, change: Change) {
        self.travel(to, 0, change);
    }

    /// Schedules a change behind everything that is on its way to `to`.
    /// Within the host it is there at once.
    #[inline]
    fn travel(&mut self, to: SocketId, bytes: u32, change: Change) {
        let Self { sockets, link, random, time, .. } = self;
        let socket = sockets.at_mut(to);
        if socket.unix.is_some() {
            return self.befall(to, change);
        }
        let (now, occupied) = (time.now(), link.time_on_wire(bytes));
        let at = socket.inbound.wire.schedule(now, occupied, link.delay(random));
        socket.events += 1;
        time.schedule(at, Event::Socket(to, change));
    }

    #[inline]
    fn schedule(&mut self, at: Nanos, id: SocketId, change: Change) {
        self.socket_mut(id).events += 1;
        self.time.schedule(at, Event::Socket(id, change));
    }

    #[inline]
    fn wake(&mut self, id: SocketId, side: Side) {
        if !self.socket_mut(id).waiters(side).is_empty() {
            self.woken.push_back((id, side));
        }
    }

    /// Frees a socket, and its peer with it, once nothing names either.
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

/// An address of a socket that talks to other hosts.
fn internet(address: &Address) -> Result<SocketAddr, Errno> {
    let least = if address.family() == 2 { 16 } else { 28 };
    if address.as_bytes().len() < least {
        return Err(Errno::INVAL);
    }
    address.to_inet().map_err(|_| Errno::AFNOSUPPORT)
}

/// What an unbound Unix socket is called: its family, and nothing more.
fn unnamed() -> Address {
    Address::from_bytes(&1u16.to_ne_bytes())
}

fn wildcard(domain: Domain) -> SocketAddr {
    match domain {
        Domain::Inet6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
        Domain::Inet | Domain::Unix => (Ipv4Addr::UNSPECIFIED, 0).into(),
    }
}
