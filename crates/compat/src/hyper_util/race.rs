//! Several addresses of a host: the first that answers wins.

use annulus::JoinSet;
use annulus::net::{ConnectOptions, TcpStream};
use annulus::time::timeout;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Connects to one of the addresses. Dropped, it cancels all attempts.
pub(super) async fn connect(
    options: ConnectOptions,
    addresses: Vec<SocketAddr>,
    delay: Duration,
) -> io::Result<TcpStream> {
    // An error where there is no runtime, in which a task would panic.
    annulus::handle()?;
    let mut untried = in_turns(addresses);
    let (mut attempts, mut errors) = (JoinSet::new(), Vec::new());
    loop {
        if let Some(address) = untried.pop_front() {
            let options = options.clone();
            attempts.spawn(async move { options.connect(address).await });
        }
        let limit = if untried.is_empty() { Duration::MAX } else { delay };
        // Late or failed, the next address is tried, beside the attempts that run.
        match timeout(limit, attempts.join_next()).await {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(error)))) => errors.push(error),
            Ok(Some(Err(ended))) => errors.push(io::Error::other(ended.to_string())),
            Ok(None) => return Err(all(&errors)),
            Err(_) => {}
        }
    }
}

/// The addresses, families in turns, beginning with that of the first.
fn in_turns(addresses: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first_is_v4);
    let mut order = VecDeque::new();
    while !first.is_empty() || !second.is_empty() {
        order.extend(first.pop_front().into_iter().chain(second.pop_front()));
    }
    order
}

/// The failure of all attempts: of the last one's kind, with the text of all.
fn all(errors: &[io::Error]) -> io::Error {
    let kind = errors.last().map_or(io::ErrorKind::NotFound, io::Error::kind);
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    io::Error::new(kind, if texts.is_empty() { "no address".into() } else { texts.join("; ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let addresses = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"].map(|a| a.parse().unwrap());
        let order: Vec<_> = in_turns(addresses.to_vec()).iter().map(ToString::to_string).collect();
        assert_eq!(order, ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]);
        assert!(in_turns(Vec::new()).is_empty());
    }
}
