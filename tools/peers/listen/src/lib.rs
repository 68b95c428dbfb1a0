//! Common parts of the Rust peers: the address argument, the announcement, and one-line errors. The
//! contract is in `tools/peers/README.md`.

use std::fmt::{self, Display};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes per receive: enough for the largest message of the usual comparisons. Four times as many
/// cost more in cache misses with a thousand connections than they save with messages of 1 MiB.
pub const BUFFER: usize = 16 * 1024;

/// The backlog: the number of connections that a load opens at once.
pub const BACKLOG: i32 = 65535;

/// How long a server without free descriptors waits before it accepts again.
pub const SHORTAGE: Duration = Duration::from_millis(10);

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const UNAVAILABLE: i32 = 3;

/// An address to serve.
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A UDP port.
    Udp(SocketAddr),
    /// The path of a Unix stream socket.
    Unix(PathBuf),
}

impl Address {
    fn parse(text: &str) -> Option<Address> {
        if let Some(path) = text.strip_prefix("unix:") {
            return (!path.is_empty()).then(|| Address::Unix(path.into()));
        }
        let local = |port: &str| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?)));
        match text.strip_prefix("udp:") {
            Some(port) => local(port).map(Address::Udp),
            None => local(text).map(Address::Tcp),
        }
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Udp(address) => write!(f, "udp://{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Parses the only argument of a peer that serves every kind of address.
pub fn any() -> Address {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(text), None) => address(&text),
        _ => end(USAGE, "usage: PROGRAM ADDRESS, such as 0 for a free port"),
    }
}

fn address(text: &str) -> Address {
    Address::parse(text).unwrap_or_else(|| {
        end(USAGE, format_args!("'{text}' is not an address: give PORT, udp:PORT or unix:/path"))
    })
}

/// Parses the only argument of a peer that serves only TCP.
pub fn tcp() -> SocketAddr {
    of_tcp(any())
}

/// Parses the arguments of a peer that serves only TCP and has modes.
pub fn tcp_and_mode() -> (SocketAddr, Option<String>) {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next(), arguments.next()) {
        (Some(text), mode, None) => (of_tcp(address(&text)), mode),
        _ => end(USAGE, "usage: PROGRAM ADDRESS [MODE], such as 0 for a free port"),
    }
}

fn of_tcp(address: Address) -> SocketAddr {
    match address {
        Address::Tcp(address) => address,
        other => {
            end(USAGE, format_args!("cannot serve {other}: this peer serves only TCP; give PORT"))
        }
    }
}

/// Announces the address once everything is set up.
pub fn announce(address: &Address) {
    eprintln!("listening on {address}");
}

/// Returns the result of a set-up step, or ends the program with one line if it failed.
pub fn must<T, E: Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| end(FAILED, format_args!("cannot serve: {error}")))
}

/// Returns a runtime on io_uring, or ends the program with one line if the system does not support
/// or allow it.
pub fn ring<T>(result: io::Result<T>) -> T {
    result.unwrap_or_else(|error| match error.kind() {
        ErrorKind::Unsupported | ErrorKind::PermissionDenied => {
            end(UNAVAILABLE, format_args!("io_uring is not available: {error}"))
        }
        _ => end(FAILED, format_args!("cannot set up io_uring: {error}")),
    })
}

fn end(code: i32, why: impl Display) -> ! {
    eprintln!("{why}");
    std::process::exit(code)
}
