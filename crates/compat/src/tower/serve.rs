//! The server: accepts connections, and drains them at its end.

use super::accepting::{Accepting, drain};
use super::connection::{self, Settings};
use super::error::{self, OnError, ServeError};
use super::panics;
use super::protocol::Versions;
use super::timer::Limits;
use crate::Listen;
use crate::clock::NO_LIMIT;
use crate::hyper::{Executor, HttpService, Timer};
#[cfg(feature = "rustls")]
use crate::rustls::TlsInfo;
use annulus::JoinSet;
use annulus::io::{AsyncRecv, AsyncSend};
use hyper::body::Incoming;
use hyper::http::Extensions;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::service::TowerToHyperService;
use std::fmt;
use std::future::{Future, IntoFuture, Ready, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
#[cfg(feature = "rustls")]
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Serves a `tower` service, such as axum's `Router`, to all connections of a listener. Awaiting the result runs the server.
///
/// Each request gets a clone of the service.
///
/// ```no_run
/// use annulus::net::TcpListener;
/// use annulus_compat::tower::serve;
/// use axum::{Router, routing::get};
///
/// fn main() -> std::io::Result<()> {
///     annulus::run(async {
///         let router = Router::new().route("/", get(async || "hello"));
///         serve(TcpListener::bind("127.0.0.1:8080")?, router).await
///     })
/// }
/// ```
pub fn serve<L, S, B>(
    listener: L,
    service: S,
) -> Plain<L, impl FnMut(&L::Peer) -> TowerToHyperService<S>>
where
    L: Listen,
    S: tower_service::Service<Request<Incoming>, Response = Response<B>> + Clone,
{
    serve_with(listener, move |_: &L::Peer| TowerToHyperService::new(service.clone()))
}

/// As [`serve`], for a service of hyper, of which each connection gets a clone.
///
/// ```
/// use annulus::net::TcpListener;
/// use annulus_compat::tower::serve_hyper;
/// use hyper::service::service_fn;
/// use hyper::{Request, Response, body::Incoming};
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// async fn hello(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
///     Ok(Response::new("hello".to_owned()))
/// }
///
/// annulus::run(async {
///     let server = serve_hyper(TcpListener::bind("127.0.0.1:0")?, service_fn(hello))
///         .with_graceful_shutdown(annulus::time::sleep(Duration::from_millis(1)));
///     server.await
/// })
/// # .unwrap();
/// ```
pub fn serve_hyper<L, S, B>(listener: L, service: S) -> Plain<L, impl FnMut(&L::Peer) -> S>
where
    L: Listen,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
{
    serve_with(listener, move |_: &L::Peer| service.clone())
}

/// As [`serve_hyper`], with a service made for each connection from the address of its peer.
///
/// ```
/// use annulus::net::{TcpListener, TcpStream};
/// use annulus_compat::tower::serve_with;
/// use hyper::service::service_fn;
/// use hyper::{Request, Response, body::Incoming};
/// use std::convert::Infallible;
/// use std::net::SocketAddr;
///
/// annulus::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?;
///     let server = serve_with(listener, |peer: &SocketAddr| {
///         let peer = *peer;
///         service_fn(move |_: Request<Incoming>| {
///             std::future::ready(Ok::<_, Infallible>(Response::new(peer.to_string())))
///         })
///     });
///     annulus::spawn(server.into_future());
///
///     let mut client = TcpStream::connect(address).await?;
///     client.send("GET / HTTP/1.0\r\n\r\n").await?;
///     let mut answer = Vec::new();
///     while let Some(lease) = client.recv().await? {
///         answer.extend_from_slice(&lease);
///     }
///     assert!(answer.ends_with(client.local_addr()?.to_string().as_bytes()));
///     std::io::Result::Ok(())
/// })
/// # .unwrap();
/// ```
///
/// For handlers of axum that take `ConnectInfo<SocketAddr>`, `Extension` of axum is the layer (`tower::Layer`) around the `Router`:
/// `TowerToHyperService::new(Extension(ConnectInfo(*peer)).layer(router.clone()))`.
pub fn serve_with<L, M, S>(listener: L, make: M) -> Plain<L, M>
where
    L: Listen,
    M: FnMut(&L::Peer) -> S,
{
    let mut http1 = http1::Builder::new();
    http1.half_close(true);
    Serve {
        listener,
        make,
        handshake: |stream| std::future::ready(Ok((stream, Extensions::new()))),
        http1,
        http2: http2::Builder::new(Executor),
        versions: Versions::Both,
        limits: Limits::default(),
        on_error: Rc::new(|_: ServeError<'_, L::Peer>| {}),
        signal: None,
    }
}

/// A server without a handshake: it serves the stream as it was accepted.
pub type Plain<L, M> = Serve<L, M, fn(Stream<L>) -> Ready<io::Result<(Stream<L>, Extensions)>>>;

type Stream<L> = <L as Listen>::Stream;

/// A server to be: see [`serve`]. Awaiting it runs it; the future is ready after a
/// [graceful shutdown](Self::with_graceful_shutdown), and never without one.
///
/// Dropping the future closes the listener and drops the connections; with what was accepted for sending, the runtime deals as always.
/// Upgraded connections belong to what was spawned for them, so neither a drop nor a graceful shutdown ends them.
///
/// There is no limit on the size of a request's body: a service that collects one sets it, as by `http_body_util::Limited` around the body.
/// axum's extractors read 2 MB at most, which its `DefaultBodyLimit` changes.
///
/// ```
/// use annulus::net::TcpListener;
/// use annulus_compat::tower::serve;
/// use axum::{Router, routing::get};
/// use std::time::Duration;
///
/// annulus::run(async {
///     let router = Router::new().route("/", get(async || "hello"));
///     serve(TcpListener::bind("127.0.0.1:0")?, router)
///         .max_connections(10_000)
///         .header_read_timeout(Duration::from_secs(10))
///         .idle_timeout(Duration::from_secs(120))
///         .request_timeout(Duration::from_secs(30))
///         .configure_http2(|http| http.max_concurrent_streams(100))
///         .on_error(|error| eprintln!("{error}"))
///         .with_graceful_shutdown(annulus::time::sleep(Duration::from_millis(1)))
///         .drain_timeout(Duration::from_secs(5))
///         .await
/// })
/// # .unwrap();
/// ```
pub struct Serve<L: Listen, M, H> {
    listener: L,
    make: M,
    handshake: H,
    http1: http1::Builder,
    http2: http2::Builder<Executor>,
    versions: Versions,
    limits: Limits,
    on_error: OnError<L::Peer>,
    signal: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl<L: Listen, M, H> Serve<L, M, H> {
    /// Ends the server once this future is ready: the listener is closed at once, connections without a request are closed, and the others
    /// after the responses to the requests that they have begun. HTTP/2 asks the peer to end a connection; if it does not, the connection is
    /// dropped 5 seconds after its last request, or later while the rest of a response is being sent.
    pub fn with_graceful_shutdown(mut self, signal: impl Future<Output = ()> + 'static) -> Self {
        self.signal = Some(Box::pin(signal));
        self
    }

    /// How long the last connections may take after that; then they are dropped. By default there is no limit, so that a request which takes
    /// for ever, or whose body never comes, is waited for; see also [`request_timeout`](Self::request_timeout).
    pub fn drain_timeout(mut self, limit: Duration) -> Self {
        self.limits.drain = Some(limit);
        self
    }

    /// How many connections may be open at once, upgraded ones included; others wait in the kernel's backlog. With 0 none is accepted. By
    /// default there is no limit.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.limits.connections = count;
        self
    }

    /// How long the head of a request of HTTP/1 may take, from the end of the response before it; a [handshake](Self::handshake); and, from
    /// then on, the first request of a connection, or the preface of HTTP/2. Then the connection is closed. 30 seconds by default; `None` for no limit.
    pub fn header_read_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limits.header = limit.into();
        self
    }

    /// How long a connection may have no request in flight, whatever bytes come: then it is closed as its protocol does (HTTP/2 sends
    /// `GOAWAY`), and dropped if that takes as long again while nothing of a response is being sent. 60 seconds by default; `None` for no limit.
    /// In HTTP/1, [`header_read_timeout`](Self::header_read_timeout) ends an idle connection too.
    pub fn idle_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limits.idle = limit.into();
        self
    }

    /// How long the service may take until the head of its response, which includes what it reads of the request's body: then its future is
    /// dropped, and the answer is `408 Request Timeout`. No limit by default, since a service may take its time; without one, a request whose
    /// body never comes holds its connection, and a graceful shutdown without [`drain_timeout`](Self::drain_timeout), for ever.
    pub fn request_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limits.request = limit.into();
        self
    }

    /// How long a peer may not take what it is being sent. 60 seconds by default; `None` for no limit.
    ///
    /// A write that is not accepted for that long drops the connection, also an upgraded one. A stream accepts the next write once what it
    /// holds has gone, so a peer must take the [send bound](annulus::Builder::send_bound) of its stream within this time: with the defaults, a
    /// peer that is steady and slower than some kilobytes a second is dropped too. A smaller bound, or a longer limit, lets it go on.
    ///
    /// If a response of HTTP/2 waits for that long for the window of its peer, and less than a kilobyte is sent on the connection meanwhile,
    /// the connection is closed as its protocol does, and dropped if that goes on for as long again.
    ///
    /// The bytes that wait for a peer are bounded by the send bound and hyper's buffer.
    pub fn write_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limits.write = limit.into();
        self
    }

    /// How long a connection of HTTP/1 is idle before what hyper holds for it, two buffers of 8 KiB above all, is freed; its next byte makes that
    /// anew, which takes some microseconds. One second by default; `None` to keep it. A connection whose last request had a body keeps it: hyper
    /// does not show whether a body was read to its end.
    pub fn release_after(mut self, idle: impl Into<Option<Duration>>) -> Self {
        self.limits.release = idle.into();
        self
    }

    /// Changes hyper's settings of HTTP/1: keep-alive, sizes. `half_close` is on: a client that ends its direction of the stream behind a request
    /// gets its reply, and one that breaks off ends its handler. Timer and [limit on headers](Self::header_read_timeout) are set afterwards.
    pub fn configure_http1(
        mut self,
        change: impl FnOnce(&mut http1::Builder) -> &mut http1::Builder,
    ) -> Self {
        change(&mut self.http1);
        self
    }

    /// Changes hyper's settings of HTTP/2: streams, windows, keep-alive, sizes. The timer is set afterwards. For no keep-alive, give hyper
    /// `None` as its interval: with `Duration::MAX` it panics.
    pub fn configure_http2(
        mut self,
        change: impl FnOnce(&mut http2::Builder<Executor>) -> &mut http2::Builder<Executor>,
    ) -> Self {
        change(&mut self.http2);
        self
    }

    /// Takes HTTP/1 only. By default a connection that begins with the preface of HTTP/2 is of HTTP/2, whatever ALPN has chosen.
    pub fn http1_only(mut self) -> Self {
        self.versions = Versions::Http1;
        self
    }

    /// Takes HTTP/2 only.
    pub fn http2_only(mut self) -> Self {
        self.versions = Versions::Http2;
        self
    }

    /// Called with the error of each connection, and its peer: of a peer that breaks off or breaks the protocol, a time limit, a service's
    /// error, a panic; and with those of the listener, which is asked again a second later. By default they are dropped.
    pub fn on_error(mut self, call: impl Fn(ServeError<'_, L::Peer>) + 'static) -> Self {
        self.on_error = Rc::new(call);
        self
    }

    /// Makes the stream to serve of the one that was accepted, as TLS does, in the task of the connection, and within
    /// [`header_read_timeout`](Self::header_read_timeout). An error ends the connection. Each request gets the extensions, for what the handshake
    /// has found out about the client.
    ///
    /// ```
    /// use annulus::io::AsyncRecv;
    /// use annulus::net::{TcpListener, TcpStream};
    /// use annulus_compat::tower::serve;
    /// use axum::extract::ConnectInfo;
    /// use axum::{Router, routing::get};
    /// use hyper::http::Extensions;
    /// use std::io::{self, ErrorKind::InvalidData};
    /// use std::net::{IpAddr, SocketAddr};
    ///
    /// /// Takes the line that a load balancer sends ahead, `PROXY TCP4 CLIENT SERVER PORT PORT`, off the stream.
    /// async fn proxied(mut stream: TcpStream) -> io::Result<(TcpStream, Extensions)> {
    ///     let line = stream.recv_until(b'\n', 107).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    ///     let line = str::from_utf8(&line).map_err(|_| InvalidData)?;
    ///     let words: Vec<_> = line.trim_end().split(' ').collect();
    ///     let ["PROXY", "TCP4" | "TCP6", client, _, port, _] = words[..] else {
    ///         return Err(io::Error::new(InvalidData, format!("no line of PROXY: {line:?}")));
    ///     };
    ///     let ip: IpAddr = client.parse().map_err(|_| InvalidData)?;
    ///     let client = SocketAddr::new(ip, port.parse().map_err(|_| InvalidData)?);
    ///     let mut known = Extensions::new();
    ///     known.insert(ConnectInfo(client));
    ///     Ok((stream, known))
    /// }
    ///
    /// # annulus::run(async {
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let address = listener.local_addr()?;
    /// let hello = async |ConnectInfo(client): ConnectInfo<SocketAddr>| client.to_string();
    /// let server = serve(listener, Router::new().route("/", get(hello))).handshake(proxied);
    /// # annulus::spawn(server.into_future());
    /// # let mut client = TcpStream::connect(address).await?;
    /// # client.send("PROXY TCP4 192.0.2.1 192.0.2.2 5000 80\r\nGET / HTTP/1.0\r\n\r\n").await?;
    /// # let mut answer = Vec::new();
    /// # client.read_to_end(&mut answer, 1000).await?;
    /// # assert!(answer.ends_with(b"192.0.2.1:5000"), "{}", String::from_utf8_lossy(&answer));
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    pub fn handshake<F, Fut, T>(self, handshake: F) -> Serve<L, M, F>
    where
        F: Fn(L::Stream) -> Fut,
        Fut: Future<Output = io::Result<(T, Extensions)>>,
    {
        let Self { listener, make, http1, http2, versions, limits, on_error, signal, .. } = self;
        Serve { listener, make, handshake, http1, http2, versions, limits, on_error, signal }
    }
}

