//! The client side: the channel over which tonic clients send calls.

use super::deadline::{Deadline, TIMEOUT_HEADER, allowed, header};
use super::received::{ReceivedBody, of_transport};
use crate::hyper::{Executor, Timer};
use crate::hyper_util::Connector;
use hyper::header::HeaderName;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::legacy::{Builder, Client, ResponseFuture};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

/// Connect timeout of the default connector.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// A channel for tonic clients, on annulus alone. All calls of a channel and its clones share one
/// HTTP/2 connection to a server. The first call opens the connection. Once it has ended, the next
/// call opens another. Calls fail with the status `UNAVAILABLE` if the server cannot be reached,
/// shuts down before it begins them, or the connection breaks. They are not retried, since the
/// server may have started them.
///
/// Dropping a call's future or its response cancels the call, also on the server.
///
/// ```
/// use annulus_compat::hyper_util::Connector;
/// use annulus_compat::tonic::Channel;
/// use std::time::Duration;
///
/// # annulus::run(async {
/// let channel = Channel::new("http://127.0.0.1:50051".parse()?)?.timeout(Duration::from_secs(10));
/// // The same with custom settings.
/// let connector = Connector::new().timeout(Duration::from_secs(1));
/// let watched = Channel::with("http://127.0.0.1:50051".parse()?, connector, |http| {
///     http.http2_keep_alive_interval(Duration::from_secs(30)).http2_keep_alive_while_idle(true);
/// })?;
/// # drop((channel, watched));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Channel<C = Connector> {
    client: Client<C, Body>,
    origin: Uri,
    timeout: Option<Duration>,
}

impl Channel {
    /// Creates a channel to `http://host:port`. The first call connects, within 20 seconds.
    ///
    /// # Errors
    /// Fails with `InvalidInput` for a URI without a scheme or a host, with a path or a query, or
    /// with `https`, which needs a TLS connector.
    pub fn new(origin: Uri) -> io::Result<Self> {
        if origin.scheme_str() == Some("https") {
            let text = format!("{origin}: https needs Channel::with and an HttpsConnector");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Self::with(origin, Connector::new().timeout(CONNECT_TIMEOUT), |_| ())
    }
}

impl<C: Connect + Clone> Channel<C> {
    /// Like [`new`](Channel::new), but with HTTP/2 settings and a connector, which may use TLS or a
    /// Unix socket.
    ///
    /// # Errors
    /// Fails with `InvalidInput` for a URI without a scheme or a host, or with a path or a query.
    pub fn with(
        origin: Uri,
        connector: C,
        configure: impl FnOnce(&mut Builder),
    ) -> io::Result<Self> {
        let is_origin = origin.scheme().is_some() && matches!(origin.path(), "" | "/");
        if !is_origin || origin.query().is_some() {
            let text = format!("{origin}: a channel needs scheme://host:port without a path");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut client = Client::builder(Executor);
        client.timer(Timer::new()).pool_timer(Timer::new()).pool_idle_timeout(None);
        configure(&mut client);
        let client = client.http2_only(true).build(connector);
        Ok(Self { client, origin, timeout: None })
    }

    /// Sets the timeout of calls that set no deadline of their own. It runs from the call to the
    /// end of the response, and is sent to the server as `grpc-timeout`. There is no limit by
    /// default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl<C> Service<Request<Body>> for Channel<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    type Response = Response<ReceivedBody>;
    type Error = Status;
    type Future = Calling;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Calling {
        *request.uri_mut() = at_origin(&self.origin, request.uri());
        let set = match allowed(request.headers()) {
            Err(status) => return Calling { state: State::Refused(Some(status)), deadline: None },
            Ok(set) => set,
        };
        if let (None, Some(timeout)) = (set, self.timeout) {
            request.headers_mut().insert(HeaderName::from_static(TIMEOUT_HEADER), header(timeout));
        }
        let deadline = set.or(self.timeout).map(Deadline::after);
        Calling { state: State::Sent(self.client.request(request)), deadline }
    }
}

/// Returns a call's URI at the channel's origin. The generated client may know only the path.
fn at_origin(origin: &Uri, uri: &Uri) -> Uri {
    let mut parts = origin.clone().into_parts();
    parts.path_and_query = uri.path_and_query().cloned();
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// The future of a call over a [`Channel`]. It completes with the head of the response. Dropping it
/// cancels the call.
#[derive(Debug)]
pub struct Calling {
    state: State,
    deadline: Option<Deadline>,
}

#[derive(Debug)]
enum State {
    Refused(Option<Status>),
    Sent(ResponseFuture),
}

impl Future for Calling {
    type Output = Result<Response<ReceivedBody>, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let response = match &mut this.state {
            State::Sent(response) => response,
            State::Refused(status) => {
                return Poll::Ready(Err(status.take().expect("polled after completion")));
            }
        };
        if let Poll::Ready(response) = Pin::new(response).poll(cx) {
            let deadline = this.deadline.take();
            return Poll::Ready(match response {
                Ok(response) => Ok(response.map(|body| ReceivedBody::new(body, deadline))),
                Err(error) => Err(of_transport(&error)),
            });
        }
        match this.deadline.as_mut().map(|deadline| deadline.poll_over(cx)) {
            Some(Poll::Ready(status)) => Poll::Ready(Err(status)),
            _ => Poll::Pending,
        }
    }
}
