//! A limit on the time in which nothing goes over a connection.

use crate::time::{Sleep, sleep_until};
use crate::timers::Instant;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How often progress is looked for within the limit. Bytes that go meanwhile read no clock.
const LOOKS: u32 = 4;

/// Bytes that had gone at some time; any difference is progress.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Bytes taken in each direction.
    pub(super) copied: (u64, u64),
    /// Bytes queued at each stream and not sent yet.
    pub(super) unsent: (usize, usize),
}

/// Measures the time without progress.
pub(super) struct IdleTimeout {
    limit: Duration,
    /// The last progress, and when it was seen.
    seen: Progress,
    since: Instant,
    /// The progress is looked at some times in each limit, not at each byte.
    next_look: Sleep,
}

impl IdleTimeout {
    pub(super) fn new(limit: Duration) -> Self {
        let since = Instant::now();
        let next_look = sleep_until(since + Self::pause(limit));
        Self { limit, seen: Progress::default(), since, next_look }
    }

    /// The time between two looks. Never zero: time must pass between them.
    fn pause(limit: Duration) -> Duration {
        (limit / LOOKS).max(Duration::from_nanos(1))
    }

    /// Ready once nothing has gone for as long as the limit, or a quarter longer.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        progress: impl Fn() -> Progress,
    ) -> Poll<io::Error> {
        loop {
            ready!(Pin::new(&mut self.next_look).poll(cx));
            let (now, progress) = (Instant::now(), progress());
            if progress != self.seen {
                (self.seen, self.since) = (progress, now);
            } else if now - self.since >= self.limit {
                return Poll::Ready(self.error());
            }
            let last_look = self.since + self.limit;
            self.next_look.reset(last_look.min(now + Self::pause(self.limit)));
        }
    }

    fn error(&self) -> io::Error {
        let text = format!("nothing has gone for {:?}, the limit of idle_timeout", self.limit);
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}
