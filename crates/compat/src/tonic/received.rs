//! The response bodies that a channel receives, and the statuses of failed calls.

use super::deadline::Deadline;
use hyper::body::{Body, Bytes, Frame, Incoming};
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::{Code, Status};

/// A response body received over a [`Channel`](super::Channel). It returns an error at the call's
/// deadline. Dropping it cancels the call.
#[derive(Debug)]
pub struct ReceivedBody {
    body: Option<Incoming>,
    deadline: Option<Deadline>,
}

impl ReceivedBody {
    pub(super) fn new(body: Incoming, deadline: Option<Deadline>) -> Self {
        Self { body: Some(body), deadline }
    }
}

impl Body for ReceivedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        // Poll the body first, so that a frame that has already arrived is passed on.
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| of_transport(&error))));
        }
        match this.deadline.as_mut().map(|deadline| deadline.poll_over(cx)) {
            Some(Poll::Ready(status)) => {
                this.body = None;
                Poll::Ready(Some(Err(status)))
            }
            _ => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }
}

/// Returns the status for a call whose connection or stream failed, with the whole chain of causes
/// as its text.
pub(super) fn of_transport(error: &(dyn Error + 'static)) -> Status {
    let mut text = error.to_string();
    let mut code = Code::Unavailable;
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        if let Some(reason) = error.downcast_ref().and_then(failure) {
            code = of_reset(reason);
        }
        cause = error.source();
    }
    Status::new(code, text)
}

/// Returns the reason with which the call has failed. `None` if the server shuts down and has not
/// begun the call: then only the connection has ended.
fn failure(error: &h2::Error) -> Option<h2::Reason> {
    let is_shutdown = error.is_go_away() && error.is_remote();
    error.reason().filter(|reason| !is_shutdown || *reason != h2::Reason::NO_ERROR)
}

fn of_reset(reason: h2::Reason) -> Code {
    match reason {
        h2::Reason::REFUSED_STREAM => Code::Unavailable,
        h2::Reason::CANCEL => Code::Cancelled,
        h2::Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        h2::Reason::INADEQUATE_SECURITY => Code::PermissionDenied,
        _ => Code::Internal,
    }
}
