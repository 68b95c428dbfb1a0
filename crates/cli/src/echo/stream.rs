//! Connections of either kind, and where they come from.

use annulus::Lease;
use annulus::net::{SendFuture, TcpStream, UnixListener, UnixStream};
use annulus::shards::ShardListener;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

/// What a worker accepts from.
#[derive(Debug)]
pub(super) enum Acceptor {
    Tcp(ShardListener),
    Path(UnixListener),
}

impl Acceptor {
    /// The next connection; `None` once the worker that accepts for all has left.
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

/// A connection.
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

    /// Ends the sending half once everything has gone.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| match self {
            Stream::Tcp(stream) => stream.poll_shutdown(cx),
            Stream::Unix(stream) => stream.poll_shutdown(cx),
        })
        .await
    }

    /// Waits for the end of what comes, and discards it.
    pub(super) async fn drain(&mut self) -> io::Result<()> {
        while poll_fn(|cx| self.poll_recv(cx)).await?.is_some() {}
        Ok(())
    }
}
