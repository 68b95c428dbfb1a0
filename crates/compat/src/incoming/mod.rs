//! Connections for the servers of axum and tonic.

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "tonic-transport")]
mod tonic;

use crate::{Listen, OnThread};
use annulus::net::{TcpListener, ToSocketAddrs};
use std::io;

/// Connections of annulus for `axum::serve` (feature `axum`) and tonic's `serve_with_incoming` (feature `tonic-transport`), in a runtime of
/// `annulus-tokio`: both spawn by `tokio::spawn`. It accepts on the thread that made it, from any [`Listen`]er: over Unix sockets, over TLS
/// (`rustls::TlsListener`), or by one of its own. Dropping it closes the listener.
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
/// For handlers that take `ConnectInfo<SocketAddr>`, axum's `tap_io` goes around it, since axum gives addresses of its own listeners alone:
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
/// One loop a core: `annulus_tokio::run_each`, whose threads each listen with
/// [`ListenOptions::reuse_port`](annulus::net::ListenOptions::reuse_port).
///
/// For tonic, it ends with the runtime:
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
    /// No connection can come any more.
    #[cfg(feature = "tonic-transport")]
    has_ended: bool,
}

impl Incoming {
    /// Listens on an address.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        TcpListener::bind(address).map(Self::new)
    }
}

impl<L: Listen> Incoming<L> {
    /// Accepts from a listener that has settings of its own.
    pub fn new(listener: L) -> Self {
        Self {
            listener: OnThread::new(listener),
            #[cfg(feature = "tonic-transport")]
            has_ended: false,
        }
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// On another thread than the one that made it, or after the runtime's end.
    pub fn local_addr(&self) -> io::Result<L::Peer> {
        self.listener.try_ref()?.local_addr()
    }
}
