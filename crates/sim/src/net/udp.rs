//! UDP: datagrams between ports, over a network that may lose, double and reorder them.

use super::mailbox::Letter;
use super::ports::{Binding, mapped, reachable};
use super::post::{Draft, Wishes};
use super::socket::{Side, SocketId};
use super::{Event, Net};
use crate::random::mix;
use annulus_kernel::{Domain, Ip, SocketOption};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most bytes of a datagram: what a packet's length field leaves beside the headers.
const MOST_V4: usize = 65_507;
const MOST_V6: usize = 65_527;
/// Most datagrams of one send (`UDP_MAX_SEGMENTS`).
const MOST_SEGMENTS: usize = 128;

impl Net {
    /// Sets whom a socket sends to, and the only one it hears.
    pub(super) fn connect_udp(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        let to = self.destination(id, to)?;
        let from = self.source(id, &Wishes::default(), to)?;
        self.udp_ports.narrow(from.port(), id, from.ip());
        let socket = self.socket_mut(id);
        (socket.local, socket.remote) = (Some(from), Some(to));
        Ok(())
    }

    /// The address that a socket may send to, its family's older form preferred.
    fn destination(&self, id: SocketId, to: SocketAddr) -> Result<SocketAddr, Errno> {
        let socket = self.socket(id);
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        if socket.domain == Domain::Inet && !to.is_ipv4() {
            return Err(Errno::AFNOSUPPORT);
        }
        if socket.options.v6_only && to.is_ipv4() {
            return Err(Errno::NETUNREACH);
        }
        if to.port() == 0 {
            return Err(Errno::INVAL);
        }
        if is_broadcast(to.ip()) && !socket.options.broadcast {
            return Err(Errno::ACCESS);
        }
        Ok(reachable(to))
    }

