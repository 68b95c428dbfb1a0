//! The server side: services whose calls have deadlines.

use super::deadline::{Deadline, allowed};
use crate::Listen;
#[cfg(doc)]
use crate::tower::Serve;
use crate::tower::{self, Plain};
use hyper::body::{Body, Frame, Incoming};
use hyper::{HeaderMap, Request, Response};
use hyper_util::service::TowerToHyperService;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::Status;
use tower_service::Service;

/// Serves a tonic service, or several combined in `tonic::service::Routes`, over HTTP/2 with
/// [`Deadlines`]. Awaiting the result runs the server, which has the same settings as
/// [`tower::serve`]. tonic's limits on the size of messages apply (by default 4 MB for a received
/// message), and each service can change them.
///
/// ```standalone_crate
/// use annulus::net::TcpListener;
/// use annulus_compat::tonic::serve;
/// use std::time::Duration;
/// use tonic::service::Routes;
/// # mod greeter { include!("../../examples/grpc/greeter.rs"); }
/// use greeter::Greeter;
///
/// annulus::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     serve(listener, Routes::new(Greeter))
///         .idle_timeout(Duration::from_secs(300))
///         .configure_http2(|http| {
///             http.max_concurrent_streams(200).keep_alive_interval(Duration::from_secs(60))
///         })
///         .with_graceful_shutdown(annulus::time::sleep(Duration::from_millis(1)))
///         .await
/// })
/// # .unwrap();
/// ```
pub fn serve<L, S, B>(
    listener: L,
    service: S,
) -> Plain<L, impl FnMut(&L::Peer) -> TowerToHyperService<Deadlines<S>>>
where
    L: Listen,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
{
    tower::serve(listener, Deadlines::new(service)).http2_only()
}

/// A service whose calls end at the deadline given by the `grpc-timeout` header. The call's future
/// or its response body is then dropped, and the client gets the status `DEADLINE_EXCEEDED`. An
/// invalid header gets `INVALID_ARGUMENT`.
///
/// A response body checks its deadline when it is polled. While the client grants no HTTP/2 window,
/// hyper does not poll the body. It then ends when the client grants a window, or when
/// [`Serve::write_timeout`] ends the connection.
///
/// [`serve`] wraps its service in `Deadlines`. With [`tower::serve`], wrap the service yourself:
///
/// ```standalone_crate
/// use annulus_compat::tonic::Deadlines;
/// use std::time::Duration;
/// # mod greeter { include!("../../examples/grpc/greeter.rs"); }
/// # use greeter::Greeter;
///
/// // No call takes longer than a minute, whatever the client allows.
/// let service = Deadlines::new(Greeter).limit(Duration::from_secs(60));
/// # drop(service);
/// ```
#[derive(Clone, Debug)]
pub struct Deadlines<S> {
    service: S,
    limit: Option<Duration>,
}

impl<S> Deadlines<S> {
    /// Applies only the deadlines that clients set.
    pub fn new(service: S) -> Self {
        Self { service, limit: None }
    }

    /// Sets the maximum time of a call, even if the client sets no deadline or a later one.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }
}

impl<S, R, B> Service<Request<R>> for Deadlines<S>
where
    S: Service<Request<R>, Response = Response<B>>,
{
    type Response = Response<TimedBody<B>>;
    type Error = S::Error;
    type Future = Timed<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<R>) -> Timed<S::Future> {
        match allowed(request.headers()) {
            Err(status) => Timed { call: None, refused: Some(status), deadline: None },
            Ok(allowed) => {
                let limit = allowed.into_iter().chain(self.limit).min();
                let call = Some(self.service.call(request));
                Timed { call, refused: None, deadline: limit.map(Deadline::after) }
            }
        }
    }
}

pin_project! {
    /// The future of a call to [`Deadlines`]. It completes with the head of the response.
    pub struct Timed<F> {
        #[pin]
        call: Option<F>,
        refused: Option<Status>,
        deadline: Option<Deadline>,
    }
}

impl<F, B, E> Future for Timed<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<TimedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(call) = this.call.as_mut().as_pin_mut() else {
            let refused = this.refused.take().expect("polled after completion");
            return Poll::Ready(Ok(only_a_status(refused)));
        };
        if let Poll::Ready(response) = call.poll(cx) {
            let deadline = this.deadline.take();
            let body = |body| TimedBody { body: Some(body), deadline };
            return Poll::Ready(response.map(|response| response.map(body)));
        }
        let over = this.deadline.as_mut().map(|deadline| deadline.poll_over(cx));
        let Some(Poll::Ready(status)) = over else { return Poll::Pending };
        this.call.set(None);
        Poll::Ready(Ok(only_a_status(status)))
    }
}

fn only_a_status<B>(status: Status) -> Response<TimedBody<B>> {
    status.into_http::<()>().map(|()| TimedBody { body: None, deadline: None })
}

pin_project! {
    /// A response body of [`Deadlines`]. At the deadline it ends with the status in its trailers.
    pub struct TimedBody<B> {
        #[pin]
        body: Option<B>,
        deadline: Option<Deadline>,
    }
}

impl<B: Body> Body for TimedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(body) = this.body.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let over = this.deadline.as_mut().map(|deadline| deadline.poll_over(cx));
        let Some(Poll::Ready(status)) = over else { return body.poll_frame(cx) };
        this.body.set(None);
        Poll::Ready(Some(Ok(Frame::trailers(trailers(&status)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    status.add_header(&mut trailers).expect("the status's message is not escaped");
    trailers
}
