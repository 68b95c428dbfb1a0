//! Copies between two streams in both directions, as in a proxy, with an optional idle timeout.

use super::AsyncStream;
use super::transfer::Transfer;
use crate::errors::{CopyError, Direction};
use crate::time::{Sleep, sleep_until};
use crate::timers::Instant;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, io};

/// Copies everything that `a` receives to `b`, and everything that `b` receives to `a`, until both
/// have ended. Returns the number of bytes in each direction, `a` to `b` first.
///
/// The end of one stream shuts down the sending side of the other, while the other direction
/// continues. Streams of this crate pass on their leases without a copy. If the peer of one stream
/// does not read, nothing more is received from the other.
///
/// ```
/// use annulus::io::copy_bidirectional;
/// use annulus::net::UnixStream;
///
/// # annulus::run(async {
/// let (mut client, mut near) = UnixStream::pair()?;
/// let (mut far, mut server) = UnixStream::pair()?;
/// let proxy = annulus::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
/// client.send("a request").await?;
/// client.shutdown().await?;
/// assert_eq!(server.recv().await?.as_deref(), Some(&b"a request"[..]));
/// server.send("an answer, after the end of the request").await?;
/// server.shutdown().await?;
/// assert_eq!(proxy.await??, (9, 39));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # What dropping the future does
///
/// Neither stream is closed. If both belong to this crate, every byte taken from one is queued on
/// the other and will be sent. With a sink of another crate, bytes of the current piece that the
/// sink has not accepted are lost.
///
/// # Errors
/// The first error of either direction, with the same kind, or `TimedOut` after an
/// [`idle_timeout`](CopyBidirectional::idle_timeout). It wraps a [`CopyError`], which contains the
/// direction that failed and the numbers of bytes copied. Bytes that were accepted in the other
/// direction are sent.
///
/// After an error, [`abort`](crate::net::TcpStream::abort) both streams. If they are dropped, their
/// peers receive an end, as if everything had been copied.
pub fn copy_bidirectional<'a, A: AsyncStream, B: AsyncStream>(
    a: &'a mut A,
    b: &'a mut B,
) -> CopyBidirectional<'a, A, B> {
    let (forth, back) = (OneDirection::new(), OneDirection::new());
    CopyBidirectional { a, b, forth, back, back_first: true, idle: None }
}

/// The future of [`copy_bidirectional`], with its limits.
///
/// Between two sockets of this crate, the runtime passes on bytes while the task sleeps. It wakes
/// the task for events such as the end of a stream, an error or a full send queue.
///
/// ```
/// use annulus::io::copy_bidirectional;
/// use annulus::net::UnixStream;
/// use std::time::Duration;
///
/// # annulus::run(async {
/// let (mut client, mut near) = UnixStream::pair()?;
/// let (mut far, server) = UnixStream::pair()?;
/// let proxy = annulus::spawn(async move {
///     let mut copy = copy_bidirectional(&mut near, &mut far).idle_timeout(Duration::from_millis(20));
///     let error = (&mut copy).await.unwrap_err();
///     (copy.copied(), error.kind())
/// });
/// client.send("a request that is never answered").await?;
/// assert_eq!(proxy.await?, ((32, 0), std::io::ErrorKind::TimedOut));
/// # drop(server);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[must_use = "a copy does nothing unless awaited"]
pub struct CopyBidirectional<'a, A, B> {
    a: &'a mut A,
    b: &'a mut B,
    /// From `a` to `b`.
    forth: OneDirection,
    /// From `b` to `a`.
    back: OneDirection,
    /// Whether the last poll polled `back` first. The directions alternate.
    back_first: bool,
    /// The time without progress after which the copy fails, or `None` for no limit.
    idle: Option<Box<IdleTimeout>>,
}

impl<A, B> CopyBidirectional<'_, A, B> {
    /// Fails the copy with an error of kind `TimedOut` once no bytes have been transferred in
    /// either direction for `limit`, or up to a quarter longer: progress is checked four times per
    /// limit. The time starts with this call. A timeout closes neither stream.
    ///
    /// Bytes count as progress when they are accepted. Bytes queued by a stream of this crate count
    /// again when the send that contains them ends. A peer that reads slowly must therefore read up
    /// to a full send queue ([`unsent_limit`](crate::Builder::unsent_limit)) within the limit.
    ///
    /// # Panics
    /// The future panics when it is polled outside a runtime.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle = Some(Box::new(IdleTimeout::new(limit)));
        self
    }

    /// Limits the number of bytes in each direction, including bytes that have already been copied.
    /// A direction that reaches its limit ends as if its source had ended, and later bytes stay in
    /// the source. Each call replaces both limits.
    pub fn limits(mut self, a_to_b: u64, b_to_a: u64) -> Self {
        self.forth.transfer.set_limit(a_to_b);
        self.back.transfer.set_limit(b_to_a);
        self
    }

    /// Returns the number of bytes accepted so far: from the first stream to the second, then from
    /// the second to the first.
    pub fn copied(&self) -> (u64, u64) {
        (self.forth.transfer.copied(), self.back.transfer.copied())
    }
}

