//! TCP and Unix connections, and their listeners.

use annulus::Lease;
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::net::{SendFuture, TcpStream, UnixListener, UnixStream};
use annulus::shards::ShardListener;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

/// A worker's listener.
#[derive(Debug)]
pub(super) enum Acceptor {
    Tcp(ShardListener),
    Path(UnixListener),
}

impl Acceptor {
    /// Returns the next connection, or `None` once the accepting worker has shut down.
    pub(super) async fn accept(&mut self) -> io::Result<Option<Stream>> {
        match self {
            Acceptor::Tcp(listeners) => {
                Ok(listeners.accept().await?.map(|(stream, _)| Stream::Tcp(stream)))
            }
            Acceptor::Path(listener) => {
                listener.accept().await.map(|(stream, _)| Some(Stream::Unix(stream)))
            }
        }
    }
}

#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    #[inline]
    pub(super) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        match self {
            Stream::Tcp(stream) => stream.poll_recv(cx),
            Stream::Unix(stream) => stream.poll_recv(cx),
        }
    }

    #[inline]
    pub(super) fn send(&mut self, lease: Lease) -> SendFuture<'_> {
        match self {
            Stream::Tcp(stream) => stream.send(lease),
            Stream::Unix(stream) => stream.send(lease),
        }
    }

    /// Closes the sending half once everything has been sent.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| match self {
            Stream::Tcp(stream) => stream.poll_shutdown(cx),
            Stream::Unix(stream) => stream.poll_shutdown(cx),
        })
        .await
    }

    /// Receives and discards bytes until the end of the stream.
    pub(super) async fn drain(&mut self) -> io::Result<()> {
        while poll_fn(|cx| self.poll_recv(cx)).await?.is_some() {}
        Ok(())
    }
}
