//! Forwards requests to the upstream, and responses back.

use super::body::{Broken, Passed};
use super::early::{self, Client as Peer, EarlyOfRequest};
use super::forward::{
    add_forwarded_for, add_via, ask_for_trailers, expects_continue, host_of, is_loop, join_cookies,
    remove_hop_by_hop, set_upgrade, takes_trailers,
};
use super::tunnel::tunnel;
use annulus::net::{ConnectOptions, KeepAlive};
use annulus::task::yield_now;
use annulus::time::sleep;
use annulus_compat::hyper::{Executor, Timer};
use annulus_compat::hyper_util::Connector;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::ext::on_informational;
use hyper::header::{CONNECTION, EXPECT, HOST, HeaderValue, UPGRADE};
use hyper::service::{Service, service_fn};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::client::legacy::{Client, Error};
use std::convert::Infallible;
use std::error::Error as _;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

type Answer = Response<http_body_util::Either<Passed, Full<Bytes>>>;

/// Maximum number of headers in a message.
pub(crate) const MAX_HEADERS: usize = 1_000;
/// Maximum number of queued informational responses. More are dropped.
const MAX_EARLY_RESPONSES: usize = 8;
/// Detects a vanished peer after 25 seconds without a byte.
pub(crate) const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };

/// Forwards requests to one upstream.
pub(crate) struct Proxy {
    /// This proxy's unique name in `Via`. A request that already contains it is in a loop.
    name: String,
    upstream: Uri,
    client: Client<Connector, Passed>,
    /// Opens a new connection for each request.
    unpooled: Client<Connector, Passed>,
    limits: Limits,
    /// One permit for each tunnel.
    permits: Arc<Semaphore>,
}

/// A request for the upstream.
struct Rewritten {
    request: Request<Passed>,
    /// The client's upgrade, if it requested one.
    upgrade: Option<OnUpgrade>,
    /// Completes when the body has been sent.
    sent: oneshot::Receiver<()>,
    /// Encoded informational responses of the upstream.
    early: mpsc::Receiver<Vec<u8>>,
    expect: Option<Arc<Expect>>,
}

/// A body that waits for the upstream's consent. If all references are dropped first, the upstream
/// does not want the body.
struct Expect(Mutex<Option<oneshot::Sender<()>>>);

impl Expect {
    fn grant(&self) {
        if let Some(wanted) = self.0.lock().expect("a holder panicked").take() {
            _ = wanted.send(());
        }
    }

    fn is_granted(&self) -> bool {
        self.0.lock().expect("a holder panicked").is_none()
    }
}

