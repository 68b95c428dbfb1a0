//! Time limits for I/O futures.

use std::future::Future;
use std::io;
use std::time::Duration;

/// Returns the result of a future, or a `TimedOut` error with `text` if it exceeds the limit.
pub(crate) async fn within<T>(
    limit: Option<Duration>,
    future: impl Future<Output = io::Result<T>>,
    text: impl FnOnce(Duration) -> String,
) -> io::Result<T> {
    let Some(limit) = limit else { return future.await };
    let ended = annulus::time::timeout(limit, future).await;
    ended.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, text(limit))))
}
