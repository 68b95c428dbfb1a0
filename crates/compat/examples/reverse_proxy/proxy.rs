//! The way of a request to the upstream, and of its response back.

use super::body::{Broken, Passed};
use super::forward::{
    add_forwarded_for, add_via, host_of, join_cookies, remove_hop_by_hop, set_upgrade,
};
use super::tunnel::tunnel;
use annulus::time::sleep;
use annulus_compat::hyper::{Executor, Timer};
use annulus_compat::hyper_util::Connector;
use bytes::Bytes;
use futures_util::future::{Either, select};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{HOST, UPGRADE};
use hyper::service::{Service, service_fn};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::client::legacy::{Client, Error};
use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

type Answer = Response<http_body_util::Either<Passed, Full<Bytes>>>;

/// Passes requests on to one upstream.
pub(crate) struct Proxy {
    upstream: Uri,
    client: Client<Connector, Passed>,
    /// Takes a new connection for each request.
    unpooled: Client<Connector, Passed>,
    limits: Limits,
    /// One permit for each tunnel.
    permits: Arc<Semaphore>,
}

/// A request for the upstream.
struct Rewritten {
    request: Request<Passed>,
    /// The client's upgrade, if it asks for one.
    upgrade: Option<OnUpgrade>,
    /// Ready when the body was sent.
    sent: oneshot::Receiver<()>,
}

/// How long the upstream may take, and how many connections may be upgraded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// To accept a connection.
    pub(crate) connect: Duration,
    /// From the end of a request to the head of its response.
    pub(crate) response: Duration,
    /// For each part of a body, in either direction.
    pub(crate) progress: Duration,
    /// Without a request, until a connection is closed.
    pub(crate) idle: Duration,
    /// Without a byte in either direction, until an upgraded connection is closed.
    pub(crate) tunnel_idle: Duration,
    /// Most upgraded connections at a time.
    pub(crate) tunnels: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connect: seconds(5),
            response: seconds(30),
            progress: seconds(60),
            idle: seconds(60),
            tunnel_idle: seconds(600),
            tunnels: 1_000,
        }
    }
}

impl Proxy {
    pub(crate) fn new(upstream: Uri) -> io::Result<Self> {
        Self::with(upstream, Limits::default())
    }

    pub(crate) fn with(upstream: Uri, limits: Limits) -> io::Result<Self> {
        if upstream.scheme_str() != Some("http") || upstream.path() != "/" {
            let text = format!("{upstream}: an upstream is http://host:port, without a path");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let connector = Connector::new().timeout(limits.connect).write_timeout(limits.progress);
        let mut http = Client::builder(Executor);
        http.timer(Timer::new()).pool_timer(Timer::new()).pool_idle_timeout(limits.idle);
        let client = http.build(connector.clone());
        let unpooled = http.pool_max_idle_per_host(0).build(connector);
        let permits = Arc::new(Semaphore::new(limits.tunnels));
        Ok(Self { upstream, client, unpooled, limits, permits })
    }

    /// The service of a connection from this peer.
    pub(crate) fn service(
        proxy: &Rc<Self>,
        peer: SocketAddr,
    ) -> impl Service<Request<Incoming>, Response = Answer, Error = Infallible, Future: 'static> + use<>
    {
        let proxy = proxy.clone();
        service_fn(move |request| {
            let proxy = proxy.clone();
            async move { Ok(proxy.answer(request, peer).await) }
        })
    }

    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Answer {
        if request.method() == Method::CONNECT {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "this proxy makes no tunnels");
        }
        let Rewritten { request, upgrade, sent } = match self.rewritten(request, peer) {
            Ok(rewritten) => rewritten,
            Err(text) => return refuse(StatusCode::BAD_REQUEST, text),
        };
        let permit = upgrade.is_some().then(|| self.permits.clone().try_acquire_owned());
        let Ok(permit) = permit.transpose() else {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many upgraded connections");
        };
        let response = pin!(self.ask(request));
        let too_late = pin!(async {
            _ = sent.await;
            sleep(self.limits.response).await;
        });
        match select(response, too_late).await {
            Either::Left((Ok(response), _)) => self.passed_back(response, upgrade.zip(permit)),
            Either::Left((Err(error), _)) => {
                // The error's text has addresses, which are not the client's business.
                eprintln!("{peer}: {}", text_of(&error));
                refuse(status_of(&error), "the upstream has failed")
            }
            Either::Right(_) => {
                let text = format!("no answer of the upstream within {:?}", self.limits.response);
                refuse(StatusCode::GATEWAY_TIMEOUT, &text)
            }
        }
    }

