//! The server: accepts connections, and drains them when it shuts down.

use super::accepting::{Accepting, drain};
use super::connection::{self, Settings};
use super::error::{self, OnError, ServeError};
use super::panics;
use super::protocol::Versions;
use super::sessions::Sessions;
use super::timer::Limits;
use crate::Listen;
use crate::clock::NO_LIMIT;
use crate::hyper::{Executor, HttpService, Timer};
#[cfg(feature = "rustls")]
use crate::rustls::TlsInfo;
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::task::JoinSet;
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

/// Serves a `tower` service, such as axum's `Router`, on all connections of a listener. Awaiting
/// the result runs the server.
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

/// Like [`serve`], but for a hyper service. Each connection gets a clone.
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

/// Like [`serve_hyper`], but creates a service for each connection from its peer's address.
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
/// For axum handlers that take `ConnectInfo<SocketAddr>`, wrap the `Router` with axum's `Extension`
/// as a layer (`tower::Layer`):
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
        sessions: Sessions::new(),
    }
}

/// A server without a handshake: it serves the accepted stream directly.
pub type Plain<L, M> = Serve<L, M, fn(Stream<L>) -> Ready<io::Result<(Stream<L>, Extensions)>>>;

type Stream<L> = <L as Listen>::Stream;

/// A configured server that is not running yet: see [`serve`]. Awaiting it runs it. The future
/// completes after a [graceful shutdown](Self::with_graceful_shutdown), and never without one.
///
/// Dropping the future closes the listener and drops the connections; the runtime treats data
/// already accepted for sending as for any dropped stream. Upgraded connections belong to the tasks
/// spawned for them, which a drop does not end. A graceful shutdown waits for them:
/// [`Sessions`].
///
/// The size of request bodies is not limited. A service that collects a body should set a limit,
/// for example with `http_body_util::Limited`. axum's extractors read at most 2 MB, unless
/// `DefaultBodyLimit` changes that.
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
    sessions: Sessions,
}

impl<L: Listen, M, H> Serve<L, M, H> {
    /// Shuts the server down once this future completes. The listener and connections without a
    /// request are closed at once, the others after the responses to their current requests.
    /// Upgraded connections learn that they should end ([`Sessions::shutting_down`]). HTTP/2 asks
    /// the peer to end a connection. If the peer does not, the connection is dropped 5 seconds
    /// after its last request, or later while the rest of a response is still being sent.
    pub fn with_graceful_shutdown(mut self, signal: impl Future<Output = ()> + 'static) -> Self {
        self.signal = Some(Box::pin(signal));
        self
    }

    /// Sets how long a graceful shutdown waits for the remaining connections before it drops them,
    /// and for upgraded ones ([`Sessions`]) before it cuts them.
    ///
    /// There is no limit by default, so it waits forever for a request that never finishes or whose
    /// body never arrives. See also [`request_timeout`](Self::request_timeout). Sessions are then
    /// cut 5 seconds after the last other connection has ended.
    pub fn drain_timeout(mut self, limit: Duration) -> Self {
        self.limits.drain = Some(limit);
        self
    }

    /// Returns the upgraded connections of this server, such as WebSockets: how many there are, and
    /// how many a graceful shutdown had to cut.
    pub fn sessions(&self) -> Sessions {
        self.sessions.clone()
    }

