//! A TCP connection.

use super::connect::ConnectOptions;
use super::parts::Parts;
use super::split::{RecvHalf, SendHalf};
use super::stream_handle::{AsStream, SendFuture, StreamHandle};
use super::stream_methods::{recv_methods, send_methods, stream_methods, stream_traits};
use crate::chunk::Chunk;
use crate::lease::Lease;
use crate::runtime::current;
use annulus_kernel::SocketOption;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A TCP connection.
///
/// Received bytes come as [`Lease`]s on buffers of the runtime; an idle connection holds none. What was queued is sent: a dropped
/// `send` completes in order, and a dropped stream closes once its queue is empty, within the runtime's
/// [linger](crate::Builder::linger). [`abort`](Self::abort) discards the queue.
///
/// One task at a time may wait for each direction; [`split`](Self::split) separates the two.
pub struct TcpStream {
    handle: StreamHandle,
}

impl TcpStream {
    /// Connects to the first of the addresses that accepts. Resolving a host name blocks the thread; a numeric address does not.
    ///
    /// Dropping the future cancels the attempt and closes its socket.
    ///
    /// # Errors
    /// `ConnectionRefused`, …, naming the address; or outside a runtime.
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        ConnectOptions::new().connect(address).await
    }

    /// As [`connect`](Self::connect), but fails with `TimedOut` after this long.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_timeout(
        address: impl ToSocketAddrs,
        timeout: Duration,
    ) -> io::Result<Self> {
        ConnectOptions::new().timeout(timeout).connect(address).await
    }

    pub(super) fn new(handle: StreamHandle) -> Self {
        Self { handle }
    }

    /// An accepted connection and its peer's address. If the peer has reset it, it has no address: counted, and `None`.
    pub(crate) fn with_peer(self) -> Option<(Self, SocketAddr)> {
        match self.peer_addr() {
            Ok(peer) => Some((self, peer)),
            Err(_) => {
                self.handle.count_abort();
                None
            }
        }
    }

    stream_methods!();

    /// Takes the connection off this runtime, to move it to another thread. Flushes what was sent, waits until the kernel no longer
    /// uses its memory, and ends the receive in flight; bytes that it brought are part of the result.
    ///
    /// # Errors
    /// The error of a send, or of the connection (`ConnectionReset`, …), even if bytes came before it: on the other runtime they would
    /// look complete. The connection is then closed. `Unsupported` under a simulated kernel.
    pub async fn into_parts(self) -> io::Result<Parts> {
        let Self { handle } = self;
        if !handle.core.kernel.real_descriptors() {
            let text = "a simulated connection cannot leave its simulation";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        poll_fn(|cx| handle.poll_with(|stream, _, io| stream.poll_over(io, cx))).await?;
        poll_fn(|cx| handle.poll_with(|stream, _, io| stream.poll_stopped(io, cx))).await?;
        let (fd, received, permit) = {
            let inner = &mut *handle.core.enter()?;
            inner.streams.release(&mut inner.io, handle.slot)
        };
        handle.forget();
        Ok(Parts::of_fd(fd, received, permit))
    }

    /// Takes a connection over from another runtime, with the bytes received there.
    ///
    /// # Errors
    /// Outside a runtime, or under a simulated kernel; the connection is then closed.
    pub fn from_parts(parts: Parts) -> io::Result<Self> {
        let core = current::get()?;
        let mut inner = core.enter()?;
        if !core.kernel.real_descriptors() {
            let text = "a real connection cannot enter a simulation";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        if parts.received.len() > i32::MAX as usize {
            let text =
                format!("{} bytes received ahead are above {}", parts.received.len(), i32::MAX);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (fd, received, permit) = parts.take();
        let slot = {
            let inner = &mut *inner;
            inner.streams.adopt(&inner.io, fd, received, permit)
        };
        drop(inner);
        Ok(Self::new(StreamHandle::of_slot(core, slot)))
    }

    /// The peer's address.
    ///
    /// # Errors
    /// If the connection is closed, or after the runtime's end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.peer_address(fd)?.to_inet())
    }

    /// The local address.
    ///
    /// # Errors
    /// After the runtime's end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.local_address(fd)?.to_inet())
    }

    /// Whether small sends leave at once (`TCP_NODELAY`); on by default.
    ///
    /// # Errors
    /// If the connection is closed, or after the runtime's end.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.handle.with_fd(|kernel, fd| kernel.set_option(fd, SocketOption::NoDelay(on)))
    }
}

stream_traits!(TcpStream);