impl<A: AsyncStream, B: AsyncStream> CopyBidirectional<'_, A, B> {
    /// Returns true once both directions have ended.
    fn poll_both(&mut self, cx: &mut Context<'_>) -> Result<bool, (Option<Direction>, io::Error)> {
        let in_direction = |direction| move |error| (Some(direction), error);
        // A direction that always has bytes may use up the whole budget, so the directions
        // alternate in being polled first.
        let mut ended = true;
        self.back_first = !self.back_first;
        for back in [self.back_first, !self.back_first] {
            let (polled, direction) = match back {
                false => (self.forth.poll(cx, self.a, self.b), Direction::AToB),
                true => (self.back.poll(cx, self.b, self.a), Direction::BToA),
            };
            ended &= polled.map_err(in_direction(direction))?.is_ready();
        }
        Ok(ended)
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(mut idle) = self.idle.take() else { return Poll::Pending };
        let polled = idle.poll(cx, || self.progress());
        self.idle = Some(idle);
        polled
    }

    fn progress(&self) -> Progress {
        let [to_a, to_b] = [self.a.own_stream(), self.b.own_stream()];
        let [to_a, to_b] = [to_a, to_b].map(|to| to.map_or(0, |to| to.handle.unsent()));
        Progress { copied: self.copied(), unsent: (to_b, to_a) }
    }

    fn stop(&mut self) {
        self.forth.transfer.stop();
        self.back.transfer.stop();
    }
}

impl<A: AsyncStream, B: AsyncStream> Future for CopyBidirectional<'_, A, B> {
    type Output = io::Result<(u64, u64)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let ended = match this.poll_both(cx) {
            Ok(false) => Err((None, ready!(this.poll_idle(cx)))),
            ended => ended,
        };
        this.stop();
        let copied = this.copied();
        Poll::Ready(match ended {
            Ok(_) => Ok(copied),
            Err((direction, error)) => {
                Err(io::Error::new(error.kind(), CopyError { direction, copied, error }))
            }
        })
    }
}

impl<A, B> fmt::Debug for CopyBidirectional<'_, A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyBidirectional").field("copied", &self.copied()).finish_non_exhaustive()
    }
}

/// Copies until the source ends, then shuts down the sink.
struct OneDirection {
    transfer: Transfer,
    phase: Phase,
}

enum Phase {
    Copying,
    Ending,
    Ended,
}

impl OneDirection {
    fn new() -> Self {
        Self { transfer: Transfer::new(u64::MAX), phase: Phase::Copying }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut impl AsyncStream,
        to: &mut impl AsyncStream,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.phase {
                Phase::Copying => {
                    ready!(self.transfer.poll(cx, from, to))?;
                    self.phase = Phase::Ending;
                }
                Phase::Ending => {
                    ready!(to.poll_shutdown(cx))?;
                    self.phase = Phase::Ended;
                }
                Phase::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}

const CHECKS_PER_LIMIT: u32 = 4;

/// Byte counts at one moment. If two of them differ, the copy made progress in between.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Bytes accepted in each direction.
    pub(super) copied: (u64, u64),
    /// Bytes queued on each stream but not sent yet.
    pub(super) unsent: (usize, usize),
}

pub(super) struct IdleTimeout {
    limit: Duration,
    /// Byte counts at the last check that found progress.
    seen: Progress,
    since: Instant,
    next_check: Sleep,
}

impl IdleTimeout {
    pub(super) fn new(limit: Duration) -> Self {
        let since = Instant::now();
        let next_check = sleep_until(since + Self::pause(limit));
        Self { limit, seen: Progress::default(), since, next_check }
    }

    /// Returns the time between two checks. It is never zero, because time must pass between them.
    fn pause(limit: Duration) -> Duration {
        (limit / CHECKS_PER_LIMIT).max(Duration::from_nanos(1))
    }

    /// Returns the error once there has been no progress for the limit, or up to a quarter longer.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        progress: impl Fn() -> Progress,
    ) -> Poll<io::Error> {
        loop {
            ready!(Pin::new(&mut self.next_check).poll(cx));
            let (now, progress) = (Instant::now(), progress());
            if progress != self.seen {
                (self.seen, self.since) = (progress, now);
            } else if now - self.since >= self.limit {
                return Poll::Ready(self.error());
            }
            let end = self.since + self.limit;
            self.next_check.reset(end.min(now + Self::pause(self.limit)));
        }
    }

    fn error(&self) -> io::Error {
        let text =
            format!("no bytes were transferred for {:?}, the limit of idle_timeout", self.limit);
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}
