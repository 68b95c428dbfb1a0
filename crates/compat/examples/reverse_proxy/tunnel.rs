//! Connections that were upgraded.

use annulus::io::{FromTokio, copy_bidirectional};
use annulus::time::timeout;
use futures_util::future::try_join;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::time::Duration;

/// Passes bytes on in both directions, until both have ended or nothing has gone for too long. `_held` is dropped at the end.
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
    // An error of one side ends both, and there is no message in which to report it.
    _ = copy_bidirectional(&mut client, &mut server).idle_timeout(idle).await;
}

fn stream(upgraded: Upgraded) -> FromTokio<TokioIo<Upgraded>> {
    FromTokio::new(TokioIo::new(upgraded))
}