#[cfg(feature = "rustls")]
impl<L, M, H> Serve<L, M, H>
where
    L: Listen,
    L::Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    /// Serves over TLS: [`handshake`](Self::handshake), within the acceptor's limit as well. Offer `h2` and `http/1.1` by ALPN. Each request has
    /// an `Arc<`[`TlsInfo`](crate::rustls::TlsInfo)`>` among its extensions: the client's certificates, the name that it has asked for, the protocol.
    ///
    /// ```no_run
    /// use annulus::net::TcpListener;
    /// use annulus_compat::rustls::{TlsAcceptor, TlsInfo};
    /// use annulus_compat::tower::serve;
    /// use axum::{Extension, Router, routing::get};
    /// use std::sync::Arc;
    ///
    /// async fn hello(Extension(tls): Extension<Arc<TlsInfo>>) -> String {
    ///     format!("hello, you have asked for {:?}", tls.server_name)
    /// }
    ///
    /// fn main() -> std::io::Result<()> {
    ///     annulus::run(async {
    ///         let (certificate, key) = (std::fs::read("cert.pem")?, std::fs::read("key.pem")?);
    ///         let acceptor = TlsAcceptor::from_pem(&certificate, &key, &["h2", "http/1.1"])?;
    ///         let router = Router::new().route("/", get(hello));
    ///         serve(TcpListener::bind("127.0.0.1:8443")?, router).tls(acceptor).await
    ///     })
    /// }
    /// ```
    pub fn tls(
        self,
        acceptor: crate::rustls::TlsAcceptor,
    ) -> Serve<L, M, impl Fn(L::Stream) -> TlsHandshake<L::Stream>> {
        self.handshake(move |stream| -> TlsHandshake<L::Stream> {
            let acceptor = acceptor.clone();
            // Boxed, so that the connection's task does not have its size once for each of its states.
            Box::pin(async move {
                let stream = acceptor.accept(stream).await?;
                let mut known = Extensions::new();
                known.insert(Arc::new(TlsInfo::from(&stream)));
                Ok((Box::new(stream), known))
            })
        })
    }
}

