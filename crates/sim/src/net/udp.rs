//! UDP: datagrams between ports, over a network that may lose, duplicate and reorder them.

use super::datagram_queue::Datagram;
use super::datagrams::{OutgoingDatagram, SendOptions};
use super::options::check_protocol;
use super::ports::{Binding, ipv4_mapped, wildcard_to_loopback};
use super::socket::{Side, SocketId};
use super::{Net, NetEvent};
use crate::random::mix;
use annulus_kernel::{Domain, Ip, Multicast, SocketOption};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum payload of a datagram: a packet without its headers.
const MAX_IPV4_DATAGRAM_BYTES: usize = 65_507;
const MAX_IPV6_DATAGRAM_BYTES: usize = 65_527;
/// Maximum number of datagrams per send (`UDP_MAX_SEGMENTS`).
const MAX_SEGMENTS_PER_SEND: usize = 128;

impl Net {
    /// Sets the peer of a socket: where it sends to, and the only address it receives from.
    pub(super) fn connect_udp(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        self.bind_to_free_port(id)?;
        let to = self.destination(id, to)?;
        let from = self.source(id, &SendOptions::default(), to)?;
        self.udp_ports.restrict_to(from.port(), id, from.ip());
        let socket = self.socket_mut(id);
        (socket.local, socket.remote) = (Some(from), Some(to));
        Ok(())
    }

    /// Checks the destination of a socket, and converts an IPv4-mapped address to IPv4.
    fn destination(&self, id: SocketId, to: SocketAddr) -> Result<SocketAddr, Errno> {
        let socket = self.socket(id);
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        if socket.domain == Domain::Inet && !to.is_ipv4() {
            return Err(Errno::AFNOSUPPORT);
        }
        if socket.options.is_on(SocketOption::V6Only) && to.is_ipv4() {
            return Err(Errno::NETUNREACH);
        }
        if is_broadcast(to.ip()) && !socket.options.is_on(SocketOption::Broadcast) {
            return Err(Errno::ACCESS);
        }
        Ok(wildcard_to_loopback(self.on_host(to)))
    }

    /// Binds a socket that has no port. Like on Linux, it keeps the port even if the call then fails.
    fn bind_to_free_port(&mut self, id: SocketId) -> Result<(), Errno> {
        if self.socket(id).local.is_some() {
            return Ok(());
        }
        let any = super::wildcard(self.socket(id).domain);
        self.bind_internet(id, any).map_err(|_| Errno::AGAIN)
    }

