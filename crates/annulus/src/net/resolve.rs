//! Targets to connect or bind to: addresses, and host names with their resolution.

use crate::blocking::AtEnd;
use crate::errors;
use crate::errors::{OpError, Operation};
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::runtime::spawn::offload;
use crate::tasks::{consume_budget, panic_message};
use crate::time::timeout;
use annulus_kernel::Address;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::Duration;

/// Looks up the addresses of a host with the system's configuration or the runtime's own
/// [`resolver`](crate::Builder::resolver). The look-up is a blocking call on another thread, so the
/// loop continues. Numeric addresses need no look-up.
///
/// If the future is dropped before it is ready, a look-up that has begun continues on its thread,
/// and its result is dropped. The end of the runtime does not wait for it. The look-up has only the
/// system's time limit; set a shorter one with a [`timeout`](crate::time::timeout).
///
/// ```
/// # annulus::run(async {
/// let mut addresses = annulus::net::lookup_host("localhost:80").await?;
/// assert!(addresses.all(|address| address.ip().is_loopback() && address.port() == 80));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # Errors
/// If the name does not resolve, with the name in the message; `NotFound` for an empty list of
/// addresses; `InvalidInput` for text that is not `host:port`; or, for a host name, outside a
/// runtime.
pub async fn lookup_host(
    address: impl ToSocketAddrs,
) -> io::Result<impl Iterator<Item = SocketAddr>> {
    Ok(resolve(address, None).await?.into_iter())
}

/// Returns the addresses of a target, at least one. A look-up may take at most `limit`.
pub(super) async fn resolve(
    address: impl ToSocketAddrs,
    limit: Option<Duration>,
) -> io::Result<Vec<SocketAddr>> {
    resolve_target(address.target()?, limit).await
}

/// Like [`resolve`], but for a parsed target.
pub(super) async fn resolve_target(
    target: Target,
    limit: Option<Duration>,
) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = match target {
        Target::Addresses(addresses) if addresses.is_empty() => return Err(last_error(None)),
        Target::Addresses(addresses) => {
            consume_budget().await;
            return Ok(addresses);
        }
        Target::Host(host, port) => (host, port),
    };
    let core = current::get()?;
    let found = look_up(&core, host.clone(), port);
    let found = match limit {
        None => found.await,
        Some(limit) => timeout(limit, found).await.unwrap_or_else(|_| Err(unanswered(limit))),
    };
    found.map_err(|error| not_found(error, &host))
}

async fn look_up(core: &Core, host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let resolver = core.blocking.resolver.clone();
    let answered = offload(core, AtEnd::Leaves, move || resolver.look_up(&host, port)).await;
    // Under a simulated kernel, the answer is available at once. Without this use of budget, a
    // loop of look-ups would starve other tasks.
    consume_budget().await;
    at_least_one(answered?.unwrap_or_else(|panic| {
        let text = format!("the resolver panicked: {}", panic_message(&panic));
        Err(io::Error::other(text))
    })?)
}

fn at_least_one(found: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(found)
}

/// Like [`resolve`], but a look-up blocks the thread. Outside a runtime, it uses the system's
/// resolver.
fn resolve_here(address: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = match address.target()? {
        Target::Addresses(addresses) => return Ok(addresses),
        Target::Host(host, port) => (host, port),
    };
    let resolver = current::with(|core| core.blocking.resolver.clone()).unwrap_or_default();
    let found = resolver.look_up(&host, port).and_then(at_least_one);
    found.map_err(|error| not_found(error, &host))
}

/// Calls `f` for each address until it succeeds, and returns that result, or one error with the
/// texts of all failures. Looking up a name blocks the thread.
pub(super) fn first<T>(
    address: impl ToSocketAddrs,
    operation: Operation,
    f: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    first_of(resolve_here(address)?, operation, f)
}

/// Like [`first`], but for addresses that need no look-up.
pub(super) fn first_of<T>(
    addresses: impl IntoIterator<Item = SocketAddr>,
    operation: Operation,
    f: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut error = None;
    for address in addresses {
        match f(address) {
            Ok(made) => return Ok(made),
            Err(e) => error = Some(and_then(error, failed(e, operation, address))),
        }
    }
    Err(last_error(error))
}

/// Adds the looked-up name to an error.
fn not_found(error: io::Error, host: &str) -> io::Error {
    let text = format!("looking up {host:?}: {error}");
    errors::with_text(error, text)
}

/// Adds the failed operation and its address to an error.
pub(super) fn failed(
    error: io::Error,
    operation: Operation,
    address: impl Into<Address>,
) -> io::Error {
    OpError::new(operation, Some(address.into()), error).into()
}

/// Combines the errors of several addresses: the kind of the last error, and the text of all.
pub(super) fn and_then(before: Option<io::Error>, error: io::Error) -> io::Error {
    match before {
        None => error,
        Some(before) => {
            let text = format!("{before}; {error}");
            with_text(error, text)
        }
    }
}

/// Adds the host name, if the target was a name, to the combined error of its addresses.
pub(super) fn of_host(host: Option<&str>, error: io::Error) -> io::Error {
    match host {
        None => error,
        Some(host) => {
            let text = format!("{host:?}: {error}");
            with_text(error, text)
        }
    }
}

