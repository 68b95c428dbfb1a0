//! Connections that were upgraded.

use annulus::io::{FromTokio, copy_bidirectional};
use annulus::sync::Permit;
use annulus::time::{Instant, sleep_until, timeout};
use futures_util::future::{select, try_join};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::cell::Cell;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Passes bytes on in both directions, until both have ended or nothing has come from either for too long. The permit is held until then.
pub(crate) async fn tunnel(client: OnUpgrade, upstream: OnUpgrade, idle: Duration, _held: Permit) {
    let Ok(Ok((client, upstream))) = timeout(idle, try_join(client, upstream)).await else {
        return;
    };
    let last = Rc::new(Cell::new(Instant::now()));
    let (mut client, mut upstream) = (stream(client, &last), stream(upstream, &last));
    // An error of one side ends both, and there is no message in which to report it.
    let copied = pin!(copy_bidirectional(&mut client, &mut upstream));
    let is_idle = pin!(async {
        while last.get().elapsed() < idle {
            sleep_until(last.get() + idle).await;
        }
    });
    drop(select(copied, is_idle).await);
}

fn stream(upgraded: Upgraded, last: &Rc<Cell<Instant>>) -> FromTokio<Observed> {
    FromTokio::new(Observed { stream: TokioIo::new(upgraded), last: last.clone() })
}

/// A stream, and when bytes came from it or from the other one.
struct Observed {
    stream: TokioIo<Upgraded>,
    last: Rc<Cell<Instant>>,
}

impl AsyncRead for Observed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() {
            self.last.set(Instant::now());
        }
        read
    }
}

impl AsyncWrite for Observed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