    /// The response of the upstream. It may have closed a connection of the pool just now: then what is safe to ask twice is asked again.
    async fn ask(&self, request: Request<Passed>) -> Result<Response<Incoming>, Error> {
        let is_repeatable = is_repeatable(&request);
        let (head, body) = request.into_parts();
        let again = is_repeatable.then(|| Request::from_parts(head.clone(), Passed::default()));
        match (self.client.request(Request::from_parts(head, body)).await, again) {
            (Err(error), Some(again)) if has_broken_off(&error) => {
                self.unpooled.request(again).await
            }
            (answered, _) => answered,
        }
    }

    /// The request for the upstream.
    ///
    /// # Errors
    /// A fault of the client's request, as a text.
    fn rewritten(
        &self,
        mut request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Rewritten, &'static str> {
        // Before headers are removed: `Connection` may name this one.
        let host = host_of(&request)?;
        let is_one = request.version() == Version::HTTP_11;
        let asks = remove_hop_by_hop(request.headers_mut()) && is_one;
        let upgrade = asks.then(|| hyper::upgrade::on(&mut request));
        let (mut head, body) = request.into_parts();
        add_via(&mut head.headers, head.version);
        if let Some(host) = host {
            head.headers.insert(HOST, host);
        }
        join_cookies(&mut head.headers);
        head.uri = at_upstream(&self.upstream, &head.uri);
        head.version = Version::HTTP_11;
        add_forwarded_for(&mut head.headers, peer.ip());
        if upgrade.is_some() {
            set_upgrade(&mut head.headers);
        }
        let (ended, sent) = oneshot::channel();
        let body = Passed::new(body, self.limits.progress, Some(ended));
        Ok(Rewritten { request: Request::from_parts(head, body), upgrade, sent })
    }

    fn passed_back(
        &self,
        mut response: Response<Incoming>,
        upgrade: Option<(OnUpgrade, OwnedSemaphorePermit)>,
    ) -> Answer {
        let is_websocket = remove_hop_by_hop(response.headers_mut());
        let version = response.version();
        add_via(response.headers_mut(), version);
        // The upstream's is that of another connection.
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (Some((client, permit)), true) = (upgrade, is_websocket) else {
                let text = "the upstream upgrades to what it was not asked for";
                return refuse(StatusCode::BAD_GATEWAY, text);
            };
            let upstream = hyper::upgrade::on(&mut response);
            annulus::spawn(tunnel(client, upstream, self.limits.tunnel_idle, permit));
            set_upgrade(response.headers_mut());
        }
        let limit = self.limits.progress;
        response.map(|body| http_body_util::Either::Left(Passed::new(body, limit, None)))
    }
}

fn at_upstream(upstream: &Uri, uri: &Uri) -> Uri {
    let mut parts = upstream.clone().into_parts();
    parts.path_and_query = uri.path_and_query().cloned().or(parts.path_and_query);
    Uri::from_parts(parts).expect("a scheme, a host and a path")
}

fn refuse(status: StatusCode, text: &str) -> Answer {
    let body = Full::new(Bytes::from(format!("{status}: {text}\n")));
    let mut response = Response::new(http_body_util::Either::Right(body));
    *response.status_mut() = status;
    response
}

/// GET and HEAD change nothing, so that it does not matter whether the upstream has seen the first one.
fn is_repeatable(request: &Request<Passed>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        && request.body().is_end_stream()
        && !request.headers().contains_key(UPGRADE)
}

/// Whether the upstream has closed the connection that the request went over.
fn has_broken_off(error: &Error) -> bool {
    let of_hyper =
        |cause: &Cause| cause.downcast_ref().is_some_and(hyper::Error::is_incomplete_message);
    !error.is_connect() && causes(error).any(|cause| cause.is::<io::Error>() || of_hyper(cause))
}

/// The status that the client's body has failed with, if it has; 504 if the upstream took too long, and 502 for anything else.
fn status_of(error: &Error) -> StatusCode {
    let status = causes(error).find_map(|cause| {
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        let of_client = cause.downcast_ref().map(|body: &Broken| body.status);
        of_client
            .or(cause.downcast_ref().is_some_and(is_late).then_some(StatusCode::GATEWAY_TIMEOUT))
    });
    status.unwrap_or(StatusCode::BAD_GATEWAY)
}

/// The error with its causes.
fn text_of(error: &Error) -> String {
    causes(error).fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

type Cause = dyn std::error::Error + 'static;

fn causes(error: &Error) -> impl Iterator<Item = &Cause> {
    std::iter::successors(error.source(), |error| (*error).source())
}
