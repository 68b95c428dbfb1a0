//! What kind of socket to make, and which half of one to shut down.

/// A socket's address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// IPv4.
    Inet,
    /// IPv6.
    Inet6,
    /// Sockets within the host, by paths and abstract names.
    Unix,
}

/// A socket's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    /// TCP, or a Unix stream.
    Stream,
    /// UDP, or Unix datagrams.
    Datagram,
}

/// Which half of a connection to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// No more receives.
    Read,
    /// No more sends: the peer sees the end of the stream.
    Write,
    /// Both.
    Both,
}
