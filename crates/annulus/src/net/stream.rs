//! A TCP connection.

use super::addresses::ToSocketAddrs;
use super::connect::ConnectOptions;
use super::keep_alive::KeepAlive;
use super::option_methods::*;
use super::parts::Parts;
use super::recv_buffer::RecvBuffer;
use super::socket::Socket;
use super::split::{Family, RecvHalf, ReuniteError, SendHalf, reunite};
use super::stream_handle::{AsStream, SendFuture, StreamHandle};
use super::stream_methods::shared;
use crate::bytes::chunk::Chunk;
use crate::bytes::lease::Lease;
use crate::runtime::current;
use annulus_kernel::SocketOption;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A TCP connection.
///
/// Received bytes are [`Lease`]s on buffers of the runtime; an idle connection holds no buffer.
/// Queued bytes are sent: a dropped `send` completes in order, and a dropped stream closes once its
/// queue is empty, within the runtime's [linger](crate::Builder::linger). [`abort`](Self::abort)
/// discards the queue.
///
/// One task at a time may wait for each direction; [`split`](Self::split) separates the two.
///
/// ```
/// use annulus::net::{TcpListener, TcpStream};
///
/// # annulus::run(async {
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut client = TcpStream::connect(listener.local_addr()?).await?;
/// let (mut server, _peer) = listener.accept().await?;
///
/// client.send("ping").await?; // Queued; it leaves at the end of the turn.
/// let lease = server.recv().await?.expect("not the end yet");
/// server.send(lease).await?; // The same bytes, without a copy.
/// assert_eq!(&*client.recv_exact(4).await?, b"ping");
/// client.shutdown().await?;
/// assert!(server.recv().await?.is_none()); // The end.
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct TcpStream {
    handle: StreamHandle,
    unread: RecvBuffer,
}

impl TcpStream {
    /// Connects to the first of the addresses that answers. A host name is looked up on another
    /// thread, as in [`lookup_host`](super::lookup_host). Several addresses race as described in
    /// RFC 8305. They are tried in the order of the look-up, alternating between IPv6 and IPv4. The
    /// next attempt begins when one fails or has not succeeded within 250 ms
    /// ([`attempt_delay`](ConnectOptions::attempt_delay)).
    ///
    /// Dropping the future cancels all attempts and closes their sockets.
    ///
    /// # Errors
    /// `ConnectionRefused`, …, with each address that was tried in the message. It is also
    /// `ConnectionRefused` if the system has connected the socket to itself, because no server
    /// listens there. The errors of [`lookup_host`](super::lookup_host); or outside a runtime.
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        ConnectOptions::new().connect(address).await
    }

    /// Like [`connect`](Self::connect), but fails with `TimedOut` if the look-up, or each of the
    /// addresses, takes longer than this.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect).
    pub async fn connect_timeout(
        address: impl ToSocketAddrs,
        timeout: Duration,
    ) -> io::Result<Self> {
        ConnectOptions::new().timeout(timeout).connect(address).await
    }

    pub(super) fn new(handle: StreamHandle) -> Self {
        Self { handle, unread: RecvBuffer::default() }
    }

    /// Returns an accepted connection with its peer's address. If the peer has already reset it,
    /// counts that and returns `None`.
    ///
    /// # Errors
    /// A system error, for example from a filter that denies the call. Closing the connection
    /// silently would look like an outage.
    pub(crate) fn with_peer(self) -> io::Result<Option<(Self, SocketAddr)>> {
        match self.peer_addr() {
            Ok(peer) => {
                self.handle.set_peer(peer);
                Ok(Some((self, peer)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                self.handle.count_abort();
                Ok(None)
            }
            Err(error) => {
                // Close before returning, so that the peer is not left waiting if the program ends
                // its loop because of the error.
                let polled = self.handle.poll_release(&Context::from_waker(Waker::noop()));
                if let Poll::Ready(Ok(released)) = polled {
                    self.handle.close(released)?;
                }
                Err(error)
            }
        }
    }

    const FAMILY: Family = Family::Tcp;

    shared!(stream);

    shared!(parts std::net::TcpStream);

    /// Returns the peer's address.
    ///
    /// # Errors
    /// If the connection is closed or the runtime has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.peer_address(fd)?.to_inet())
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// If the runtime has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.local_address(fd)?.to_inet())
    }
}

/// Options.
impl TcpStream {
    options!(methods: buffer tcp ip quickack error device);

    /// Turns probing of the idle connection on or off (`SO_KEEPALIVE`). Off by default.
    ///
    /// # Errors
    /// `InvalidInput` for a value that Linux does not support; if the connection is closed; or if
    /// the runtime has ended.
    pub fn set_keepalive(&self, keepalive: Option<KeepAlive>) -> io::Result<()> {
        self.handle.set_keepalive(keepalive)
    }

    /// Returns when the idle connection is probed, or `None` if it is not probed.
    ///
    /// # Errors
    /// If the runtime has ended.
    pub fn keepalive(&self) -> io::Result<Option<KeepAlive>> {
        self.handle.keepalive()
    }

    /// Sets what happens on close to bytes that the kernel has and the peer has not received
    /// (`SO_LINGER`). With `None`, the default, the kernel continues to send them. With
    /// `Some(Duration::ZERO)`, it discards them and resets the connection; [`abort`](Self::abort)
    /// does that at once. [`Builder::linger`](crate::Builder::linger) applies to bytes that the
    /// kernel does not have yet.
    ///
    /// # Errors
    /// `InvalidInput` for any other time, because the close would block the thread that long. To
    /// find out whether the peer has received everything, call [`shutdown`](Self::shutdown), then
    /// [`recv`](Self::recv) until the end of the stream. If the runtime has ended.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        if let Some(time) = linger.filter(|time| !time.is_zero()) {
            let text = format!(
                "a close that lingers for {time:?} would block the thread; choose 0 or None, or shut down and receive until the end"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.handle.set(SocketOption::Linger, linger.map_or(SocketOption::NO_LINGER, |_| 0))
    }

    /// Returns the setting for closing the socket: see [`set_linger`](Self::set_linger).
    ///
    /// # Errors
    /// If the runtime has ended.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        let seconds = self.handle.query(SocketOption::Linger)?;
        Ok((seconds != SocketOption::NO_LINGER).then(|| Duration::from_secs(seconds.into())))
    }
}

shared!(traits TcpStream);
