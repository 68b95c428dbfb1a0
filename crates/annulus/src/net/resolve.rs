//! Looking up addresses by name.

use super::addresses::{Target, ToSocketAddrs};
use crate::errors;
use crate::errors::{OpError, Operation};
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::runtime::spawn::offload;
use crate::tasks::{consume_budget, panic_message};
use crate::time::timeout;
use annulus_kernel::Address;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Looks up the addresses of a host with the system's configuration or the runtime's own
/// [`resolver`](crate::Builder::resolver). The look-up is a blocking call on another thread, so the
/// loop continues. Numeric addresses need no look-up.
///
/// If the future is dropped before it is ready, a look-up that has begun continues on its thread,
/// and its result is dropped. The look-up has only the system's time limit; set a shorter one with
/// a [`timeout`](crate::time::timeout).
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
/// If the name does not resolve, with the name in the message; `InvalidInput` if it is not an
/// address; or outside a runtime.
pub async fn lookup_host(
    address: impl ToSocketAddrs,
) -> io::Result<impl Iterator<Item = SocketAddr>> {
    Ok(resolve(address, None).await?.into_iter())
}

/// Returns at least one address, within `limit`.
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
    found.map_err(|error| not_found(&error, &host))
}

async fn look_up(core: &Core, host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let resolver = core.blocking.resolver.clone();
    let answered = offload(core, move || resolver.look_up(&host, port)).await;
    // Under a simulated kernel, the answer is available at once.
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
    found.map_err(|error| not_found(&error, &host))
}

/// Returns the result of `f` for the first address for which it succeeds, or the errors of all.
/// Looking up a name blocks the thread.
pub(super) fn first<T>(
    address: impl ToSocketAddrs,
    operation: Operation,
    f: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    first_of(resolve_here(address)?, operation, f)
}

/// Like [`first`], but for resolved addresses.
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
fn not_found(error: &io::Error, host: &str) -> io::Error {
    io::Error::new(error.kind(), format!("looking up {host:?}: {error}"))
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

/// Adds the host name, if one was looked up, to the error of all its addresses.
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

/// Returns the error of all addresses, or `NotFound` if there was no address.
pub(super) fn last_error(error: Option<io::Error>) -> io::Error {
    error.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no address to try"))
}

fn unanswered(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"))
}
