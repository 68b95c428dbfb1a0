//! Conversions between the kernel's and the standard library's Unix addresses.

use annulus_kernel::{Address, UnixName};
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;

/// Converts a path. A path that begins with a zero byte is an abstract name, as in the kernel.
pub(crate) fn of_path(path: &Path) -> io::Result<Address> {
    Address::unix(match path.as_os_str().as_bytes() {
        [0, name @ ..] => UnixName::Abstract(name),
        path => UnixName::Path(path),
    })
}

pub(crate) fn of_std(address: &SocketAddr) -> io::Result<Address> {
    match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => of_path(path),
        (_, Some(name)) => Address::unix(UnixName::Abstract(name)),
        _ => Address::unix(UnixName::Unnamed),
    }
}

/// Length of the longest path that a [`SocketAddr`] can hold. The kernel accepts one byte more: a
/// path that fills `sun_path` without a terminating zero (unix(7), under *Bugs*).
const LONGEST: usize = 107;

/// Converts an address. A path that is too long for the standard library becomes unnamed, so that a
/// peer cannot cause an error by its choice of address.
pub(crate) fn to_std(address: &Address) -> io::Result<SocketAddr> {
    // Datagrams from unnamed sockets have no address.
    if address.as_bytes().is_empty() {
        return SocketAddr::from_pathname("");
    }
    match address.to_unix()? {
        UnixName::Unnamed => SocketAddr::from_pathname(""),
        UnixName::Path(path) if path.len() > LONGEST => SocketAddr::from_pathname(""),
        UnixName::Path(path) => SocketAddr::from_pathname(OsStr::from_bytes(path)),
        UnixName::Abstract(name) => SocketAddr::from_abstract_name(name),
    }
}
