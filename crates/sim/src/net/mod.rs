//! The network and the sockets on it. It knows no rings and no operations: whom an event concerns, it only notes.

mod connect;
mod flow;
mod link;
mod ports;
mod socket;
mod stream;

pub use link::Link;
pub(crate) use socket::{Side, Socket, SocketId, State};

use crate::op::OpId;
use crate::random::Random;
use crate::slab::Slab;
use crate::timeline::{Nanos, Timeline};
use annulus_ring::{Domain, SocketOption};
use ports::{Binding, Ports};
use rustix::io::Errno;
use socket::{Listening, Options};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Most connections a listener keeps for `accept`, whatever it asks for (`somaxconn`).
const MOST_WAITING: u32 = 4096;

/// Something that happens later.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// To a socket.
    Socket(SocketId, Change),
    /// A timer's end.
    Alarm(OpId),
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
    link: Link,
    random: Random,
    /// Whose waiters should look again.
    woken: VecDeque<(SocketId, Side)>,
    /// Timers that have ended.
    fired: VecDeque<OpId>,
}

impl Net {
    pub(crate) fn new(link: Link, random: Random) -> Self {
        Self {
            time: Timeline::new(),
            sockets: Slab::new(),
            ports: Ports::new(),
            link,
            random,
            woken: VecDeque::new(),
            fired: VecDeque::new(),
        }
    }

    pub(crate) fn create(&mut self, domain: Domain) -> SocketId {
        let options = Options {
            reuse_address: false,
            reuse_port: false,
            v6_only: false,
            abortive: false,
            receive_buffer: self.link.receive_buffer as usize,
            send_buffer: self.link.send_buffer as usize,
        };
        self.sockets.insert(Socket::new(domain, options))
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

    /// Notes the end of a timer after so much time.
    pub(crate) fn set_alarm(&mut self, after: Nanos, id: OpId) {
        self.time.schedule(self.time.now().saturating_add(after), Event::Alarm(id));
    }

    pub(crate) fn set_option(&mut self, id: SocketId, option: SocketOption) -> Result<(), Errno> {
        let socket = self.sockets.at_mut(id);
        let options = &mut socket.options;
        match option {
            SocketOption::ReuseAddress(on) => options.reuse_address = on,
            SocketOption::ReusePort(on) => options.reuse_port = on,
            // A bind takes a port that nobody has, which a connect may use as well.
            SocketOption::NoDelay(_) | SocketOption::BindAddressNoPort(_) => {}
            SocketOption::Linger(time) => options.abortive = time == Some(Duration::ZERO),
            SocketOption::V6Only(_) if socket.domain == Domain::Inet => {
                return Err(Errno::NOPROTOOPT);
            }
            SocketOption::V6Only(_) if socket.local.is_some() => return Err(Errno::INVAL),
            SocketOption::V6Only(on) => options.v6_only = on,
            // As Linux: doubled, for its own overhead, and never absurdly small.
            SocketOption::RecvBuffer(bytes) => options.receive_buffer = (2 * bytes).max(2304),
            SocketOption::SendBuffer(bytes) => options.send_buffer = (2 * bytes).max(4608),
            _ => return Err(Errno::NOPROTOOPT),
        }
        Ok(())
    }

    pub(crate) fn bind(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        let Self { sockets, ports, .. } = self;
        let socket = sockets.at_mut(id);
        if to.is_ipv4() != (socket.domain == Domain::Inet) {
            return Err(Errno::AFNOSUPPORT);
        }
        if socket.local.is_some() {
            return Err(Errno::INVAL);
        }
        let binding = Binding {
            socket: id,
            ip: to.ip(),
            v6_only: socket.options.v6_only,
            reuse_address: socket.options.reuse_address,
            reuse_port: socket.options.reuse_port,
            listening: false,
        };
        let port = ports.bind(to.port(), binding)?;
        socket.local = Some((to.ip(), port).into());
        Ok(())
    }

    pub(crate) fn listen(&mut self, id: SocketId, backlog: u32) -> Result<(), Errno> {
        if matches!(self.socket(id).state, State::Connecting | State::Open) {
            return Err(Errno::INVAL);
        }
        if self.socket(id).local.is_none() {
            self.bind(id, wildcard(self.socket(id).domain))?;
        }
        let backlog = backlog.min(MOST_WAITING) as usize;
        let port = self.socket(id).local.map_or(0, |local| local.port());
        if let State::Listening(listening) = &mut self.socket_mut(id).state {
            listening.backlog = backlog;
            return Ok(());
        }
        self.ports.listen(port, id)?;
        self.socket_mut(id).state = State::Listening(Listening { backlog, queue: VecDeque::new() });
        Ok(())
    }

    pub(crate) fn local_address(&self, id: SocketId) -> SocketAddr {
        let socket = self.socket(id);
        socket.local.unwrap_or_else(|| wildcard(socket.domain))
    }

    pub(crate) fn peer_address(&self, id: SocketId) -> Result<SocketAddr, Errno> {
        let socket = self.socket(id);
        socket.remote.filter(|_| socket.is_open()).ok_or(Errno::NOTCONN)
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
            Event::Socket(id, change) => (id, change),
        };
        self.socket_mut(id).events -= 1;
        match change {
            Change::Attempt(nth) => self.on_attempt(id, nth),
            Change::Established => self.on_established(id),
            Change::Refused => self.on_refused(id, Errno::CONNREFUSED),
            Change::Segment(len) => self.on_segment(id, len as usize),
            Change::EndOfStream => self.on_end(id),
            Change::Reset => self.on_reset(id),
        }
        self.reap(id);
    }

    /// Schedules a change that occupies the wire for no time.
    fn tell(&mut self, to: SocketId, change: Change) {
        self.travel(to, 0, change);
    }

    /// Schedules a change behind everything that is on its way to `to`.
    #[inline]
    fn travel(&mut self, to: SocketId, bytes: u32, change: Change) {
        let (now, occupied) = (self.time.now(), self.link.time_on_wire(bytes));
        let delay = self.link.delay(&mut self.random);
        let at = self.socket_mut(to).inbound.schedule(now, occupied, delay);
        self.schedule(at, to, change);
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

fn wildcard(domain: Domain) -> SocketAddr {
    match domain {
        Domain::Inet6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
        Domain::Inet | Domain::Unix => (Ipv4Addr::UNSPECIFIED, 0).into(),
    }
}
