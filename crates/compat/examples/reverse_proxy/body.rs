//! Bodies that must make progress.

use annulus::time::{Sleep, sleep};
use annulus_compat::OnThread;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// A body that is passed on as it comes. If nothing comes for too long while the other side waits for it, it is an error.
pub(crate) struct Passed {
    body: Incoming,
    limit: Duration,
    waits: Option<OnThread<Sleep>>,
    /// Its drop signals the end of the body.
    _ended: Option<oneshot::Sender<()>>,
}

impl Passed {
    pub(crate) fn new(body: Incoming, limit: Duration, ended: Option<oneshot::Sender<()>>) -> Self {
        Self { body, limit, waits: None, _ended: ended }
    }
}

impl Body for Passed {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.waits = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let limit = this.limit;
        let waits = this.waits.get_or_insert_with(|| OnThread::new(sleep(limit)));
        Pin::new(waits).poll(cx).map(|()| {
            let text = format!("nothing of the body has come for {limit:?}");
            Some(Err(io::Error::new(io::ErrorKind::TimedOut, text).into()))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
