//! The addresses of the server's own UDP sockets, which it must not answer.
//!
//! A datagram's source can be forged. One that names a socket of this server would be echoed to that socket, and from
//! there again, for ever; so what comes from an own address is refused. Two servers, of this or another kind, that are
//! set at each other by such a datagram cannot be told from clients.

use std::cell::RefCell;
use std::io::ErrorKind::AddrNotAvailable;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

/// The addresses that the UDP sockets of a worker are bound to.
#[derive(Debug, Default)]
pub(super) struct OwnAddresses(RefCell<Vec<SocketAddr>>);

impl OwnAddresses {
    /// Adds the address that a socket is bound to.
    pub(super) fn add(&self, bound: SocketAddr) {
        self.0.borrow_mut().push(bound);
    }

    /// Whether a datagram from there must not be answered: it names one of the sockets, or port 0, where nothing can
    /// listen.
    pub(super) fn refuse(&self, source: SocketAddr) -> bool {
        source.port() == 0 || self.0.borrow().iter().any(|bound| is_of_socket(*bound, source))
    }
}

/// Whether a socket that is bound to this address sends from `source`.
fn is_of_socket(bound: SocketAddr, source: SocketAddr) -> bool {
    if source.port() != bound.port() {
        return false;
    }
    let (own, ip) = (bound.ip().to_canonical(), source.ip().to_canonical());
    own == ip || own.is_unspecified() && is_local(source, ip)
}

/// Whether this machine has the address: whether a socket can be bound to it. Few datagrams get as far as this, and an
/// address may come and go, so that the answer is not kept. What cannot be told counts as local.
fn is_local(source: SocketAddr, ip: IpAddr) -> bool {
    let any_port = match (source, ip) {
        // A link-local address is one of an interface.
        (SocketAddr::V6(source), IpAddr::V6(ip)) => {
            SocketAddrV6::new(ip, 0, 0, source.scope_id()).into()
        }
        _ => SocketAddr::new(ip, 0),
    };
    !UdpSocket::bind(any_port).is_err_and(|error| error.kind() == AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bound: &str, source: &str) -> bool {
        let own = OwnAddresses::default();
        own.add("127.0.0.1:1".parse().unwrap());
        own.add(bound.parse().unwrap());
        own.refuse(source.parse().unwrap())
    }

    #[test]
    fn own_addresses_and_port_0_are_refused() {
        for (bound, source) in [
            ("127.0.0.1:7000", "127.0.0.1:7000"),
            ("127.0.0.1:7000", "127.0.0.1:1"),
            ("0.0.0.0:7000", "127.0.0.1:7000"),
            ("0.0.0.0:7000", "127.9.9.9:7000"),
            ("[::]:7000", "[::1]:7000"),
            ("[::]:7000", "[::ffff:127.0.0.1]:7000"),
            ("[::1]:7000", "192.0.2.1:0"),
        ] {
            assert!(refused(bound, source), "{source} at {bound}");
        }
    }

    #[test]
    fn others_are_not_refused() {
        for (bound, source) in [
            ("127.0.0.1:7000", "127.0.0.1:7001"),
            ("127.0.0.1:7000", "127.0.0.2:7000"),
            ("0.0.0.0:7000", "192.0.2.1:7000"),
            ("[::]:7000", "[2001:db8::1]:7000"),
            ("[::]:7000", "[::ffff:192.0.2.1]:7000"),
        ] {
            assert!(!refused(bound, source), "{source} at {bound}");
        }
    }
}
