//! A stream that the runtime does not recognise as its own.

use annulus::io::{AsyncRecv, AsyncSend};
use annulus::net::TcpStream;
use std::io;
use std::task::{Context, Poll};

/// Shows at most this many bytes at once, unless more are requested.
pub(crate) struct Piecewise(pub(crate) TcpStream, pub(crate) usize);

impl AsyncRecv for Piecewise {
    fn poll_fill_at_least(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        let most = n.max(self.1);
        self.0.poll_fill_at_least(cx, n).map_ok(|bytes| &bytes[..bytes.len().min(most)])
    }

    fn consume(&mut self, n: usize) {
        AsyncRecv::consume(&mut self.0, n);
    }
}

impl AsyncSend for Piecewise {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncSend::poll_flush(&mut self.0, cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncSend::poll_shutdown(&mut self.0, cx)
    }
}