    /// The address that a letter leaves from; a socket without a port gets one.
    fn source(
        &mut self,
        id: SocketId,
        wishes: &Wishes,
        to: SocketAddr,
    ) -> Result<SocketAddr, Errno> {
        if self.socket(id).local.is_none() {
            let any = super::wildcard(self.socket(id).domain);
            self.bind_internet(id, any).map_err(|_| Errno::AGAIN)?;
        }
        let local = self.socket(id).local.ok_or(Errno::INVAL)?;
        let own = Some(local.ip().to_canonical()).filter(|ip| !ip.is_unspecified());
        let wish = wishes.from.filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_canonical());
        let ip = wish.or(own).unwrap_or_else(|| facing(to.ip()));
        if ip.is_ipv4() != to.is_ipv4() {
            return Err(Errno::NETUNREACH);
        }
        Ok(SocketAddr::new(ip, local.port()))
    }

    pub(super) fn post_udp(
        &mut self,
        id: SocketId,
        draft: &Draft<'_>,
        gather: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), Errno> {
        let to = match draft.to {
            Some(to) => self.destination(id, super::internet(to)?)?,
            None => self.socket(id).remote.ok_or(Errno::DESTADDRREQ)?,
        };
        if draft.len > if to.is_ipv4() { MOST_V4 } else { MOST_V6 } {
            return Err(Errno::MSGSIZE);
        }
        let size = self.segment(id, draft)?;
        self.refusal(id)?;
        if !self.has_charge_left(id) {
            return Err(Errno::AGAIN);
        }
        let route = (self.source(id, &draft.wishes, to)?, to);
        let options = *self.socket(id).options.ip(protocol(to.ip()));
        let tos = draft.wishes.tos.unwrap_or(options.tos);
        let bytes = gather();
        let mut parts = bytes.chunks(size);
        // An empty datagram is one, too.
        let first = parts.next().unwrap_or_default();
        for part in std::iter::once(first).chain(parts) {
            let letter =
                Letter { bytes: part.to_vec(), route: Some(route), tos, ..Letter::default() };
            self.launch(id, letter);
        }
        Ok(())
    }

    /// The size of the datagrams that a send is cut into: at least one.
    fn segment(&self, id: SocketId, draft: &Draft<'_>) -> Result<usize, Errno> {
        let asked = draft.wishes.segment.unwrap_or(self.socket(id).options.segment);
        if asked == 0 {
            return Ok(draft.len.max(1));
        }
        let size = usize::from(asked);
        if draft.len > size * MOST_SEGMENTS { Err(Errno::INVAL) } else { Ok(size) }
    }

    /// Sends a letter on its way, or several, or none.
    fn launch(&mut self, id: SocketId, letter: Letter) {
        let copies = if self.random.chance(self.link.duplication) { 2 } else { 1 };
        let lost = self.random.chance(self.link.loss);
        for _ in 0..copies {
            let occupied = self.link.time_on_wire(letter.bytes.len() as u32);
            let delay = self.link.delay(&mut self.random);
            let detour = self.link.detour(&mut self.random);
            let now = self.time.now();
            let at = self.socket_mut(id).inbound.wire.schedule(now, occupied, delay) + detour;
            if !lost {
                let mut letter = letter.clone();
                self.charge(&mut letter, id);
                let letter = self.flying.insert(letter);
                self.time.schedule(at, Event::Arrival(letter));
            }
        }
    }

    /// A letter arrives at the address that it was sent to.
    pub(super) fn on_arrival(&mut self, letter: u32) {
        let mut letter = self.flying.remove(letter);
        let Some(route) = letter.route else { return };
        let receivers = self.receivers(route);
        if receivers.is_empty() {
            return self.bounce(letter);
        }
        self.settle(&letter);
        (letter.sender, letter.at) = (None, self.time.now());
        for &id in &receivers {
            self.drop_into(id, letter.clone());
        }
    }

    fn drop_into(&mut self, id: SocketId, letter: Letter) {
        let socket = self.socket_mut(id);
        let (room, coalesce) = (socket.options.receive_buffer, socket.options.coalesce);
        if let Some(mail) = &mut socket.mail
            && mail.receive(letter, room, coalesce)
        {
            self.wake(id, Side::Read);
        }
    }

    /// Nobody is there: the sender is told, unless the letter was for many.
    fn bounce(&mut self, letter: Letter) {
        let to = letter.route.map(|(_, to)| to.ip());
        if to.is_none_or(|to| to.is_multicast() || is_broadcast(to)) {
            return self.settle(&letter);
        }
        let delay = self.link.delay(&mut self.random);
        let letter = self.flying.insert(letter);
        self.time.schedule(self.time.now() + delay, Event::Bounce(letter));
    }

    /// A sender learns that nobody is there: where it is connected, or asked for it.
    pub(super) fn on_bounce(&mut self, letter: u32) {
        let letter = self.flying.remove(letter);
        if let (Some(id), Some((_, to))) = (letter.sender, letter.route) {
            let socket = self.socket_mut(id);
            let told =
                socket.remote == Some(to) || socket.options.ip(protocol(to.ip())).tell_errors;
            if told && !socket.released {
                socket.error = Some(Errno::CONNREFUSED);
                self.wake(id, Side::Read);
                self.wake(id, Side::Write);
            }
        }
        self.settle(&letter);
    }

    /// Who hears a letter.
    fn receivers(&self, (from, to): (SocketAddr, SocketAddr)) -> Vec<SocketId> {
        let many = to.ip().is_multicast() || is_broadcast(to.ip());
        if to.ip().is_multicast() && !self.is_joined(to.ip()) {
            return Vec::new();
        }
        let hears = |binding: &&Binding| {
            let socket = self.socket(binding.socket);
            let suits = match many {
                true => binding.hears_group(to.ip()),
                false => binding.suits(to.ip()).is_some(),
            };
            suits && socket.remote.is_none_or(|remote| remote == from)
        };
        let all = self.udp_ports.on(to.port()).filter(hears);
        if many {
            return all.map(|binding| binding.socket).collect();
        }
        let rank = |binding: &Binding| {
            (self.socket(binding.socket).remote.is_some(), binding.suits(to.ip()))
        };
        let Some(best) = all.clone().map(rank).max() else { return Vec::new() };
        let best: Vec<&Binding> = all.filter(|binding| rank(binding) == best).collect();
        vec![choose(&best, from).socket]
    }

    /// Whether any socket is a member of a group: as on Linux, all that are bound to it then hear what is for it.
    fn is_joined(&self, group: IpAddr) -> bool {
        let mut boxes = self.sockets.iter().filter_map(|(_, socket)| socket.mail.as_ref());
        boxes.any(|mail| mail.groups.contains(&group))
    }

    /// Joins or leaves a group, if that is what the option is about.
    pub(super) fn membership(
        &mut self,
        id: SocketId,
        option: SocketOption,
    ) -> Option<Result<(), Errno>> {
        let (group, joins) = match option {
            SocketOption::JoinV4 { group, .. } => (IpAddr::V4(group), true),
            SocketOption::LeaveV4 { group, .. } => (IpAddr::V4(group), false),
            SocketOption::JoinV6 { group, .. } => (IpAddr::V6(group), true),
            SocketOption::LeaveV6 { group, .. } => (IpAddr::V6(group), false),
            _ => return None,
        };
        let socket = self.socket_mut(id);
        let Some(mail) = &mut socket.mail.as_mut().filter(|_| socket.domain != Domain::Unix) else {
            return Some(Err(Errno::NOPROTOOPT));
        };
        if group.is_ipv6() && socket.domain == Domain::Inet {
            return Some(Err(Errno::NOPROTOOPT));
        }
        Some(change(&mut mail.groups, group, joins))
    }

    /// What a receiver sees of where a letter is from and for.
    pub(crate) fn seen(&self, id: SocketId, address: SocketAddr) -> SocketAddr {
        match self.socket(id).domain {
            Domain::Inet6 => mapped(address),
            Domain::Inet | Domain::Unix => address,
        }
    }
}

fn change(groups: &mut Vec<IpAddr>, group: IpAddr, joins: bool) -> Result<(), Errno> {
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

/// Of those that suit equally well: the one that was bound last, or where they share the port, the same for each sender.
fn choose<'a>(best: &[&'a Binding], from: SocketAddr) -> &'a Binding {
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

/// The address of this host that is used towards another one of its own.
fn facing(to: IpAddr) -> IpAddr {
    match to {
        IpAddr::V4(ip) if ip.is_loopback() || ip.is_multicast() || ip.is_broadcast() => {
            Ipv4Addr::LOCALHOST.into()
        }
        IpAddr::V6(ip) if ip.is_multicast() => Ipv6Addr::LOCALHOST.into(),
        own => own,
    }
}