/// Timeouts, and the maximum number of upgraded connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Time in which the upstream must accept a connection.
    pub(crate) connect: Duration,
    /// Time in which the upstream must accept a body that waits for its consent (`Expect`). After
    /// that the body is sent anyway.
    pub(crate) consent: Duration,
    /// Time from the end of a request to the head of its response.
    pub(crate) response: Duration,
    /// Time for each part of a body, in either direction.
    pub(crate) progress: Duration,
    /// Time after which a connection without requests is closed.
    pub(crate) idle: Duration,
    /// Time after which an upgraded connection without traffic in either direction is closed.
    pub(crate) tunnel_idle: Duration,
    /// Maximum number of upgraded connections at once.
    pub(crate) tunnels: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connect: seconds(5),
            consent: seconds(10),
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
            let text = format!("{upstream}: the upstream must be http://host:port without a path");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let connector = Connector::new()
            .options(ConnectOptions::new().keepalive(KEEP_ALIVE))
            .timeout(limits.connect)
            .write_timeout(limits.progress);
        let mut http = Client::builder(Executor);
        http.http1_max_headers(MAX_HEADERS);
        http.timer(Timer::new()).pool_timer(Timer::new()).pool_idle_timeout(limits.idle);
        let client = http.build(connector.clone());
        let unpooled = http.pool_max_idle_per_host(0).build(connector);
        let permits = Arc::new(Semaphore::new(limits.tunnels));
        let name = format!("annulus-{:016x}", RandomState::new().hash_one(()));
        Ok(Self { name, upstream, client, unpooled, limits, permits })
    }

    /// Creates the service for a connection from this peer.
    pub(crate) fn service(
        proxy: &Rc<Self>,
        peer: &Peer,
    ) -> impl Service<Request<Incoming>, Response = Answer, Error = Infallible, Future: 'static> + use<>
    {
        let (proxy, peer, early) = (proxy.clone(), peer.address, peer.early.clone());
        service_fn(move |request| {
            let (proxy, early) = (proxy.clone(), early.of_request());
            async move { Ok(proxy.answer(request, peer, early).await) }
        })
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
        early: EarlyOfRequest,
    ) -> Answer {
        if [Method::CONNECT, Method::TRACE].contains(request.method()) {
            let text = "this proxy supports neither CONNECT nor TRACE";
            return refuse(StatusCode::METHOD_NOT_ALLOWED, text);
        }
        if is_loop(request.headers(), &self.name) {
            return refuse(
                StatusCode::LOOP_DETECTED,
                "the request has already passed through this proxy",
            );
        }
        let version = request.version();
        let Rewritten { request, upgrade, sent, early: mut responses, expect } =
            match self.rewritten(request, peer) {
                Ok(rewritten) => rewritten,
                Err(text) => return refuse(StatusCode::BAD_REQUEST, text),
            };
        let permit = upgrade.is_some().then(|| self.permits.clone().try_acquire_owned());
        let Ok(permit) = permit.transpose() else {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many upgraded connections");
        };
        let mut response = pin!(self.ask(request));
        let mut too_late = pin!(async {
            _ = sent.await;
            sleep(self.limits.response).await;
        });
        let answered = loop {
            tokio::select! {
                biased;
                Some(sooner) = responses.recv() => {
                    if version == Version::HTTP_11 {
                        early.push(&sooner);
                    }
                }
                answered = &mut response => break answered,
                () = &mut too_late => {
                    let text = format!("no upstream response within {:?}", self.limits.response);
                    return refuse(StatusCode::GATEWAY_TIMEOUT, &text);
                }
            }
        };
        if !early.is_empty() {
            // The connection flushes before it polls this future again.
            yield_now().await;
        }
        match answered {
            Ok(response) => self.passed_back(response, version, upgrade.zip(permit), expect),
            Err(error) => {
                // Do not send the error to the client: its text contains addresses.
                eprintln!("{peer}: {}", text_of(&error));
                refuse(status_of(&error), "the upstream failed")
            }
        }
    }

    /// Sends a request to the upstream. If the upstream has just closed the pooled connection,
    /// repeats the request if that is safe.
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

    /// Rewrites a request for the upstream.
    ///
    /// # Errors
    /// Fails if the client's request is invalid. The error's text says why.
    fn rewritten(
        &self,
        mut request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Rewritten, &'static str> {
        // Must come before headers are removed, because `Connection` may list `Host`.
        let host = host_of(&request)?;
        let is_one = request.version() == Version::HTTP_11;
        let has_trailers = takes_trailers(request.headers());
        let expects = expects_continue(&request) && !request.body().is_end_stream();
        let asks = remove_hop_by_hop(request.headers_mut()) && is_one;
        let upgrade = asks.then(|| hyper::upgrade::on(&mut request));
        let (mut head, body) = request.into_parts();
        add_via(&mut head.headers, head.version, &self.name);
        if !expects {
            head.headers.remove(EXPECT);
        }
        if let Some(host) = host {
            head.headers.insert(HOST, host);
        }
        join_cookies(&mut head.headers);
        head.uri = at_upstream(&self.upstream, &head.uri);
        head.version = Version::HTTP_11;
        add_forwarded_for(&mut head.headers, peer.ip());
        if upgrade.is_some() {
            set_upgrade(&mut head.headers);
        } else if has_trailers {
            ask_for_trailers(&mut head.headers);
        }
        let (ended, sent) = oneshot::channel();
        let mut body = Passed::new(body, self.limits.progress, ended);
        let mut expect = None;
        if expects {
            let (grant, wanted) = oneshot::channel();
            body = body.once_wanted(wanted, self.limits.consent);
            expect = Some(Arc::new(Expect(Mutex::new(Some(grant)))));
        }
        let mut request = Request::from_parts(head, body);
        let early = self.informational(&mut request, expect.clone());
        Ok(Rewritten { request, upgrade, sent, early, expect })
    }

    /// Receives the informational responses to a request: `100 Continue` grants its body, and
    /// others are for the client.
    fn informational(
        &self,
        request: &mut Request<Passed>,
        expect: Option<Arc<Expect>>,
    ) -> mpsc::Receiver<Vec<u8>> {
        let (sender, receiver) = mpsc::channel(MAX_EARLY_RESPONSES);
        let name = self.name.clone();
        on_informational(request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                expect.iter().for_each(|expect| expect.grant());
            } else {
                let mut headers = response.headers().clone();
                remove_hop_by_hop(&mut headers);
                add_via(&mut headers, response.version(), &name);
                _ = sender.try_send(early::encode(response.status(), &headers));
            }
        });
        receiver
    }

    fn passed_back(
        &self,
        mut response: Response<Incoming>,
        client: Version,
        upgrade: Option<(OnUpgrade, OwnedSemaphorePermit)>,
        expect: Option<Arc<Expect>>,
    ) -> Answer {
        let is_websocket = remove_hop_by_hop(response.headers_mut());
        let version = response.version();
        add_via(response.headers_mut(), version, &self.name);
        if client == Version::HTTP_11 && expect.as_ref().is_some_and(|it| !it.is_granted()) {
            // It is unknown whether the client will still send the body.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // The upstream's version belongs to another connection.
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (Some((client, permit)), true) = (upgrade, is_websocket) else {
                let text = "the upstream upgraded to a protocol that was not requested";
                return refuse(StatusCode::BAD_GATEWAY, text);
            };
            let upstream = hyper::upgrade::on(&mut response);
            annulus::spawn(tunnel(client, upstream, self.limits.tunnel_idle, permit));
            set_upgrade(response.headers_mut());
        }
        let limit = self.limits.progress;
        response.map(|body| http_body_util::Either::Left(Passed::new(body, limit, expect)))
    }
}

