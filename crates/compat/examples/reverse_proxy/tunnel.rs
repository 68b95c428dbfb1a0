//! Upgraded connections.

use annulus::io::{FromTokio, copy_bidirectional};
use annulus::time::timeout;
use futures_util::future::try_join;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::time::Duration;

/// Copies bytes in both directions until both have ended or have been idle for too long. `_held` is
/// dropped at the end.
pub(crate) async fn tunnel(
    client: OnUpgrade,
    server: OnUpgrade,
    idle: Duration,
    _held: impl Sized,
) {
    let Ok(Ok((client, server))) = timeout(idle, try_join(client, server)).await else {
        return;
    };
    let (mut client, mut server) = (stream(client), stream(server));
    // An error on one side ends both, and there is no message to report it in.
    _ = copy_bidirectional(&mut client, &mut server).idle_timeout(idle).await;
}

fn stream(upgraded: Upgraded) -> FromTokio<TokioIo<Upgraded>> {
    FromTokio::new(TokioIo::new(upgraded))
}
