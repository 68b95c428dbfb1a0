//! A limit on the time without traffic on a connection.

use crate::time::{Sleep, sleep_until};
use crate::timers::Instant;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Number of progress checks per limit. Between checks, transferred bytes cost no clock read.
const CHECKS_PER_LIMIT: u32 = 4;

/// The number of bytes transferred at some point in time. Any difference is progress.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Bytes accepted in each direction.
    pub(super) copied: (u64, u64),
    /// Bytes queued on each stream but not sent yet.
    pub(super) unsent: (usize, usize),
}

/// Measures the time without progress.
pub(super) struct IdleTimeout {
    limit: Duration,
    /// The progress at the last check that found a difference, and the time of that check.
    seen: Progress,
    since: Instant,
    /// Fires at the next check.
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

    /// Ready once there has been no progress for the limit, or up to a quarter longer.
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