    /// Returns the address that a datagram is sent from.
    fn source(
        &self,
        id: SocketId,
        options: &SendOptions,
        to: SocketAddr,
    ) -> Result<SocketAddr, Errno> {
        let local = self.socket(id).local.ok_or(Errno::INVAL)?;
        let own = Some(local.ip().to_canonical()).filter(|ip| !ip.is_unspecified());
        let asked = options.from.filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_canonical());
        let ip = asked.or(own).or(self.host).unwrap_or_else(|| source_address_for(to.ip()));
        if ip.is_ipv4() != to.is_ipv4() {
            return Err(Errno::NETUNREACH);
        }
        Ok(SocketAddr::new(ip, local.port()))
    }

    pub(super) fn send_udp(
        &mut self,
        id: SocketId,
        outgoing: &OutgoingDatagram<'_>,
        gather: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), Errno> {
        self.bind_to_free_port(id)?;
        let to = match outgoing.to {
            Some(to) => {
                let to = self.destination(id, super::internet(to)?)?;
                if to.port() == 0 {
                    return Err(Errno::INVAL);
                }
                to
            }
            None => self.socket(id).remote.ok_or(Errno::DESTADDRREQ)?,
        };
        if outgoing.len
            > if to.is_ipv4() { MAX_IPV4_DATAGRAM_BYTES } else { MAX_IPV6_DATAGRAM_BYTES }
        {
            return Err(Errno::MSGSIZE);
        }
        let size = self.segment_size(id, outgoing)?;
        self.take_datagram_error(id)?;
        if !self.has_send_buffer(id) {
            return Err(Errno::AGAIN);
        }
        let route = (self.source(id, &outgoing.options, to)?, to);
        let usual = SocketOption::Tos(protocol(to.ip()));
        let usual = self.socket(id).options.value(usual) as u8;
        let tos = outgoing.options.tos.unwrap_or(usual);
        let bytes = gather();
        let mut parts = bytes.chunks(size);
        // An empty datagram is sent too.
        let first = parts.next().unwrap_or_default();
        for part in std::iter::once(first).chain(parts) {
            let datagram =
                Datagram { bytes: part.to_vec(), route: Some(route), tos, ..Datagram::default() };
            self.transmit_datagram(id, route, datagram);
        }
        Ok(())
    }

    /// Returns the size of the datagrams that a send is split into, at least one byte.
    fn segment_size(&self, id: SocketId, outgoing: &OutgoingDatagram<'_>) -> Result<usize, Errno> {
        let usual = self.socket(id).options.value(SocketOption::SegmentSize) as u16;
        let asked = outgoing.options.segment.unwrap_or(usual);
        if asked == 0 {
            return Ok(outgoing.len.max(1));
        }
        let size = usize::from(asked);
        if outgoing.len > size * MAX_SEGMENTS_PER_SEND { Err(Errno::INVAL) } else { Ok(size) }
    }

    /// Sends a datagram, which arrives once, twice or not at all.
    fn transmit_datagram(
        &mut self,
        id: SocketId,
        (from, to): (SocketAddr, SocketAddr),
        datagram: Datagram,
    ) {
        let link = *self.links.between(from.ip(), to.ip());
        let copies = if self.random.chance(link.duplication) { 2 } else { 1 };
        let lost = self.random.chance(link.loss) || self.is_down(from.ip());
        for _ in 0..copies {
            let occupied = link.time_on_wire(datagram.bytes.len() as u32);
            let delay = link.delay(&mut self.random);
            let extra_delay = link.extra_delay(&mut self.random);
            let now = self.time.now();
            let queue = &mut self.socket_mut(id).datagrams;
            let at = queue.as_mut().and_then(|it| it.schedule(to.ip(), now, occupied, delay));
            if let Some(at) = at.filter(|_| !lost) {
                let mut datagram = datagram.clone();
                self.charge(&mut datagram, id);
                let datagram = self.in_flight.insert(datagram);
                self.time.schedule(at.saturating_add(extra_delay), NetEvent::Arrival(datagram));
            }
        }
    }

    /// Delivers a datagram that has arrived, unless a partition separates the addresses. If there
    /// is no receiver, the sender may get a report.
    pub(super) fn on_arrival(&mut self, datagram: u32) {
        let mut datagram = self.in_flight.remove(datagram);
        let Some(route) = datagram.route else { return };
        if self.is_partitioned(route.0.ip(), route.1.ip()) {
            return self.uncharge(&datagram);
        }
        let receivers = self.receivers(route);
        if receivers.is_empty() {
            return self.report_unreachable(datagram);
        }
        self.uncharge(&datagram);
        (datagram.sender, datagram.at) = (None, self.time.now());
        for &id in &receivers {
            self.deliver_to(id, datagram.clone());
        }
    }

    fn deliver_to(&mut self, id: SocketId, datagram: Datagram) {
        let socket = self.socket_mut(id);
        let options = &socket.options;
        let (capacity, coalesce) = (options.receive_buffer, options.is_on(SocketOption::Coalesce));
        if let Some(queue) = &mut socket.datagrams
            && queue.receive(datagram, capacity, coalesce)
        {
            self.wake(id, Side::Read);
        }
    }

    /// Reports to the sender that there is no receiver, unless it was a multicast or broadcast.
    fn report_unreachable(&mut self, datagram: Datagram) {
        let route = datagram.route.map(|(from, to)| (from.ip(), to.ip()));
        let Some((from, to)) = route.filter(|(_, to)| !to.is_multicast() && !is_broadcast(*to))
        else {
            return self.uncharge(&datagram);
        };
        let delay = self.links.between(from, to).delay(&mut self.random);
        let datagram = self.in_flight.insert(datagram);
        self.time.schedule(self.time.now().saturating_add(delay), NetEvent::Unreachable(datagram));
    }

    /// Delivers the report that a datagram found no receiver. A connected socket gets an error, and
    /// so does one with `IP_RECVERR`.
    pub(super) fn on_unreachable(&mut self, datagram: u32) {
        let datagram = self.in_flight.remove(datagram);
        if let (Some(id), Some((from, to))) = (datagram.sender, datagram.route)
            && !self.is_partitioned(from.ip(), to.ip())
        {
            let socket = self.socket_mut(id);
            let errors = SocketOption::RecvErrors(protocol(to.ip()));
            let is_connected = socket.remote.is_some_and(|remote| is_peer(remote, to));
            let reported = is_connected || socket.options.is_on(errors);
            if reported && !socket.released {
                socket.error = Some(Errno::CONNREFUSED);
                self.wake(id, Side::Read);
                self.wake(id, Side::Write);
            }
        }
        self.uncharge(&datagram);
    }

    fn receivers(&self, (from, to): (SocketAddr, SocketAddr)) -> Vec<SocketId> {
        let many = to.ip().is_multicast() || is_broadcast(to.ip());
        if to.ip().is_multicast() && !self.is_joined(to.ip()) {
            return Vec::new();
        }
        let hears = |binding: &&Binding| {
            let socket = self.socket(binding.socket);
            let suits = match many {
                true => binding.matches_group(to.ip()),
                false => binding.match_quality(to.ip()).is_some(),
            };
            suits && socket.remote.is_none_or(|remote| is_peer(remote, from))
        };
        let all = self.udp_ports.bindings(to.port()).filter(hears);
        if many {
            return all.map(|binding| binding.socket).collect();
        }
        let rank = |binding: &Binding| {
            (self.socket(binding.socket).remote.is_some(), binding.match_quality(to.ip()))
        };
        let Some(best) = all.clone().map(rank).max() else { return Vec::new() };
        let best: Vec<&Binding> = all.filter(|binding| rank(binding) == best).collect();
        vec![choose_receiver(&best, from).socket]
    }

    /// Returns true if any socket is a member of a group. Like on Linux, all sockets bound to the
    /// group's port then receive its datagrams.
    fn is_joined(&self, group: IpAddr) -> bool {
        let mut queues = self.sockets.iter().filter_map(|(_, socket)| socket.datagrams.as_ref());
        queues.any(|queue| queue.groups.contains(&group))
    }

    /// Joins or leaves a group. There is only one interface.
    pub(crate) fn set_multicast(
        &mut self,
        id: SocketId,
        multicast: Multicast,
    ) -> Result<(), Errno> {
        let socket = self.socket_mut(id);
        let (group, joins) = match multicast {
            Multicast::V4 { group, joins, .. } => (IpAddr::V4(group), joins),
            Multicast::V6 { group, joins, .. } => (IpAddr::V6(group), joins),
            Multicast::InterfaceV4(_) => return check_protocol(socket.domain, Ip::V4),
        };
        let Some(queue) = &mut socket.datagrams.as_mut().filter(|_| socket.domain != Domain::Unix)
        else {
            return Err(Errno::NOPROTOOPT);
        };
        if group.is_ipv6() && socket.domain == Domain::Inet {
            return Err(Errno::NOPROTOOPT);
        }
        change_membership(&mut queue.groups, group, joins)
    }

    /// Returns an address in the form that the socket sees.
    pub(crate) fn address_seen_by(&self, id: SocketId, address: SocketAddr) -> SocketAddr {
        match self.socket(id).domain {
            Domain::Inet6 => ipv4_mapped(address),
            Domain::Inet | Domain::Unix => address,
        }
    }
}

