//! axum 0.8 on sockets of annulus, in a runtime of `annulus-tokio`: `axum::serve` spawns its connections by `tokio::spawn`.
//!
//! ```
//! use annulus_compat::axum::Incoming;
//! use axum::{Router, routing::get};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! annulus_tokio::run(async {
//!     let incoming = Incoming::bind("127.0.0.1:0")?;
//!     let address = incoming.local_addr()?;
//!     let router = Router::new().route("/", get(async || "hello"));
//!     tokio::spawn(async move { axum::serve(incoming, router).await });
//!
//!     let mut client = tokio::net::TcpStream::connect(address).await?;
//!     client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
//!     let mut answer = String::new();
//!     client.read_to_string(&mut answer).await?;
//!     assert!(answer.ends_with("hello"));
//!     std::io::Result::Ok(())
//! })?
//! # ;
//! # std::io::Result::Ok(())
//! ```

use crate::{OnThread, SendStream};
use annulus::net::{TcpListener, ToSocketAddrs};
use annulus::time::sleep;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::future::{pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// How long a listener that has failed, as for want of descriptors, waits before it tries again, as axum's own does.
const PAUSE: Duration = Duration::from_secs(1);

/// The address of the peer, for handlers that take `ConnectInfo<Peer>`: as `SocketAddr` with tokio's listener, which axum allows
/// for that alone.
///
/// ```
/// use annulus_compat::axum::{Incoming, Peer};
/// use axum::{Router, extract::ConnectInfo, routing::get};
///
/// async fn serve(incoming: Incoming) -> std::io::Result<()> {
///     let hello = async |ConnectInfo(Peer(address)): ConnectInfo<Peer>| format!("hello, {address}");
///     let router = Router::new().route("/", get(hello));
///     axum::serve(incoming, router.into_make_service_with_connect_info::<Peer>()).await
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub SocketAddr);

impl Connected<IncomingStream<'_, Incoming>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Incoming>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// A listener for `axum::serve`. It accepts on the thread that made it.
#[derive(Debug)]
pub struct Incoming(OnThread<TcpListener>);

impl Incoming {
    /// Listens on an address.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        TcpListener::bind(address).map(Self::new)
    }

    /// Accepts from a listener that has settings of its own.
    pub fn new(listener: TcpListener) -> Self {
        Self(OnThread::new(listener))
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// On another thread than the one that made it, or after the runtime's end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.try_ref()?.local_addr()
    }
}

impl Listener for Incoming {
    type Io = SendStream;
    type Addr = SocketAddr;

    /// After an error of the listener it tries again; after the runtime's end it waits for ever, and a graceful shutdown still ends the server.
    ///
    /// # Panics
    /// On another thread than the one that made it.
    fn accept(&mut self) -> impl Future<Output = (SendStream, SocketAddr)> + Send {
        let listener = self.0.try_ref();
        OnThread::new(async move {
            let listener = listener.unwrap_or_else(|wrong| panic!("{wrong}"));
            until_accepted(async || listener.accept().await).await
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

/// Accepts until there is a connection: axum's `accept` has no errors.
pub(crate) async fn until_accepted<S>(
    mut accept: impl AsyncFnMut() -> io::Result<(S, SocketAddr)>,
) -> (SendStream<S>, SocketAddr) {
    loop {
        match accept().await {
            Ok((stream, peer)) => return (SendStream::new(stream), peer),
            Err(_) if has_ended() => pending().await,
            Err(_) => pause().await,
        }
    }
}

fn has_ended() -> bool {
    annulus::handle().is_err()
}

/// Waits, without a look at the timer after the runtime's end, which would be a panic.
async fn pause() {
    let mut timer = pin!(sleep(PAUSE));
    poll_fn(|cx| if has_ended() { Poll::Pending } else { timer.as_mut().poll(cx) }).await;
}
