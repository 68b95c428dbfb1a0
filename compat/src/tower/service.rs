//! A service whose requests are counted, and limited in time.

use super::in_flight::{self, InFlight};
use annulus::time::{Sleep, sleep};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::Service;
use hyper::{Request, Response, StatusCode, Version};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

pub(super) struct Counted<S> {
    service: S,
    in_flight: Rc<InFlight>,
    limit: Option<Duration>,
}

impl<S> Counted<S> {
    pub(super) fn new(service: S, in_flight: Rc<InFlight>, limit: Option<Duration>) -> Self {
        Self { service, in_flight, limit }
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
            counted: Some(self.in_flight.begin()),
            limit: self.limit.map(sleep),
            future: self.service.call(request),
        }
    }
}

pin_project! {
    /// Until the response's head.
    pub(super) struct CountedFuture<F> {
        version: Version,
        counted: Option<in_flight::Request>,
        #[pin]
        limit: Option<Sleep>,
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
        let Poll::Ready(response) = this.future.poll(cx) else {
            let limit = this.limit.as_pin_mut();
            ready!(limit.map_or(Poll::Pending, |limit| limit.poll(cx)));
            return Poll::Ready(Ok(too_late(*this.version, this.counted.take())));
        };
        let counted = this.counted.take();
        let body = |body| CountedBody { body: Some(body), counted };
        Poll::Ready(response.map(|response| response.map(body)))
    }
}

/// The service had its time. Of the request's body nothing more is read, so in HTTP/1 the connection ends.
fn too_late<B>(version: Version, counted: Option<in_flight::Request>) -> Response<CountedBody<B>> {
    let mut response = Response::new(CountedBody { body: None, counted });
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
        counted: Option<in_flight::Request>,
    }
}

impl<B: Body> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().body.as_pin_mut() {
            Some(body) => body.poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}
