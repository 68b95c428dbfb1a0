//! Several addresses of a host: the first that answers wins.

use annulus::net::{ConnectOptions, TcpStream};
use annulus::time::{Sleep, sleep};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Connects to one of the addresses. Dropped, it cancels all attempts.
pub(super) async fn connect(
    options: ConnectOptions,
    addresses: Vec<SocketAddr>,
    delay: Duration,
) -> io::Result<TcpStream> {
    let next = Box::pin(sleep(delay));
    let untried = in_turns(addresses);
    let mut race = Race { options, untried, running: Vec::new(), errors: Vec::new(), delay, next };
    race.begin();
    poll_fn(|cx| race.poll(cx)).await
}

type Attempt = Pin<Box<dyn Future<Output = io::Result<TcpStream>>>>;

struct Race {
    options: ConnectOptions,
    untried: VecDeque<SocketAddr>,
    running: Vec<Attempt>,
    errors: Vec<io::Error>,
    delay: Duration,
    /// When another attempt begins beside those that run.
    next: Pin<Box<Sleep>>,
}

impl Race {
    fn begin(&mut self) {
        if let Some(address) = self.untried.pop_front() {
            let options = self.options.clone();
            self.running.push(Box::pin(async move { options.connect(address).await }));
            self.next.set(sleep(self.delay));
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        loop {
            let failed = self.errors.len();
            if let Poll::Ready(stream) = self.poll_running(cx) {
                return Poll::Ready(Ok(stream));
            }
            let has_failed = self.errors.len() > failed;
            if self.running.is_empty() && self.untried.is_empty() {
                return Poll::Ready(Err(all(&self.errors)));
            }
            if self.untried.is_empty() || !has_failed && self.next.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.begin();
        }
    }

    /// The first attempt that has connected. Attempts that have failed are taken out.
    fn poll_running(&mut self, cx: &mut Context<'_>) -> Poll<TcpStream> {
        let mut at = 0;
        while let Some(attempt) = self.running.get_mut(at) {
            match attempt.as_mut().poll(cx) {
                Poll::Pending => at += 1,
                Poll::Ready(Ok(stream)) => return Poll::Ready(stream),
                Poll::Ready(Err(error)) => {
                    drop(self.running.remove(at));
                    self.errors.push(error);
                }
            }
        }
        Poll::Pending
    }
}

/// The addresses, families in turns, beginning with that of the first.
fn in_turns(addresses: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (first, second): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first_is_v4);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let pairs = std::iter::from_fn(|| match (first.next(), second.next()) {
        (None, None) => None,
        pair => Some(pair),
    });
    pairs.flat_map(|(one, other)| one.into_iter().chain(other)).collect()
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
