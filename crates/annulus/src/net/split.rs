//! The two directions of a stream, for two tasks.

use super::recv_buffer::RecvBuffer;
use super::stream_handle::{SendFuture, StreamHandle};
use super::stream_methods::{recv_methods, send_methods};
use crate::chunk::Chunk;
use crate::lease::Lease;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The receiving half of a [`TcpStream`](super::TcpStream) or [`UnixStream`](super::UnixStream).
pub struct RecvHalf {
    handle: Rc<StreamHandle>,
    unread: RecvBuffer,
}

impl RecvHalf {
    pub(super) fn new(handle: Rc<StreamHandle>, unread: RecvBuffer) -> Self {
        Self { handle, unread }
    }

    recv_methods!();

    /// The peer's address.
    ///
    /// # Errors
    /// If it is not a TCP stream, if the connection is closed, or after the runtime's end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.peer_address(fd)?.to_inet())
    }
}

/// The sending half of a [`TcpStream`](super::TcpStream) or [`UnixStream`](super::UnixStream). Dropping it closes the sending
/// direction once everything has left.
pub struct SendHalf {
    handle: Rc<StreamHandle>,
}

impl SendHalf {
    pub(super) fn new(handle: Rc<StreamHandle>) -> Self {
        Self { handle }
    }

    send_methods!();
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        if let Ok(mut inner) = self.handle.core.enter() {
            let inner = &mut *inner;
            inner.streams.get(self.handle.slot).0.end_when_sent(&mut inner.io);
        }
    }
}

impl fmt::Debug for RecvHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvHalf")
    }
}

impl fmt::Debug for SendHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendHalf")
    }
}