#[cfg(feature = "rustls")]
type TlsHandshake<S> =
    Pin<Box<dyn Future<Output = io::Result<(Box<crate::rustls::TlsStream<S>>, Extensions)>>>>;

impl<L, M, S, H, F, T> IntoFuture for Serve<L, M, H>
where
    L: Listen + 'static,
    M: FnMut(&L::Peer) -> S + 'static,
    S: HttpService<Future: 'static> + 'static,
    H: Fn(L::Stream) -> F + 'static,
    F: Future<Output = io::Result<(T, Extensions)>> + 'static,
    T: AsyncRecv + AsyncSend + Unpin + 'static,
{
    type Output = io::Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = io::Result<()>>>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            let stop = CancellationToken::new();
            // hyper adds this to a moment, and panics if the sum is too far away.
            let header = self.limits.header.filter(|limit| *limit < NO_LIMIT);
            self.http1.timer(Timer::new()).header_read_timeout(header);
            self.http2.timer(Timer::new());
            let settings = Rc::new(Settings {
                http1: self.http1,
                http2: self.http2,
                versions: self.versions,
                limits: self.limits,
                stop: stop.clone(),
            });
            let mut accepting = Accepting {
                listener: &mut self.listener,
                limit: self.limits.connections,
                open: Rc::default(),
                signal: self.signal,
                connections: JoinSet::new(),
                on_error: self.on_error.clone(),
                pause: None,
            };
            while let Some((stream, peer)) = poll_fn(|cx| accepting.poll_next(cx)).await {
                let made = panics::catch(|| ((self.make)(&peer), (self.handshake)(stream)));
                let (open, report) = (accepting.open.add(), error::of_peer(&self.on_error, peer));
                match made {
                    Ok((service, stream)) => {
                        let settings = settings.clone();
                        let connection = connection::run(stream, service, open, settings, report);
                        accepting.connections.spawn(connection);
                    }
                    Err(panic) => report(panics::error(&panic)),
                }
            }
            let connections = accepting.connections;
            drop(self.listener);
            stop.cancel();
            drain(connections, self.limits.drain).await;
            Ok(())
        })
    }
}

impl<L: Listen + fmt::Debug, M, H> fmt::Debug for Serve<L, M, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("listener", &self.listener)
            .field("limits", &self.limits)
            .finish()
    }
}
