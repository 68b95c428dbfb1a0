//! The time that something may take.

use std::future::Future;
use std::io;
use std::time::Duration;

/// The result of a future, or `TimedOut`, with a text, if it has not ended by then.
pub(crate) async fn within<T>(
    limit: Option<Duration>,
    future: impl Future<Output = io::Result<T>>,
    text: impl FnOnce(Duration) -> String,
) -> io::Result<T> {
    let Some(limit) = limit else { return future.await };
    let ended = annulus::time::timeout(limit, future).await;
    ended.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, text(limit))))
}
