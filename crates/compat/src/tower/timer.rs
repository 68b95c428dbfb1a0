//! Decides which time limit a connection has exceeded.

use super::activity::Activity;
use super::protocol::HTTP2_PREFACE;
use annulus::time::{Instant, Sleep, sleep_until};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Maximum time for which a connection without a request and without progress may stay open after a
/// graceful shutdown has begun.
const MAX_SHUTDOWN_WAIT: Duration = Duration::from_secs(5);

/// Minimum number of written bytes that counts as progress. HTTP/2's own replies, which are not
/// part of a response, are shorter and do not count.
const MIN_PROGRESS_BYTES: u64 = 1024;

/// The server's reaction to a connection that has exceeded a limit.
pub(super) enum Late {
    /// Free hyper's state, because the connection is idle.
    Release,
    /// Close it gracefully.
    Close,
    /// Drop it and report the error.
    Drop(io::Error),
}

#[derive(Clone, Copy)]
enum Wait {
    FirstRequest,
    ToBeReleased,
    NextHead,
    NextRequest,
    PeerToRead,
    PeerToEnd,
}

/// Applies the time limits of one connection.
pub(super) struct Timer {
    activity: Rc<Activity>,
    limits: Limits,
    begun: Instant,
    /// Time at which a graceful close was first requested.
    closing_since: Option<Instant>,
    /// Time at which a graceful shutdown of the server began.
    stopping_since: Option<Instant>,
    /// Total bytes written when progress was last recorded, and the time of that record.
    progress: (u64, Instant),
    is_releasable: bool,
    /// Number of requests begun when the connection was last released.
    released_after: u64,
    /// Fires no later than the first limit to end. `poll_late` then sets the next time, so most
    /// polls of the connection do not reset the timer.
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    pub(super) fn new(activity: Rc<Activity>, limits: Limits) -> Self {
        let now = Instant::now();
        Self {
            activity,
            limits,
            begun: now,
            closing_since: None,
            stopping_since: None,
            progress: (0, now),
            is_releasable: false,
            released_after: 0,
            sleep: Box::pin(sleep_until(now + shortest(&limits))),
        }
    }

    /// Records that a graceful shutdown has begun, which closes the connection.
    pub(super) fn stop(&mut self) {
        let now = Instant::now();
        self.stopping_since = Some(now);
        self.closing_since.get_or_insert(now);
        self.sleep.as_mut().reset(now);
    }

    /// Records whether the connection has made progress, and whether it can be released. Must be
    /// called after each poll of the connection.
    pub(super) fn note(&mut self, is_releasable: bool) {
        let written = self.activity.written.get();
        if written - self.progress.0 >= MIN_PROGRESS_BYTES {
            self.progress = (written, Instant::now());
        }
        self.is_releasable = is_releasable;
        if let (Some(since), Some(limit)) = (self.releasable_since(), self.limits.release)
            && since + limit < self.sleep.deadline()
        {
            self.sleep.as_mut().reset(since + limit);
        }
    }

    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Late> {
        while self.sleep.as_mut().poll(cx).is_ready() {
            let (now, first) = (Instant::now(), self.first_to_end());
            let latest = now + shortest(&self.limits).min(self.stopping().unwrap_or(Duration::MAX));
            match first {
                Some((end, wait)) if end <= now => {
                    // Check again at the next poll, because other limits apply after this action.
                    self.sleep.as_mut().reset(now);
                    return Poll::Ready(self.late(wait, now));
                }
                Some((end, _)) => self.sleep.as_mut().reset(end.min(latest)),
                None => self.sleep.as_mut().reset(latest),
            }
        }
        Poll::Pending
    }

    fn stopping(&self) -> Option<Duration> {
        self.stopping_since.map(|_| MAX_SHUTDOWN_WAIT)
    }

