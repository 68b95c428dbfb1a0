//! Bodies that must make progress.

use annulus::time::{Sleep, sleep};
use annulus_compat::OnThread;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// A body that is passed on as it comes, or none. If nothing comes for too long while the other side waits for it, it is an error.
#[derive(Default)]
pub(crate) struct Passed {
    body: Option<Incoming>,
    limit: Duration,
    waits: Option<OnThread<Sleep>>,
    /// The drop of this sender signals the end of the body.
    _ended: Option<oneshot::Sender<()>>,
}

impl Passed {
    pub(crate) fn new(body: Incoming, limit: Duration, ended: Option<oneshot::Sender<()>>) -> Self {
        Self { body: Some(body), limit, waits: None, _ended: ended }
    }
}

/// A body that has ended too early, and the status for a client whose body it is.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) status: StatusCode,
    text: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Broken {}

impl Body for Passed {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            this.waits = None;
            return Poll::Ready(frame.map(|frame| {
                frame.map_err(|error| Broken {
                    status: StatusCode::BAD_REQUEST,
                    text: error.to_string(),
                })
            }));
        }
        let limit = this.limit;
        let waits = this.waits.get_or_insert_with(|| OnThread::new(sleep(limit)));
        Pin::new(waits).poll(cx).map(|()| {
            let text = format!("nothing of the body has come for {limit:?}");
            Some(Err(Broken { status: StatusCode::REQUEST_TIMEOUT, text }))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}