fn at_upstream(upstream: &Uri, uri: &Uri) -> Uri {
    let mut parts = upstream.clone().into_parts();
    parts.path_and_query = uri.path_and_query().cloned().or(parts.path_and_query);
    Uri::from_parts(parts).expect("the scheme, the host and the path form no URI")
}

fn refuse(status: StatusCode, text: &str) -> Answer {
    let body = Full::new(Bytes::from(format!("{status}: {text}\n")));
    let mut response = Response::new(http_body_util::Either::Right(body));
    *response.status_mut() = status;
    response
}

/// Returns true for GET and HEAD without a body or an upgrade. They change nothing, so it does not
/// matter whether the upstream has received the first attempt.
fn is_repeatable(request: &Request<Passed>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        && request.body().is_end_stream()
        && !request.headers().contains_key(UPGRADE)
}

/// Returns true if the upstream closed the connection that carried the request.
fn has_broken_off(error: &Error) -> bool {
    let of_hyper =
        |cause: &Cause| cause.downcast_ref().is_some_and(hyper::Error::is_incomplete_message);
    !error.is_connect() && causes(error).any(|cause| cause.is::<io::Error>() || of_hyper(cause))
}

/// Returns the status of the client's body if that failed, 504 if the upstream took too long, and
/// 502 otherwise.
fn status_of(error: &Error) -> StatusCode {
    let status = causes(error).find_map(|cause| {
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        let of_client = cause.downcast_ref().map(|body: &Broken| body.status);
        of_client
            .or(cause.downcast_ref().is_some_and(is_late).then_some(StatusCode::GATEWAY_TIMEOUT))
    });
    status.unwrap_or(StatusCode::BAD_GATEWAY)
}

/// Formats the error with its causes.
fn text_of(error: &Error) -> String {
    causes(error).fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

type Cause = dyn std::error::Error + 'static;

fn causes(error: &Error) -> impl Iterator<Item = &Cause> {
    std::iter::successors(error.source(), |error| (*error).source())
}
