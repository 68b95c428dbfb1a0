//! Connecting to one of several addresses: the first that answers wins ("Happy Eyeballs", RFC
//! 8305).

use super::resolve::{and_then, last_error};
use super::stream::TcpStream;
use crate::time::{Sleep, sleep};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// How long an attempt runs alone before the next address is tried in parallel, as RFC 8305
/// recommends.
pub(super) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// A race of connection attempts. Dropping it cancels the running attempts.
pub(super) struct Race<A, F> {
    attempt: A,
    untried: VecDeque<SocketAddr>,
    /// Running attempts, oldest first.
    running: Vec<Pin<Box<F>>>,
    delay: Duration,
    /// Fires when the next address should be tried.
    next: Pin<Box<Sleep>>,
    errors: Option<io::Error>,
}

impl<A: Fn(SocketAddr) -> F, F: Future<Output = io::Result<TcpStream>>> Race<A, F> {
    /// Creates a race in which `attempt` connects to one address.
    pub(super) fn new(addresses: Vec<SocketAddr>, delay: Duration, attempt: A) -> Self {
        Self {
            attempt,
            untried: in_turns(addresses),
            running: Vec::new(),
            delay,
            next: Box::pin(sleep(delay)),
            errors: None,
        }
    }

    /// Polls all attempts and returns the first stream that has connected.
    fn poll_attempts(&mut self, cx: &mut Context<'_>) -> Option<TcpStream> {
        let mut place = 0;
        while let Some(attempt) = self.running.get_mut(place) {
            match attempt.as_mut().poll(cx) {
                Poll::Pending => place += 1,
                Poll::Ready(Ok(stream)) => return Some(stream),
                Poll::Ready(Err(error)) => {
                    drop(self.running.remove(place));
                    self.errors = Some(and_then(self.errors.take(), error));
                    // After a failure, the next address need not wait.
                    self.begin();
                }
            }
        }
        None
    }

    /// Starts an attempt for the next address in parallel with the others.
    fn begin(&mut self) {
        if let Some(address) = self.untried.pop_front() {
            self.running.push(Box::pin((self.attempt)(address)));
            self.next.set(sleep(self.delay));
        }
    }
}

impl<A, F> Future for Race<A, F>
where
    A: Fn(SocketAddr) -> F + Unpin,
    F: Future<Output = io::Result<TcpStream>>,
{
    type Output = io::Result<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.running.is_empty() {
            this.begin();
        }
        loop {
            if let Some(stream) = this.poll_attempts(cx) {
                return Poll::Ready(Ok(stream));
            }
            if this.running.is_empty() {
                return Poll::Ready(Err(last_error(this.errors.take())));
            }
            if this.untried.is_empty() || this.next.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            this.begin();
        }
    }
}

/// Returns the addresses with their families alternating, starting with the family of the first.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_families_alternate() {
        let addresses = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"].map(|a| a.parse().unwrap());
        let order: Vec<_> = in_turns(addresses.to_vec()).iter().map(ToString::to_string).collect();
        assert_eq!(order, ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]);
        assert!(in_turns(Vec::new()).is_empty());
    }
}
