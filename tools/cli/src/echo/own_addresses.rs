//! The addresses of the server's own UDP sockets, whose datagrams must not be answered. The source
//! of a datagram can be forged. If it is the address of one of this server's sockets, that socket
//! would echo the echo, and so on forever, so such datagrams are refused. The server cannot detect
//! the same loop between itself and another echo server, which looks like a client.

use std::cell::RefCell;
use std::io::ErrorKind::AddrNotAvailable;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

/// The bound addresses of a worker's UDP sockets.
#[derive(Debug, Default)]
pub(super) struct OwnAddresses(RefCell<Vec<SocketAddr>>);

impl OwnAddresses {
    pub(super) fn add(&self, bound: SocketAddr) {
        self.0.borrow_mut().push(bound);
    }

    /// Returns true if a datagram with this source must not be answered: the source is one of this
    /// worker's sockets, or has port 0, on which nothing can listen.
    #[inline]
    pub(super) fn refuse(&self, source: &SocketAddr) -> bool {
        let port = source.port();
        port == 0
            || self
                .0
                .borrow()
                .iter()
                .any(|bound| bound.port() == port && may_send_from(bound, source))
    }
}

/// Returns true if a socket with this bound address can send from `source`, which has the same
/// port.
#[cold]
fn may_send_from(bound: &SocketAddr, source: &SocketAddr) -> bool {
    let (own, ip) = (bound.ip().to_canonical(), source.ip().to_canonical());
    own == ip || own.is_unspecified() && is_local(*source, ip)
}

/// Returns true if this machine has the address, that is, if a socket can be bound to it. Few
/// datagrams get this far, and addresses may change, so the result is not cached. An error other
/// than `AddrNotAvailable` means that the address may be local, so it counts as local.
fn is_local(source: SocketAddr, ip: IpAddr) -> bool {
    let any_port = match (source, ip) {
        // A link-local address belongs to an interface.
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
        own.refuse(&source.parse().unwrap())
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
    fn other_addresses_are_not_refused() {
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
