//! The sockets bound to each port.

use super::socket::SocketId;
use crate::random::Random;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first port of `ip_local_port_range`.
const FIRST_EPHEMERAL_PORT: u16 = 32_768;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    pub(crate) socket: SocketId,
    pub(crate) ip: IpAddr,
    pub(crate) v6_only: bool,
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    pub(crate) listening: bool,
}

impl Binding {
    fn overlaps(&self, other: &Self) -> bool {
        let wild = |binding: &Self| binding.ip.is_unspecified();
        match (self.ip, other.ip) {
            (IpAddr::V6(_), IpAddr::V4(_)) => wild(self) && !self.v6_only,
            (IpAddr::V4(_), IpAddr::V6(_)) => wild(other) && !other.v6_only,
            (a, b) => a == b || wild(self) || wild(other),
        }
    }

    fn conflicts(&self, other: &Self) -> bool {
        let quiet =
            self.reuse_address && other.reuse_address && !self.listening && !other.listening;
        self.overlaps(other) && !quiet && !(self.reuse_port && other.reuse_port)
    }

    /// Returns true if the binding accepts datagrams to this multicast group.
    pub(crate) fn matches_group(&self, group: IpAddr) -> bool {
        self.ip == group || self.ip.is_unspecified() && self.match_quality(group).is_some()
    }

