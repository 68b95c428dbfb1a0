//! A service whose requests are counted, and limited in time.

use super::activity::{self, Activity};
use super::error::Report;
use super::panics;
use annulus::time::{Sleep, sleep};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::Service;
use hyper::{Request, Response, StatusCode, Version};
use pin_project_lite::pin_project;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

pub(super) struct Counted<S> {
    service: S,
    activity: Rc<Activity>,
    limit: Option<Duration>,
    report: Report,
}

impl<S> Counted<S> {
    pub(super) fn new(
        service: S,
        activity: Rc<Activity>,
        limit: Option<Duration>,
        report: Report,
    ) -> Self {
        Self { service, activity, limit, report }
    }
}

impl<S, B> Service<Request<Incoming>> for Counted<S>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
{
    type Response = Response<CountedBody<B>>;
    type Error = S::Error;
    type Future = CountedFuture<S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        CountedFuture {
            version: request.version(),
            request: Some(self.activity.begin()),
            limit: self.limit.map(sleep),
            report: self.report.clone(),
            future: self.service.call(request),
        }
    }
}

pin_project! {
    /// Until the response's head.
    pub(super) struct CountedFuture<F> {
        version: Version,
        request: Option<activity::Request>,
        #[pin]
        limit: Option<Sleep>,
        report: Report,
        #[pin]
        future: F,
    }
}

impl<F, B, E> Future for CountedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<CountedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = match panics::catch(|| this.future.poll(cx)) {
            Ok(polled) => polled,
            Err(panic) => {
                // In HTTP/1 this is the connection's own task, which reports it.
                if *this.version == Version::HTTP_2 {
                    (this.report)(panics::error(&panic));
                }
                resume_unwind(panic)
            }
        };
        let Poll::Ready(response) = polled else {
            let limit = this.limit.as_pin_mut();
            ready!(limit.map_or(Poll::Pending, |limit| limit.poll(cx)));
            return Poll::Ready(Ok(too_late(*this.version, this.request.take())));
        };
        let request = this.request.take();
        let body = |body| CountedBody { body: Some(body), request };
        Poll::Ready(response.map(|response| response.map(body)))
    }
}

/// The service had its time. Of the request's body nothing more is read, so in HTTP/1 the connection ends.
fn too_late<B>(version: Version, request: Option<activity::Request>) -> Response<CountedBody<B>> {
    let mut response = Response::new(CountedBody { body: None, request });
    *response.status_mut() = StatusCode::REQUEST_TIMEOUT;
    if version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

pin_project! {
    /// A body of a response, empty if the request has timed out.
    pub(super) struct CountedBody<B> {
        #[pin]
        body: Option<B>,
        request: Option<activity::Request>,
    }
}

impl<B: Body> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(body) = this.body.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        if let Some(request) = this.request {
            request.note_poll();
        }
        let polled = body.poll_frame(cx);
        if let (Poll::Ready(Some(Ok(_))), Some(request)) = (&polled, this.request) {
            request.note_frame();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}
