//! A service that counts requests, limits their time, and reports panics and errors.

use super::activity::{self, Activity};
use super::error::{Report, text_of};
use super::panics;
use super::sessions::Sessions;
use crate::hyper::{BoxError, HttpService};
use annulus::time::{Sleep, sleep};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::http::Extensions;
use hyper::service::Service;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Version};
use pin_project_lite::pin_project;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

pub(super) struct Counted<S> {
    pub(super) service: S,
    /// Extensions for each request: the results of the handshake.
    pub(super) known: Extensions,
    pub(super) activity: Rc<Activity>,
    pub(super) limit: Option<Duration>,
    pub(super) sessions: Sessions,
    pub(super) report: Report,
}

impl<S: HttpService> Service<Request<Incoming>> for Counted<S> {
    type Response = Response<CountedBody<S::Body>>;
    type Error = BoxError;
    type Future = CountedFuture<S::Future>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let has_body = !request.body().is_end_stream();
        let (version, counted) = (request.version(), self.activity.begin(has_body));
        if !self.known.is_empty() {
            request.extensions_mut().extend(self.known.clone());
        }
        if request.extensions().get::<OnUpgrade>().is_some() {
            let (sessions, session) = self.sessions.of_request();
            request.extensions_mut().insert(sessions);
            self.activity.session.replace(Some(session));
        }
        let called = panics::catch(|| self.service.call(request));
        CountedFuture {
            version,
            request: Some(counted),
            limit: self.limit.map(sleep),
            report: self.report.clone(),
            future: called.inspect_err(|panic| (self.report)(panics::error(panic))).ok(),
        }
    }
}

pin_project! {
    /// A request whose response has no head yet.
    pub(super) struct CountedFuture<F> {
        version: Version,
        request: Option<activity::Request>,
        #[pin]
        limit: Option<Sleep>,
        report: Report,
        // `None` after a panic.
        #[pin]
        future: Option<F>,
    }
}

impl<F, B, E> Future for CountedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response<CountedBody<B>>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let version = *this.version;
        // In HTTP/1 the error ends the connection, which reports it.
        let report = (version == Version::HTTP_2).then_some(&*this.report);
        let polled =
            this.future.as_mut().as_pin_mut().map(|future| panics::catch(|| future.poll(cx)));
        let status = match polled {
            Some(Ok(Poll::Ready(Ok(response)))) => {
                let (request, report) = (this.request.take(), report.cloned());
                let body = |body| CountedBody { body: Some(body), request, report };
                return Poll::Ready(Ok(response.map(body)));
            }
            Some(Ok(Poll::Ready(Err(error)))) => {
                let error = error.into();
                report.inspect(|report| report(text_of(&*error)));
                return Poll::Ready(Err(error));
            }
            Some(Ok(Poll::Pending)) => {
                let limit = this.limit.as_pin_mut();
                ready!(limit.map_or(Poll::Pending, |limit| limit.poll(cx)));
                StatusCode::REQUEST_TIMEOUT
            }
            panicked => {
                if let Some(Err(panic)) = panicked {
                    (this.report)(panics::error(&panic));
                }
                this.future.set(None);
                // gRPC maps a stream reset to an internal error, but not an HTTP status.
                if version == Version::HTTP_2 {
                    return Poll::Ready(Err("the service panicked".into()));
                }
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        this.future.set(None);
        Poll::Ready(Ok(without_service(status, version, this.request.take())))
    }
}

/// Returns the response after the service timed out or panicked. The rest of the request body is
/// not read, so in HTTP/1 the connection is closed.
fn without_service<B>(
    status: StatusCode,
    version: Version,
    request: Option<activity::Request>,
) -> Response<CountedBody<B>> {
    let mut response = Response::new(CountedBody { body: None, request, report: None });
    *response.status_mut() = status;
    if version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

pin_project! {
    /// A response body; empty if the service returned none.
    pub(super) struct CountedBody<B> {
        #[pin]
        body: Option<B>,
        request: Option<activity::Request>,
        // Set only in HTTP/2, where the body is polled by the stream's task and an error ends only
        // the stream.
        report: Option<Report>,
    }
}

impl<B: Body<Error: Into<BoxError>>> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        let Some(body) = this.body.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        if let Some(request) = this.request {
            request.note_poll();
        }
        let polled = match panics::catch(|| body.poll_frame(cx)) {
            Ok(polled) => polled.map_err(Into::into),
            Err(panic) if this.report.is_some() => Poll::Ready(Some(Err(panics::error(&panic)))),
            Err(panic) => resume_unwind(panic),
        };
        match (&polled, this.request, this.report) {
            (Poll::Ready(Some(Ok(_))), Some(request), _) => request.note_frame(),
            (Poll::Ready(Some(Err(error))), _, Some(report)) => {
                report(text_of(&**error));
                this.body.set(None);
            }
            _ => {}
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
