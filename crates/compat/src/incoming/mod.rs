//! Connections for axum's and tonic's servers.

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "tonic-transport")]
mod tonic;

use crate::{Listen, OnThread};
use annulus::net::{TcpListener, ToSocketAddrs};
use std::io;

/// annulus connections for `axum::serve` (feature `axum`) and tonic's `serve_with_incoming`
/// (feature `tonic-transport`). Both call `tokio::spawn`, so they need an `annulus-tokio` runtime.
/// It accepts on the thread that created it, from any [`Listen`]er: over TCP, Unix sockets or TLS
/// (`rustls::TlsListener`), or one that you implement. Dropping it closes the listener.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use annulus_compat::Incoming;
/// use axum::{Router, routing::get};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// annulus_tokio::run(async {
///     let incoming = Incoming::bind("127.0.0.1:0")?;
///     let address = incoming.local_addr()?;
///     let router = Router::new().route("/", get(async || "hello"));
///     tokio::spawn(async move { axum::serve(incoming, router).await });
///
///     let mut client = tokio::net::TcpStream::connect(address).await?;
///     client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
///     let mut answer = String::new();
///     client.read_to_string(&mut answer).await?;
///     assert!(answer.ends_with("hello"));
///     std::io::Result::Ok(())
/// })
/// # .unwrap().unwrap();
/// # }
/// ```
///
/// For handlers that take `ConnectInfo<SocketAddr>`, wrap it with axum's `tap_io`, since axum
/// provides addresses only for its own listeners:
///
/// ```
/// # #[cfg(feature = "axum")]
/// use axum::{Router, extract::ConnectInfo, routing::get, serve::ListenerExt};
/// use std::net::SocketAddr;
///
/// # #[cfg(feature = "axum")]
/// async fn serve(incoming: annulus_compat::Incoming) -> std::io::Result<()> {
///     let hello = async |ConnectInfo(peer): ConnectInfo<SocketAddr>| format!("hello, {peer}");
///     let router = Router::new().route("/", get(hello));
///     let service = router.into_make_service_with_connect_info::<SocketAddr>();
///     axum::serve(incoming.tap_io(|_| {}), service).await
/// }
/// ```
///
/// For one loop per core use `annulus_tokio::run_each`, with each thread listening with
/// [`ListenOptions::reuse_port`](annulus::net::ListenOptions::reuse_port).
///
/// With tonic, it ends when the runtime ends:
///
/// ```standalone_crate
/// # #[cfg(feature = "tonic-transport")] {
/// use annulus_compat::Incoming;
/// use tonic::transport::{Endpoint, Server};
/// # mod greeter { include!("../../examples/grpc/greeter.rs"); }
/// use greeter::{Client, Greeter, HelloRequest}; // As tonic's generator makes them.
///
/// annulus_tokio::run(async {
///     let incoming = Incoming::bind("127.0.0.1:0")?;
///     let origin = format!("http://{}", incoming.local_addr()?);
///     tokio::spawn(Server::builder().add_service(Greeter).serve_with_incoming(incoming));
///
///     # #[cfg(feature = "hyper-util")] {
///     let connector = annulus_compat::hyper_util::Connector::new();
///     let channel = Endpoint::try_from(origin)?.connect_with_connector(connector).await?;
///     let reply = Client::new(channel).say(HelloRequest { name: "tokio".into() }).await?;
///     assert_eq!(reply.into_inner().message, "hello, tokio");
///     # }
///     Ok::<_, Box<dyn std::error::Error>>(())
/// })
/// # .unwrap().unwrap();
/// # }
/// ```
#[derive(Debug)]
pub struct Incoming<L = TcpListener> {
    listener: OnThread<L>,
    /// No more connections can arrive.
    #[cfg(feature = "tonic-transport")]
    has_ended: bool,
}

impl Incoming {
    /// Listens on an address.
    ///
    /// # Errors
    /// The same as [`TcpListener::bind`].
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        TcpListener::bind(address).map(Self::new)
    }
}

impl<L: Listen> Incoming<L> {
    /// Accepts from an existing listener.
    pub fn new(listener: L) -> Self {
        Self {
            listener: OnThread::new(listener),
            #[cfg(feature = "tonic-transport")]
            has_ended: false,
        }
    }

    /// Returns the address that the listener is bound to.
    ///
    /// # Errors
    /// On a thread other than the one that created it, or after the runtime has ended.
    pub fn local_addr(&self) -> io::Result<L::Peer> {
        self.listener.try_ref()?.local_addr()
    }
}
