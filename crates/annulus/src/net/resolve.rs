//! Addresses by name.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The addresses that a name stands for. Asking a name server blocks the thread; numbers do not.
pub(super) fn resolve(address: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name stands for no address"));
    }
    Ok(found)
}

/// The first success, or the last failure.
pub(super) fn last_error(error: Option<io::Error>) -> io::Error {
    error.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no address to try"))
}
