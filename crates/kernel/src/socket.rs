//! Kinds of sockets, and the halves to shut down.

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

/// The half of a connection to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// No more receives.
    Read,
    /// No more sends: the peer sees the end of the stream.
    Write,
    /// Both.
    Both,
}