/// Returns true if a socket connected to `remote` has this peer. Like on Linux, port zero means all
/// ports of the address.
fn is_peer(remote: SocketAddr, peer: SocketAddr) -> bool {
    remote.ip() == peer.ip() && [0, peer.port()].contains(&remote.port())
}

fn change_membership(groups: &mut Vec<IpAddr>, group: IpAddr, joins: bool) -> Result<(), Errno> {
    if !group.is_multicast() {
        return Err(Errno::INVAL);
    }
    match (groups.iter().position(|known| *known == group), joins) {
        (Some(_), true) => return Err(Errno::ADDRINUSE),
        (None, false) => return Err(Errno::ADDRNOTAVAIL),
        (None, true) => groups.push(group),
        (Some(at), false) => drop(groups.remove(at)),
    }
    Ok(())
}

/// Chooses among equal matches: the socket bound last. If they share the port with `SO_REUSEPORT`,
/// the sender's port decides.
fn choose_receiver<'a>(best: &[&'a Binding], from: SocketAddr) -> &'a Binding {
    let last = best.len() - 1;
    if best.iter().all(|binding| binding.reuse_port) {
        return best[(mix(from.port().into()) % best.len() as u64) as usize];
    }
    best[last]
}

pub(super) fn is_broadcast(ip: IpAddr) -> bool {
    ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

pub(super) fn protocol(ip: IpAddr) -> Ip {
    if ip.is_ipv4() { Ip::V4 } else { Ip::V6 }
}

/// Returns the address of this host from which datagrams to `to` are sent.
fn source_address_for(to: IpAddr) -> IpAddr {
    match to {
        IpAddr::V4(ip) if ip.is_loopback() || ip.is_multicast() || ip.is_broadcast() => {
            Ipv4Addr::LOCALHOST.into()
        }
        IpAddr::V6(ip) if ip.is_multicast() => Ipv6Addr::LOCALHOST.into(),
        own => own,
    }
}
