//! Connects to the host in a URI.

use crate::OnThread;
use crate::hyper::Io;
use crate::limit::within;
use annulus::net::{ConnectOptions, TcpStream};
use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

/// Connects to the host in a URI over TCP, for hyper-util's client and other users of a
/// `tower_service::Service<Uri>`.
///
/// Like [`TcpStream::connect`], it looks names up on another thread, and uses the first of several
/// addresses that accepts. `TCP_NODELAY` is on.
///
/// A server may respond and close before it has read the whole request, such as with 413 for a body
/// that is too large. The client then gets the response, not the error of the failed write.
///
/// ```
/// use annulus::net::{ConnectOptions, KeepAlive};
/// use annulus_compat::hyper_util::Connector;
/// use std::time::Duration;
/// use tower_service::Service;
///
/// annulus::run(async {
///     let listener = annulus::net::TcpListener::bind("127.0.0.1:0")?;
///     let port = listener.local_addr()?.port();
///     let mut connector = Connector::new()
///         .timeout(Duration::from_secs(5)) // For the lookup and all attempts together.
///         .options(ConnectOptions::new().keepalive(KeepAlive::default()));
///     let stream = connector.call(format!("http://localhost:{port}").parse()?).await?;
///     assert_eq!(stream.inner().try_ref()?.peer_addr()?.port(), port);
///     Ok::<_, Box<dyn std::error::Error>>(())
/// })
/// # .unwrap();
/// ```
///
/// Dropping a [`Connecting`] cancels its attempts and closes their sockets. A lookup that has
/// started continues, but its result is discarded.
#[derive(Clone, Debug)]
pub struct Connector {
    options: ConnectOptions,
    timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    enforce_http: bool,
}

impl Default for Connector {
    fn default() -> Self {
        Self {
            options: ConnectOptions::new(),
            timeout: None,
            write_timeout: None,
            enforce_http: true,
        }
    }
}

impl Connector {
    /// Creates a connector with default socket options and no timeout. Without a timeout, the
    /// system gives up after a few minutes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how each connection is opened, such as its local address, keep-alive and buffer sizes.
    /// [`ConnectOptions::timeout`] applies to the lookup and then to each address;
    /// [`timeout`](Self::timeout) limits all of them together.
    pub fn options(mut self, options: ConnectOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the time allowed for the lookup and all attempts together. After that the error is
    /// `TimedOut`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets how long a server may go without reading data sent to it, such as a request body: see
    /// [`Io::write_timeout`]. There is no limit by default.
    pub fn write_timeout(mut self, limit: Duration) -> Self {
        self.write_timeout = Some(limit);
        self
    }

    /// Sets whether URIs must have the scheme `http`. On by default. Turn it off if a TLS connector
    /// wraps this connector.
    pub fn enforce_http(mut self, on: bool) -> Self {
        self.enforce_http = on;
        self
    }

    async fn connect(self, uri: Uri) -> io::Result<Io<OnThread<TcpStream>>> {
        let (host, port) = self.target(&uri)?;
        let stream = self.open(&host, port).await?;
        Ok(self.io(stream))
    }

    pub(super) fn io<S>(&self, stream: S) -> Io<OnThread<S>> {
        Io::new(OnThread::new(stream)).write_timeout(self.write_timeout).await_early_answer()
    }

    pub(super) async fn open(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let connect = self.options.connect((host, port));
        let text = |limit| format!("{host}:{port}: not connected within {limit:?}");
        within(self.timeout, connect, text).await
    }

    pub(super) fn target(&self, uri: &Uri) -> io::Result<(String, u16)> {
        let scheme = uri.scheme_str();
        if self.enforce_http && scheme != Some("http") {
            let text = format!(
                "{uri}: this connector accepts only http URIs; a TLS connector that wraps it must set \
                 enforce_http(false)"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let Some(host) = uri.host().filter(|host| !host.is_empty()) else {
            let text = format!("{uri}: no host; use a full URI such as http://host:port/path");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let secure = matches!(scheme, Some("https" | "wss"));
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        Ok((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
    }
}

impl Service<Uri> for Connector {
    type Response = Io<OnThread<TcpStream>>;
    type Error = io::Error;
    type Future = Connecting<TcpStream>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting<TcpStream> {
        Connecting::new(self.clone().connect(uri))
    }
}

/// A pending connection. Polling it on a thread other than the one that created it is an error.
/// Dropping it before it completes cancels the attempt.
pub struct Connecting<S>(OnThread<Attempt<S>>);

type Attempt<S> = dyn Future<Output = io::Result<Io<OnThread<S>>>>;

impl<S> Connecting<S> {
    pub(super) fn new(
        connect: impl Future<Output = io::Result<Io<OnThread<S>>>> + 'static,
    ) -> Self {
        Self(OnThread::boxed(Box::pin(connect)))
    }
}

impl<S> Future for Connecting<S> {
    type Output = io::Result<Io<OnThread<S>>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.try_pin()?.poll(cx)
    }
}

impl<S> fmt::Debug for Connecting<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connecting")
    }
}

/// A response extension with the addresses of the TCP connection that the response arrived on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// This side's address.
    pub local_addr: SocketAddr,
    /// The server's address.
    pub peer_addr: SocketAddr,
}

impl Connection for Io<OnThread<TcpStream>> {
    fn connected(&self) -> Connected {
        self.inner().try_ref().map_or_else(|_| Connected::new(), ends)
    }
}

/// Returns the addresses of both ends. If the connection has already failed, returns no addresses;
/// the first use of the stream then returns the error.
pub(super) fn ends(stream: &TcpStream) -> Connected {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(local_addr), Ok(peer_addr)) => {
            Connected::new().extra(ConnectionInfo { local_addr, peer_addr })
        }
        _ => Connected::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_split_into_host_and_port() {
        let connector = Connector::new();
        let target = |uri: &str| connector.target(&uri.parse().unwrap());
        assert_eq!(target("http://a.example/x").unwrap(), ("a.example".into(), 80));
        assert_eq!(target("http://[::1]:81/").unwrap(), ("::1".into(), 81));
        let error = target("https://a.example/").unwrap_err().to_string();
        assert!(error.contains("https://a.example/") && error.contains("enforce_http"), "{error}");
        assert!(target("/path").unwrap_err().to_string().starts_with("/path: "));
        let any = Connector::new().enforce_http(false);
        let secure = any.target(&"https://a.example".parse().unwrap()).unwrap();
        assert_eq!(secure, ("a.example".into(), 443));
        let path = any.target(&"/path".parse().unwrap()).unwrap_err().to_string();
        assert!(path.contains("no host"), "{path}");
    }
}
