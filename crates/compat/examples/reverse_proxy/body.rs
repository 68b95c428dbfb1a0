//! Bodies that must make progress.

use super::forward::remove_hop_by_hop;
use annulus::time::{Sleep, sleep};
use annulus_compat::OnThread;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;

/// A body that is streamed through, or no body. It fails if no data arrives for too long while the
/// receiver waits.
#[derive(Default)]
pub(crate) struct Passed {
    body: Option<Incoming>,
    limit: Duration,
    waits: Option<OnThread<Sleep>>,
    /// For a body that needs the upstream's consent: completes once the upstream is ready for it,
    /// and fails if the upstream has responded without it.
    wanted: Option<oneshot::Receiver<()>>,
    /// Dropped with the body.
    _held: Option<Box<dyn Send>>,
}

impl Passed {
    pub(crate) fn new(body: Incoming, limit: Duration, held: impl Send + 'static) -> Self {
        let held: Box<dyn Send> = Box::new(held);
        Self { body: Some(body), limit, waits: None, wanted: None, _held: Some(held) }
    }

    /// Delays the body until the upstream is ready for it, so that the client does not send it
    /// earlier. After `patience` it is sent anyway, in case the upstream does not support `Expect`.
    pub(crate) fn once_wanted(self, wanted: oneshot::Receiver<()>, patience: Duration) -> Self {
        let waits = Some(OnThread::new(sleep(patience)));
        Self { waits, wanted: Some(wanted), ..self }
    }

    fn poll_wanted(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let Some(wanted) = &mut self.wanted else { return Poll::Ready(Ok(())) };
        let is_over = self.waits.as_mut().is_none_or(|waits| Pin::new(waits).poll(cx).is_ready());
        match Pin::new(wanted).poll(cx) {
            Poll::Pending if !is_over => return Poll::Pending,
            Poll::Ready(Err(_)) => {
                let text = "the upstream responded without the body".to_owned();
                return Poll::Ready(Err(Broken { status: StatusCode::BAD_GATEWAY, text }));
            }
            _ => (self.wanted, self.waits) = (None, None),
        }
        Poll::Ready(Ok(()))
    }
}

/// The error of a body that ended too early, with the status to return to the client that sent the
/// body.
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
        if let Err(error) = ready!(this.poll_wanted(cx)) {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            this.waits = None;
            return Poll::Ready(frame.map(|frame| match frame {
                Ok(mut frame) => {
                    if let Some(trailers) = frame.trailers_mut() {
                        remove_hop_by_hop(trailers);
                    }
                    Ok(frame)
                }
                Err(error) => {
                    Err(Broken { status: StatusCode::BAD_REQUEST, text: error.to_string() })
                }
            }));
        }
        let limit = this.limit;
        let waits = this.waits.get_or_insert_with(|| OnThread::new(sleep(limit)));
        Pin::new(waits).poll(cx).map(|()| {
            let text = format!("no body data arrived for {limit:?}");
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