/// Returns the same error with another text.
fn with_text(error: io::Error, text: String) -> io::Error {
    let named = error.downcast::<OpError>().map(|error| error.with_text(text.clone()).into());
    named.unwrap_or_else(|error| errors::with_text(error, text))
}

/// Returns the combined error of all addresses, or `NotFound` if there was no address.
pub(super) fn last_error(error: Option<io::Error>) -> io::Error {
    error.unwrap_or_else(|| {
        let text = "the list of addresses is empty; give at least one";
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

fn unanswered(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"))
}

/// The targets that [`TcpStream::connect`](super::TcpStream::connect),
/// [`UdpSocket::connect`](super::UdpSocket::connect) and [`lookup_host`](super::lookup_host)
/// accept: socket addresses, `"host:port"`, `("host", port)` and `(ip, port)`. These functions look
/// a name up without blocking the loop. `bind` accepts the same targets, but looks a name up on the
/// calling thread.
///
/// The trait is sealed. It replaces the standard library's trait of the same name, whose look-up
/// blocks the thread.
///
/// ```
/// use annulus::net::ToSocketAddrs;
///
/// fn takes_addresses(_: impl ToSocketAddrs) {}
///
/// takes_addresses("localhost:7000");
/// takes_addresses(("localhost", 7000));
/// takes_addresses("[::1]:7000".to_owned());
/// takes_addresses((std::net::Ipv4Addr::LOCALHOST, 7000));
/// ```
pub trait ToSocketAddrs: sealed::HasTarget {}

impl<T: sealed::HasTarget + ?Sized> ToSocketAddrs for T {}

/// A parsed target.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// Addresses that need no look-up.
    Addresses(Vec<SocketAddr>),
    /// A host name to look up, and the port to use with its addresses.
    Host(String, u16),
}

impl Target {
    /// Returns the name to look up, if any.
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Self::Addresses(_) => None,
            Self::Host(host, _) => Some(host),
        }
    }
}

mod sealed {
    pub trait HasTarget {
        fn target(&self) -> std::io::Result<super::Target>;
    }
}

macro_rules! address {
    ($($type:ty),*) => {$(
        impl sealed::HasTarget for $type {
            fn target(&self) -> io::Result<Target> {
                Ok(Target::Addresses(vec![SocketAddr::from(*self)]))
            }
        }
    )*};
}

address!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl sealed::HasTarget for [SocketAddr] {
    fn target(&self) -> io::Result<Target> {
        Ok(Target::Addresses(self.to_vec()))
    }
}

impl sealed::HasTarget for Vec<SocketAddr> {
    fn target(&self) -> io::Result<Target> {
        self.as_slice().target()
    }
}

impl sealed::HasTarget for (&str, u16) {
    fn target(&self) -> io::Result<Target> {
        let (host, port) = *self;
        Ok(match host.parse::<IpAddr>() {
            Ok(ip) => Target::Addresses(vec![SocketAddr::new(ip, port)]),
            Err(_) => Target::Host(host.to_owned(), port),
        })
    }
}

impl sealed::HasTarget for (String, u16) {
    fn target(&self) -> io::Result<Target> {
        (self.0.as_str(), self.1).target()
    }
}

impl sealed::HasTarget for str {
    fn target(&self) -> io::Result<Target> {
        if let Ok(address) = self.parse() {
            return Ok(Target::Addresses(vec![address]));
        }
        let (host, port) = self.rsplit_once(':').ok_or_else(|| malformed(self))?;
        let port = port.parse().map_err(|_| malformed(self))?;
        if host.is_empty() {
            return Err(malformed(self));
        }
        Ok(Target::Host(host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
    }
}

impl sealed::HasTarget for String {
    fn target(&self) -> io::Result<Target> {
        self.as_str().target()
    }
}

impl<T: sealed::HasTarget + ?Sized> sealed::HasTarget for &T {
    fn target(&self) -> io::Result<Target> {
        (**self).target()
    }
}

fn malformed(text: &str) -> io::Error {
    let text = format!("{text:?} is not an address; write host:port, with a port from 0 to 65535");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::sealed::HasTarget;
    use super::*;

    fn host(name: &str, port: u16) -> Target {
        Target::Host(name.into(), port)
    }

    #[test]
    fn only_names_need_a_look_up() {
        let loopback = |port| Target::Addresses(vec![(Ipv4Addr::LOCALHOST, port).into()]);
        assert_eq!("127.0.0.1:80".target().unwrap(), loopback(80));
        assert_eq!(("127.0.0.1", 80).target().unwrap(), loopback(80));
        assert_eq!("[::1]:0".target().unwrap(), (Ipv6Addr::LOCALHOST, 0).target().unwrap());
        assert_eq!(
            ("::1".to_owned(), 7).target().unwrap(),
            (Ipv6Addr::LOCALHOST, 7).target().unwrap()
        );
        assert_eq!("a.example:80".target().unwrap(), host("a.example", 80));
        assert_eq!("a.example:80".to_owned().target().unwrap(), host("a.example", 80));
        assert_eq!("[fe80::1%eth0]:80".target().unwrap(), host("fe80::1%eth0", 80));
        assert_eq!((&[][..] as &[SocketAddr]).target().unwrap(), Target::Addresses(Vec::new()));
    }

    #[test]
    fn invalid_address_is_shown_in_the_error() {
        for text in ["", "host", ":80", "host:", "host:http", "host:65536", "host:-1"] {
            let error = text.target().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
