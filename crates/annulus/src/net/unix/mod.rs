//! Unix sockets, with the same leases and rules as TCP and UDP.
//!
//! Addresses are paths, or the standard library's [`SocketAddr`](std::os::unix::net::SocketAddr),
//! which also holds abstract names. Descriptors can be passed if both ends were opened for that:
//! see [`UnixOptions::descriptors`].

mod datagram;
mod listener;
mod options;
mod path;
mod stream;

pub use datagram::{UnixDatagram, UnixMessage};
pub use listener::UnixListener;
pub use options::UnixOptions;
pub use stream::UnixStream;
