//! The two kinds of sessions as one.

use super::kernel::KernelSession;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

/// A session, by what encrypts what it sends.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every session is of rustls, and a stream of its own is not boxed"
)]
#[derive(Debug)]
pub(super) enum Session<S> {
    /// rustls.
    Rustls(tokio_rustls::TlsStream<S>),
    /// The kernel.
    Kernel(Box<KernelSession<S>>),
}

macro_rules! either {
    ($session:expr, $pinned:ident => $call:expr) => {
        match $session.get_mut() {
            Session::Rustls(session) => {
                let $pinned = Pin::new(session);
                $call
            }
            Session::Kernel(session) => {
                let $pinned = Pin::new(&mut **session);
                $call
            }
        }
    };
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncBufRead for Session<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        either!(self, session => session.poll_fill_buf(cx))
    }

    fn consume(self: Pin<&mut Self>, n: usize) {
        either!(self, session => session.consume(n));
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Session<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, session => session.poll_read(cx, buf))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Session<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self, session => session.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, session => session.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, session => session.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, session => session.poll_shutdown(cx))
    }
}