    /// Returns how well the binding matches the destination `ip`. An exact address is best, then
    /// the wildcard of the same family, then the IPv6 wildcard for an IPv4 address.
    pub(crate) fn match_quality(&self, ip: IpAddr) -> Option<u8> {
        match self.ip {
            own if own == ip => Some(2),
            own if !own.is_unspecified() => None,
            own if own.is_ipv4() == ip.is_ipv4() => Some(1),
            IpAddr::V6(_) if !self.v6_only => Some(0),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ports {
    bound: BTreeMap<u16, Vec<Binding>>,
    next: u16,
}

impl Ports {
    pub(crate) fn new() -> Self {
        Self { bound: BTreeMap::new(), next: FIRST_EPHEMERAL_PORT }
    }

    /// Binds a port; zero chooses a free one.
    pub(crate) fn bind(&mut self, port: u16, binding: Binding) -> Result<u16, Errno> {
        let port = if port == 0 { self.free_port()? } else { port };
        if self.bindings(port).any(|other| binding.conflicts(other)) {
            return Err(Errno::ADDRINUSE);
        }
        self.bound.entry(port).or_default().push(binding);
        Ok(port)
    }

    /// Returns a free port. Consecutive calls return different ports.
    pub(crate) fn free_port(&mut self) -> Result<u16, Errno> {
        for _ in FIRST_EPHEMERAL_PORT..=u16::MAX {
            let port = self.next;
            self.next = port.checked_add(1).unwrap_or(FIRST_EPHEMERAL_PORT);
            if !self.bound.contains_key(&port) {
                return Ok(port);
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// Fails with EADDRINUSE if another listening socket of this port conflicts with the binding.
    pub(crate) fn listen(&mut self, port: u16, socket: SocketId) -> Result<(), Errno> {
        let mut own =
            *self.bindings(port).find(|binding| binding.socket == socket).ok_or(Errno::INVAL)?;
        own.listening = true;
        let rivals = self.bindings(port).filter(|other| other.socket != socket && other.listening);
        if rivals.into_iter().any(|other| own.conflicts(other)) {
            return Err(Errno::ADDRINUSE);
        }
        self.unbind(port, socket);
        self.bound.entry(port).or_default().push(own);
        Ok(())
    }

    pub(crate) fn unbind(&mut self, port: u16, socket: SocketId) {
        if let Some(bindings) = self.bound.get_mut(&port) {
            bindings.retain(|binding| binding.socket != socket);
            if bindings.is_empty() {
                self.bound.remove(&port);
            }
        }
    }

    /// Returns the listener for a connection, chosen at random if several match equally.
    pub(crate) fn listener(&self, to: SocketAddr, random: &mut Random) -> Option<SocketId> {
        let suits =
            |binding: &Binding| binding.match_quality(to.ip()).filter(|_| binding.listening);
        let best = self.bindings(to.port()).filter_map(suits).max()?;
        let fit: Vec<SocketId> =
            self.bindings(to.port()).filter(|b| suits(b) == Some(best)).map(|b| b.socket).collect();
        Some(if fit.len() == 1 { fit[0] } else { random.pick(&fit) })
    }

    pub(crate) fn restrict_to(&mut self, port: u16, socket: SocketId, ip: IpAddr) {
        let claims = self.bound.get_mut(&port).into_iter().flatten();
        claims.filter(|binding| binding.socket == socket).for_each(|binding| binding.ip = ip);
    }

    pub(crate) fn bindings(&self, port: u16) -> impl Iterator<Item = &Binding> + Clone {
        self.bound.get(&port).into_iter().flatten()
    }
}

/// Replaces a wildcard address by the loopback, as a connect does.
pub(crate) fn wildcard_to_loopback(to: SocketAddr) -> SocketAddr {
    match to.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, to.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, to.port()).into(),
        _ => to,
    }
}

/// Maps an IPv4 address to the form that an IPv6 socket sees.
pub(crate) fn ipv4_mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => (ip.to_ipv6_mapped(), address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(socket: SocketId, ip: &str) -> Binding {
        Binding {
            socket,
            ip: ip.parse().unwrap(),
            v6_only: false,
            reuse_address: false,
            reuse_port: false,
            listening: false,
        }
    }

    #[test]
    fn overlapping_bindings_conflict() {
        let mut ports = Ports::new();
        assert_eq!(ports.bind(80, binding(1, "127.0.0.1")), Ok(80));
        for (ip, free) in [("127.0.0.2", true), ("0.0.0.0", false), ("::1", true), ("::", false)] {
            let answer = ports.bind(80, binding(2, ip));
            assert_eq!(answer, if free { Ok(80) } else { Err(Errno::ADDRINUSE) }, "{ip}");
            ports.unbind(80, 2);
        }
        assert_eq!(ports.bind(80, Binding { v6_only: true, ..binding(2, "::") }), Ok(80));
    }

    #[test]
    fn port_is_shared_only_when_both_sockets_allow_it() {
        let mut ports = Ports::new();
        let quiet = |socket| Binding { reuse_address: true, ..binding(socket, "0.0.0.0") };
        assert_eq!((ports.bind(80, quiet(1)), ports.bind(80, quiet(2))), (Ok(80), Ok(80)));
        assert_eq!((ports.listen(80, 1), ports.listen(80, 2)), (Ok(()), Err(Errno::ADDRINUSE)));
        assert_eq!(ports.bind(80, quiet(3)), Err(Errno::ADDRINUSE));
        let shared = |socket| Binding { reuse_port: true, ..binding(socket, "0.0.0.0") };
        assert_eq!((ports.bind(81, shared(4)), ports.bind(81, shared(5))), (Ok(81), Ok(81)));
        assert_eq!((ports.listen(81, 4), ports.listen(81, 5)), (Ok(()), Ok(())));
        let mut random = Random::new(0);
        let to = "10.0.0.1:81".parse().unwrap();
        let chosen: Vec<_> = (0..50).filter_map(|_| ports.listener(to, &mut random)).collect();
        assert!(chosen.contains(&4) && chosen.contains(&5));
    }

    #[test]
    fn bind_to_port_zero_takes_a_free_port() {
        let mut ports = Ports::new();
        let first = ports.bind(0, binding(1, "127.0.0.1")).unwrap();
        let second = ports.bind(0, binding(2, "127.0.0.1")).unwrap();
        assert!(first >= FIRST_EPHEMERAL_PORT && second >= FIRST_EPHEMERAL_PORT && first != second);
    }
}