    /// Returns the limit that ends first among those that apply now.
    fn first_to_end(&self) -> Option<(Instant, Wait)> {
        let Limits { header, idle, write, release, .. } = self.limits;
        let waits = [
            (self.awaits_first(), header, Wait::FirstRequest),
            (self.releasable_since(), release, Wait::ToBeReleased),
            (self.released_since(), header, Wait::NextHead),
            (self.idle_since(), idle, Wait::NextRequest),
            (self.unread_since(), write, Wait::PeerToRead),
            (self.ending_since(), self.stopping(), Wait::PeerToEnd),
        ];
        let ends =
            waits.into_iter().filter_map(|(since, limit, wait)| Some((since? + limit?, wait)));
        ends.min_by_key(|(end, _)| *end)
    }

    /// Returns when the connection began, if neither a request nor the whole HTTP/2 preface has
    /// arrived. The server writes to answer the preface. With `http2_only` it may write earlier, so
    /// the number of bytes read is checked too.
    fn awaits_first(&self) -> Option<Instant> {
        let has_preface = self.activity.written.get() > 0
            && self.activity.read.get() >= HTTP2_PREFACE.len() as u64;
        (!self.activity.has_begun() && !has_preface).then_some(self.begun)
    }

    /// Returns when the last request ended, if none is in flight and hyper holds buffers for the
    /// connection.
    fn releasable_since(&self) -> Option<Instant> {
        self.activity.idle_since().filter(|_| self.is_releasable)
    }

    /// Returns when the last request ended, if the connection was released and no request has begun
    /// since. hyper's header timeout does not run for a released connection.
    fn released_since(&self) -> Option<Instant> {
        let is_same = self.activity.has_begun() && self.activity.begun.get() == self.released_after;
        self.activity.idle_since().filter(|_| is_same && self.closing_since.is_none())
    }

    /// Returns when the connection became idle; `None` while a request is in flight. If the
    /// connection is closing, returns the time of the close or of the last progress if that is
    /// later: part of the last response may still be unsent.
    fn idle_since(&self) -> Option<Instant> {
        let since = self.activity.idle_since()?;
        Some(self.closing_since.map_or(since, |closing| since.max(closing).max(self.progress.1)))
    }

    /// Returns the time since which a response has been waiting for its peer to read earlier data.
    fn unread_since(&self) -> Option<Instant> {
        let since = self.activity.unpolled_since()?.max(self.progress.1);
        Some(self.closing_since.map_or(since, |closing| since.max(closing)))
    }

    /// Returns the time since which the server has been shutting down without a request in flight
    /// on this connection.
    fn ending_since(&self) -> Option<Instant> {
        let stopping = self.stopping_since?;
        Some(self.activity.idle_since()?.max(stopping).max(self.progress.1))
    }

    fn late(&mut self, wait: Wait, now: Instant) -> Late {
        let Limits { header, idle, write, .. } = self.limits;
        let (limit, text) = match wait {
            Wait::ToBeReleased => {
                (self.is_releasable, self.released_after) = (false, self.activity.begun.get());
                return Late::Release;
            }
            Wait::FirstRequest | Wait::NextHead => (header, "no request arrived"),
            Wait::PeerToEnd => (Some(MAX_SHUTDOWN_WAIT), "the peer did not close the connection"),
            _ if self.closing_since.is_none() => {
                self.closing_since = Some(now);
                return Late::Close;
            }
            Wait::NextRequest => (idle, "the peer did not close the idle connection"),
            Wait::PeerToRead => (write, "the peer did not read the response"),
        };
        let text = format!("{text} within {:?}", limit.unwrap_or_default());
        Late::Drop(io::Error::new(io::ErrorKind::TimedOut, text))
    }
}

/// Returns the shortest limit that may start to apply while the connection is not polled.
fn shortest(limits: &Limits) -> Duration {
    let limits = [limits.header, limits.idle, limits.write];
    limits.into_iter().flatten().min().unwrap_or(Duration::MAX)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connections: usize,
    pub(super) header: Option<Duration>,
    pub(super) idle: Option<Duration>,
    pub(super) request: Option<Duration>,
    pub(super) write: Option<Duration>,
    pub(super) release: Option<Duration>,
    pub(super) drain: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: usize::MAX,
            header: Some(Duration::from_secs(30)),
            idle: Some(Duration::from_secs(60)),
            request: None,
            write: Some(Duration::from_secs(60)),
            release: Some(Duration::from_secs(1)),
            drain: None,
        }
    }
}