    /// Sets how many connections may be open at once, including upgraded ones. More connections
    /// wait in the kernel's backlog. With 0, none is accepted. There is no limit by default.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.limits.connections = count;
        self
    }

    /// Sets how long an HTTP/1 request head may take, counted from the end of the previous
    /// response. The limit also applies to a [handshake](Self::handshake), and after it to a
    /// connection's first request or HTTP/2 preface. When the limit is exceeded, the connection is
    /// closed. The default is 30 seconds; `None` means no limit.
    pub fn header_read_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limits.header = limit.into();
        self
    }

    /// Sets how long a connection may have no request in flight, regardless of bytes received.
    /// After that it is closed gracefully (HTTP/2 sends `GOAWAY`), and dropped if closing takes as
    /// long again while no response data is being sent. The default is 60 seconds; `None` means no
    /// limit. In HTTP/1, [`header_read_timeout`](Self::header_read_timeout) also ends idle
    /// connections.
    pub fn idle_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limits.idle = limit.into();
        self
    }

    /// Sets how long the service may take to produce the head of its response, including the time
    /// it reads the request body. After that its future is dropped, and the response is `408
    /// Request Timeout`. There is no limit by default. Without one, a request whose body never
    /// arrives blocks its connection forever, and also a graceful shutdown without
    /// [`drain_timeout`](Self::drain_timeout).
    pub fn request_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limits.request = limit.into();
        self
    }

    /// Sets how long a peer may go without reading data sent to it. The default is 60 seconds;
    /// `None` means no limit.
    ///
    /// A write that is not accepted within this time drops the connection, even an upgraded one. A
    /// stream accepts the next write once its queued bytes have been sent, so a peer must read the
    /// stream's [unsent limit](annulus::Builder::unsent_limit) within this time. With the defaults,
    /// a peer that reads steadily but slower than a few kilobytes per second is also dropped. To
    /// allow that, lower the bound or raise the limit.
    ///
    /// If an HTTP/2 response waits that long for its peer's window, and less than a kilobyte is
    /// sent on the connection meanwhile, the connection is closed gracefully, and dropped if that
    /// continues for as long again.
    ///
    /// The unsent limit and hyper's buffer limit how many bytes are queued for a peer.
    pub fn write_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limits.write = limit.into();
        self
    }

    /// Sets how long an HTTP/1 connection is idle before hyper's state for it, mainly two 8 KiB
    /// buffers, is freed. The next byte recreates it within a few microseconds. The default is one
    /// second; `None` keeps the state. A connection whose last request had a body also keeps it,
    /// because hyper does not expose whether a body was read to its end.
    pub fn release_after(mut self, idle: impl Into<Option<Duration>>) -> Self {
        self.limits.release = idle.into();
        self
    }

    /// Changes hyper's HTTP/1 settings, such as keep-alive and sizes. `half_close` is on: a client
    /// that shuts down its sending direction after a request still gets the response, and a
    /// connection error ends the handler. The timer and the [header
    /// timeout](Self::header_read_timeout) are set afterwards.
    pub fn configure_http1(
        mut self,
        change: impl FnOnce(&mut http1::Builder) -> &mut http1::Builder,
    ) -> Self {
        change(&mut self.http1);
        self
    }

    /// Changes hyper's HTTP/2 settings, such as streams, windows, keep-alive and sizes. The timer
    /// is set afterwards. To turn keep-alive off, pass `None` as its interval: hyper panics with
    /// `Duration::MAX`.
    pub fn configure_http2(
        mut self,
        change: impl FnOnce(&mut http2::Builder<Executor>) -> &mut http2::Builder<Executor>,
    ) -> Self {
        change(&mut self.http2);
        self
    }

    /// Serves HTTP/1 only. By default, a connection that begins with the HTTP/2 preface is served
    /// as HTTP/2, whatever ALPN has chosen.
    pub fn http1_only(mut self) -> Self {
        self.versions = Versions::Http1;
        self
    }

    /// Serves HTTP/2 only.
    pub fn http2_only(mut self) -> Self {
        self.versions = Versions::Http2;
        self
    }

    /// Sets a callback for errors. It receives errors of connections, with the peer, such as a
    /// protocol violation, a timeout or a panic. It also receives listener errors, after which the
    /// server waits a second and accepts again. Errors are dropped by default.
    pub fn on_error(mut self, call: impl Fn(ServeError<'_, L::Peer>) + 'static) -> Self {
        self.on_error = Rc::new(call);
        self
    }

    /// Converts each accepted stream to the stream to serve, as TLS does. The handshake runs in the
    /// connection's task, within [`header_read_timeout`](Self::header_read_timeout). An error ends
    /// the connection. Each request gets the returned extensions, which can describe the client.
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
    /// /// Reads the line that a load balancer sends first: `PROXY TCP4 CLIENT SERVER PORT PORT`.
    /// async fn proxied(mut stream: TcpStream) -> io::Result<(TcpStream, Extensions)> {
    ///     let line = stream.recv_until(b'\n', 107).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    ///     let line = str::from_utf8(&line).map_err(|_| InvalidData)?;
    ///     let words: Vec<_> = line.trim_end().split(' ').collect();
    ///     let ["PROXY", "TCP4" | "TCP6", client, _, port, _] = words[..] else {
    ///         return Err(io::Error::new(InvalidData, format!("not a PROXY line: {line:?}")));
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
        let sessions = self.sessions;
        Serve {
            listener,
            make,
            handshake,
            http1,
            http2,
            versions,
            limits,
            on_error,
            signal,
            sessions,
        }
    }
}

#[cfg(feature = "rustls")]
impl<L, M, H> Serve<L, M, H>
where
    L: Listen,
    L::Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    /// Serves over TLS as a [`handshake`](Self::handshake), to which the acceptor's limit also
    /// applies. Offer `h2` and `http/1.1` by ALPN. Each request has an
    /// `Arc<`[`TlsInfo`](crate::rustls::TlsInfo)`>` extension with the client's certificates, the
    /// server name it requested, and the protocol.
    ///
    /// ```no_run
    /// use annulus::net::TcpListener;
    /// use annulus_compat::rustls::{TlsAcceptor, TlsInfo};
    /// use annulus_compat::tower::serve;
    /// use axum::{Extension, Router, routing::get};
    /// use std::sync::Arc;
    ///
    /// async fn hello(Extension(tls): Extension<Arc<TlsInfo>>) -> String {
    ///     format!("hello, you asked for {:?}", tls.server_name)
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
            // Boxed to keep the connection's task small: otherwise the task would have room for
            // several copies of this future.
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
            // hyper adds the limit to an `Instant`, which panics on overflow.
            let header = self.limits.header.filter(|limit| *limit < NO_LIMIT);
            self.http1.timer(Timer::new()).header_read_timeout(header);
            self.http2.timer(Timer::new());
            let settings = Rc::new(Settings {
                http1: self.http1,
                http2: self.http2,
                versions: self.versions,
                limits: self.limits,
                sessions: self.sessions.clone(),
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
            let Accepting { connections, open, .. } = accepting;
            drop(self.listener);
            self.sessions.stop().cancel();
            drain(connections, &open, &self.sessions, self.limits.drain).await;
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
