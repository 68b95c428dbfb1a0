//! A time limit for peers that stop reading.

use crate::OnThread;
use annulus::time::{Sleep, sleep};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct WriteLimit {
    limit: Option<Duration>,
    /// Runs while a write waits.
    waits: Option<OnThread<Sleep>>,
}

impl WriteLimit {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self { limit, waits: None }
    }

    /// Returns the result of a write call, or `TimedOut` if it has waited for too long.
    pub(crate) fn within<T>(
        &mut self,
        cx: &mut Context<'_>,
        called: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(limit) = self.limit.filter(|_| called.is_pending()) else {
            self.waits = None;
            return called;
        };
        let waits = self.waits.get_or_insert_with(|| OnThread::new(sleep(limit)));
        Pin::new(waits).poll(cx).map(|()| Err(no_write_accepted(limit)))
    }
}

fn no_write_accepted(limit: Duration) -> io::Error {
    let text =
        format!("no write was accepted for {limit:?}: the peer reads too slowly, or not at all");
    io::Error::new(io::ErrorKind::TimedOut, text)
}
