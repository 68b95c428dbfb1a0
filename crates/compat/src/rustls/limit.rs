//! The time that a handshake may take.

use std::future::Future;
use std::io;
use std::time::Duration;

/// Unless another limit is set.
pub(super) const DEFAULT: Option<Duration> = Some(Duration::from_secs(10));

/// The result of a handshake, or `TimedOut` if it has not ended by then.
pub(super) async fn within<T>(
    limit: Option<Duration>,
    handshake: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let Some(limit) = limit else { return handshake.await };
    annulus::time::timeout(limit, handshake).await.unwrap_or_else(|_| {
        let text = format!("the TLS handshake has not ended within its limit of {limit:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    })
}
