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

use crate::OnThread;
use annulus::net::{TcpListener, TcpStream, ToSocketAddrs};
use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long a listener that has failed waits before it tries again, as axum's own does.
const PAUSE: Duration = Duration::from_secs(1);

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

    /// # Panics
    /// On another thread than the one that made it.
    fn accept(&mut self) -> impl Future<Output = (SendStream, SocketAddr)> + Send {
        let listener = self.0.try_ref();
        OnThread::new(async move {
            let listener = listener.unwrap_or_else(|wrong| panic!("{wrong}"));
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => return (SendStream::new(stream), peer),
                    // It is useless: as axum's own listener, this one tries again.
                    Err(_) => annulus::time::sleep(PAUSE).await,
                }
            }
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

/// A stream for libraries that ask for tokio's traits and `Send`. A use on another thread than the one that made it is an error.
#[derive(Debug)]
pub struct SendStream<S = TcpStream>(OnThread<S>);

impl<S> SendStream<S> {
    /// Wraps a stream of this thread.
    pub fn new(stream: S) -> Self {
        Self(OnThread::new(stream))
    }

    fn pin(self: Pin<&mut Self>) -> io::Result<Pin<&mut S>>
    where
        S: Unpin,
    {
        Ok(Pin::new(self.get_mut().0.try_mut()?))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SendStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.pin()?.poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SendStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pin()?.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin()?.poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pin()?.poll_write_vectored(cx, slices)
    }
}
