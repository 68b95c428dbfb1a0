//! A timeout for the requests of a route.

use crate::OnThread;
use annulus::time::{Sleep, sleep};
use hyper::{Request, Response, StatusCode};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// Responds to a request with a status, 408 by default, if the service does not respond in time. It
/// is like the layer of this name in `tower-http`, but uses annulus timers instead of tokio's.
/// [`Serve::request_timeout`](super::Serve::request_timeout) does the same for all requests of a
/// server.
///
/// ```
/// use annulus_compat::tower::TimeoutLayer;
/// use axum::{Router, routing::get};
/// use std::time::Duration;
///
/// let router: Router = Router::new()
///     .route("/", get(async || "hello"))
///     .layer(TimeoutLayer::new(Duration::from_secs(10)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TimeoutLayer {
    status: StatusCode,
    limit: Duration,
}

impl TimeoutLayer {
    /// Creates a layer that responds with 408 after this time.
    pub fn new(limit: Duration) -> Self {
        Self::with_status_code(StatusCode::REQUEST_TIMEOUT, limit)
    }

    /// Creates a layer that responds with this status after this time.
    pub fn with_status_code(status: StatusCode, limit: Duration) -> Self {
        Self { status, limit }
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Timeout<S> {
        Timeout { inner, layer: *self }
    }
}

/// A service with a timeout for each request: see [`TimeoutLayer`].
#[derive(Clone, Copy, Debug)]
pub struct Timeout<S> {
    inner: S,
    layer: TimeoutLayer,
}

impl<S, A, B> Service<Request<A>> for Timeout<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Default,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = TimeoutFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let TimeoutLayer { status, limit } = self.layer;
        TimeoutFuture {
            response: self.inner.call(request),
            late: OnThread::new(sleep(limit)),
            status,
        }
    }
}

pin_project! {
    /// The future of a [`Timeout`]. It completes with the service's response, or with the layer's
    /// status after the timeout.
    #[derive(Debug)]
    pub struct TimeoutFuture<F> {
        #[pin]
        response: F,
        late: OnThread<Sleep>,
        status: StatusCode,
    }
}

impl<F, B, E> Future for TimeoutFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Default,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(response) = this.response.poll(cx) {
            return Poll::Ready(response);
        }
        ready!(Pin::new(this.late).poll(cx));
        let mut response = Response::new(B::default());
        *response.status_mut() = *this.status;
        Poll::Ready(Ok(response))
    }
}
