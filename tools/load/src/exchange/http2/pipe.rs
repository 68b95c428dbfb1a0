//! A stream of bytes that is two buffers: what was received and not read, and what was written and not sent.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Debug, Default)]
struct Buffers {
    received: Vec<u8>,
    /// The number of received bytes that were read.
    read: usize,
    is_closed: bool,
    written: Vec<u8>,
}

/// A stream in memory; a clone is another handle on the same buffers. h2 reads and writes one handle as a stream; the session fills and
/// empties the buffers by the other. [`receive`](Pipe::receive) and [`close`](Pipe::close) wake nothing: h2 has to be polled after them.
#[derive(Clone, Debug, Default)]
pub(super) struct Pipe(Rc<RefCell<Buffers>>);

impl Pipe {
    /// Bytes to be read.
    pub(super) fn receive(&self, bytes: &[u8]) {
        let mut buffers = self.0.borrow_mut();
        let read = std::mem::take(&mut buffers.read);
        buffers.received.drain(..read);
        buffers.received.extend_from_slice(bytes);
    }

    /// No more bytes to be read.
    pub(super) fn close(&self) {
        self.0.borrow_mut().is_closed = true;
    }

    /// Appends what was written.
    pub(super) fn take(&self, out: &mut Vec<u8>) {
        out.append(&mut self.0.borrow_mut().written);
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffers = self.0.borrow_mut();
        let unread = &buffers.received[buffers.read..];
        if unread.is_empty() && !buffers.is_closed {
            return Poll::Pending;
        }
        let count = unread.len().min(buf.remaining());
        buf.put_slice(&unread[..count]);
        buffers.read += count;
        if buffers.read == buffers.received.len() {
            // An idle connection holds none.
            (buffers.received, buffers.read) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = &mut self.0.borrow_mut().written;
        slices.iter().for_each(|slice| written.extend_from_slice(slice));
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
