//! Addresses by name.

use std::fmt::Debug;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The addresses of a host. Resolving a name blocks the thread; a numeric address does not.
pub(super) fn resolve(address: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host name has no address"));
    }
    Ok(found)
}

/// The result of `f` for the first address for which it succeeds; else the last error, which names the address.
pub(super) fn first<T>(
    address: impl ToSocketAddrs,
    doing: &str,
    f: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut error = None;
    for address in resolve(address)? {
        match f(address) {
            Ok(made) => return Ok(made),
            Err(e) => error = Some(failed(e, doing, &address)),
        }
    }
    Err(last_error(error))
}

/// Adds to an error what failed, and for which address.
pub(super) fn failed(error: io::Error, doing: &str, address: &impl Debug) -> io::Error {
    io::Error::new(error.kind(), format!("{doing} {address:?}: {error}"))
}

/// The last failure.
pub(super) fn last_error(error: Option<io::Error>) -> io::Error {
    error.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no address to try"))
}
