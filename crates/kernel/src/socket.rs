//! Kinds of sockets, and which half to shut down.

pub use rustix::net::Shutdown;

/// The address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// IPv4.
    Inet,
    /// IPv6.
    Inet6,
    /// Unix sockets, with paths and abstract names.
    Unix,
}

/// The type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    /// TCP, or a Unix stream.
    Stream,
    /// UDP, or Unix datagrams.
    Datagram,
}
