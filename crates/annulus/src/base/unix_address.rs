//! Conversion between Unix addresses of the kernel and of the standard library.

use annulus_kernel::{Address, UnixName};
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;

/// A path that begins with a zero byte is an abstract name, as the kernel has it.
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

/// The longest path that [`SocketAddr`] can be made of. The kernel takes one byte more: a path that fills `sun_path`, without a zero
/// behind it (unix(7), under *Bugs*).
const LONGEST: usize = 107;

/// An address that a peer chose is no reason to fail: one that the standard library cannot hold becomes unnamed.
pub(crate) fn to_std(address: &Address) -> io::Result<SocketAddr> {
    // Datagrams of unnamed sockets come without an address.
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
