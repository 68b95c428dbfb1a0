//! Connections that were upgraded.

use annulus::io::{FromTokio, copy_bidirectional};
use annulus::time::timeout;
use futures_util::future::try_join;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// Passes bytes on in both directions, until both have ended or nothing has gone for too long. The permit is held until then.
pub(crate) async fn tunnel(
    client: OnUpgrade,
    upstream: OnUpgrade,
    idle: Duration,
    _held: OwnedSemaphorePermit,
) {
    let Ok(Ok((client, upstream))) = timeout(idle, try_join(client, upstream)).await else {
        return;
    };
    let (mut client, mut upstream) = (stream(client), stream(upstream));
    // An error of one side ends both, and there is no message in which to report it.
    _ = copy_bidirectional(&mut client, &mut upstream).idle_timeout(idle).await;
}

fn stream(upgraded: Upgraded) -> FromTokio<TokioIo<Upgraded>> {
    FromTokio::new(TokioIo::new(upgraded))
}
