//! Targets of a connect: addresses and host names.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The targets that [`TcpStream::connect`](super::TcpStream::connect),
/// [`UdpSocket::connect`](super::UdpSocket::connect) and [`lookup_host`](super::lookup_host)
/// accept: socket addresses, `"host:port"`, `("host", port)` and `(ip, port)`. These functions look
/// a name up without blocking the loop. `bind` accepts the same targets, but looks a name up on the
/// calling thread.
///
/// The trait is sealed. The standard library's trait would block the thread.
///
/// ```
/// use annulus::net::ToSocketAddrs;
///
/// fn takes_addresses(_: impl ToSocketAddrs) {}
///
/// takes_addresses("localhost:7000");
/// takes_addresses(("localhost", 7000));
/// takes_addresses("[::1]:7000".to_owned());
/// takes_addresses((std::net::Ipv4Addr::LOCALHOST, 7000));
/// ```
pub trait ToSocketAddrs: sealed::HasTarget {}

impl<T: sealed::HasTarget + ?Sized> ToSocketAddrs for T {}

/// A parsed target, with the look-up that it needs.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// Addresses that need no look-up.
    Addresses(Vec<SocketAddr>),
    /// A host name to look up, and the port to use with its addresses.
    Host(String, u16),
}

impl Target {
    /// Returns the name to look up, if any.
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Self::Addresses(_) => None,
            Self::Host(host, _) => Some(host),
        }
    }
}

mod sealed {
    pub trait HasTarget {
        fn target(&self) -> std::io::Result<super::Target>;
    }
}

macro_rules! address {
    ($($type:ty),*) => {$(
        impl sealed::HasTarget for $type {
            fn target(&self) -> io::Result<Target> {
                Ok(Target::Addresses(vec![SocketAddr::from(*self)]))
            }
        }
    )*};
}

address!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl sealed::HasTarget for [SocketAddr] {
    fn target(&self) -> io::Result<Target> {
        Ok(Target::Addresses(self.to_vec()))
    }
}

impl sealed::HasTarget for Vec<SocketAddr> {
    fn target(&self) -> io::Result<Target> {
        self.as_slice().target()
    }
}

impl sealed::HasTarget for (&str, u16) {
    fn target(&self) -> io::Result<Target> {
        let (host, port) = *self;
        Ok(match host.parse::<IpAddr>() {
            Ok(ip) => Target::Addresses(vec![SocketAddr::new(ip, port)]),
            Err(_) => Target::Host(host.to_owned(), port),
        })
    }
}

impl sealed::HasTarget for (String, u16) {
    fn target(&self) -> io::Result<Target> {
        (self.0.as_str(), self.1).target()
    }
}

impl sealed::HasTarget for str {
    fn target(&self) -> io::Result<Target> {
        if let Ok(address) = self.parse() {
            return Ok(Target::Addresses(vec![address]));
        }
        let (host, port) = self.rsplit_once(':').ok_or_else(|| malformed(self))?;
        let port = port.parse().map_err(|_| malformed(self))?;
        if host.is_empty() {
            return Err(malformed(self));
        }
        Ok(Target::Host(host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
    }
}

impl sealed::HasTarget for String {
    fn target(&self) -> io::Result<Target> {
        self.as_str().target()
    }
}

impl<T: sealed::HasTarget + ?Sized> sealed::HasTarget for &T {
    fn target(&self) -> io::Result<Target> {
        (**self).target()
    }
}

fn malformed(text: &str) -> io::Error {
    let text = format!("{text:?} is not an address; write host:port, with a port from 0 to 65535");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::sealed::HasTarget;
    use super::*;

    fn host(name: &str, port: u16) -> Target {
        Target::Host(name.into(), port)
    }

    #[test]
    fn only_names_need_a_look_up() {
        let loopback = |port| Target::Addresses(vec![(Ipv4Addr::LOCALHOST, port).into()]);
        assert_eq!("127.0.0.1:80".target().unwrap(), loopback(80));
        assert_eq!(("127.0.0.1", 80).target().unwrap(), loopback(80));
        assert_eq!("[::1]:0".target().unwrap(), (Ipv6Addr::LOCALHOST, 0).target().unwrap());
        assert_eq!(
            ("::1".to_owned(), 7).target().unwrap(),
            (Ipv6Addr::LOCALHOST, 7).target().unwrap()
        );
        assert_eq!("a.example:80".target().unwrap(), host("a.example", 80));
        assert_eq!("a.example:80".to_owned().target().unwrap(), host("a.example", 80));
        assert_eq!("[fe80::1%eth0]:80".target().unwrap(), host("fe80::1%eth0", 80));
        assert_eq!((&[][..] as &[SocketAddr]).target().unwrap(), Target::Addresses(Vec::new()));
    }

    #[test]
    fn invalid_address_is_shown_in_the_error() {
        for text in ["", "host", ":80", "host:", "host:http", "host:65536", "host:-1"] {
            let error = text.target().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
