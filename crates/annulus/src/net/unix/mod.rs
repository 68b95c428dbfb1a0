//! Unix sockets: the same leases and rules as TCP and UDP, within the host.
//!
//! Addresses are paths, or the standard library's [`SocketAddr`](std::os::unix::net::SocketAddr), which also holds
//! abstract names. Descriptors go along where both ends were made for that: see [`UnixOptions::descriptors`].

mod address;
mod datagram;
mod listener;
mod options;
mod path;
mod stream;

pub use datagram::{UnixDatagram, UnixMessage};
pub use listener::UnixListener;
pub use options::UnixOptions;
pub use stream::UnixStream;
