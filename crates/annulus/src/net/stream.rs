//! A TCP connection.

use super::parts::Parts;
use super::resolve::{failed, last_error, resolve};
use super::split::{RecvHalf, SendHalf};
use super::stream_handle::{AsSocket, NewFd, SendFuture, Socket};
use crate::chunk::Chunk;
use crate::lease::Lease;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::time::Instant;
use annulus_kernel::{Address, Fd, SocketOption};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A TCP connection.
///
/// Received bytes come as [`Lease`]s on memory that the ring lent; an idle connection holds none. What was accepted for
/// sending is sent: a dropped `send` finishes in order, and a dropped stream closes after its queue has drained, within
/// the runtime's linger. [`abort`](Self::abort) discards.
///
/// One task at a time may wait for each direction; [`split`](Self::split) parts the two.
pub struct TcpStream {
    socket: Socket,
}

impl TcpStream {
    /// Connects, trying the addresses in turn. Resolving a name blocks the thread; numbers do not.
    ///
    /// Dropping the future cancels the attempt and closes its socket.
    ///
    /// # Errors
    /// `ConnectionRefused`, …, naming the address; or outside a runtime.
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        ConnectOptions::new().connect(address).await
    }

    /// As [`connect`](Self::connect), but gives up after a time: `TimedOut`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_timeout(
        address: impl ToSocketAddrs,
        timeout: Duration,
    ) -> io::Result<Self> {
        ConnectOptions::new().timeout(timeout).connect(address).await
    }

    pub(super) fn from_socket(socket: Socket) -> Self {
        Self { socket }
    }

    /// An accepted connection and its peer's address; `None`, counted, if the peer has reset it meanwhile: it has no address then.
    pub(crate) fn with_peer(self) -> Option<(Self, SocketAddr)> {
        match self.peer_addr() {
            Ok(peer) => Some((self, peer)),
            Err(_) => {
                self.socket.count_abort();
                None
            }
        }
    }

    /// The next bytes, at least one of them; `None` at the end of the stream, from then on every time.
    ///
    /// Cancel-safe: the receive belongs to the stream; dropping the future loses no byte. Leases that are held never keep
    /// the stream from receiving.
    ///
    /// # Errors
    /// `ConnectionReset`, …, after all bytes that came before it; from then on every time.
    #[inline]
    pub async fn recv(&mut self) -> io::Result<Option<Lease>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`recv`](Self::recv), by polling.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    #[inline]
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        self.socket.poll_recv(cx)
    }

    /// Sends all of a chunk: a lease, or any owned bytes. It leaves with the turn, in one operation with whatever else is
    /// queued, and without being copied.
    ///
    /// Resolves once what is queued fits the runtime's send bound. Once polled, the chunk is accepted and will be sent in
    /// order even if the future is dropped (unless an earlier, dropped `send` still fills the queue: then it waits, and
    /// dropping it sends nothing).
    ///
    /// # Errors
    /// Those of earlier sends, since this one is still to go: `BrokenPipe`, `ConnectionReset`, …; use
    /// [`flush`](Self::flush) for certainty. `BrokenPipe` after [`shutdown`](Self::shutdown).
    #[inline]
    pub fn send(&mut self, chunk: impl Into<Chunk>) -> SendFuture<'_> {
        self.socket.send(chunk.into())
    }

    /// Sends several chunks, in order, as one.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_vectored<C: Into<Chunk>>(
        &mut self,
        chunks: impl IntoIterator<Item = C>,
    ) -> io::Result<()> {
        self.socket.send_all(chunks.into_iter().map(Into::into)).await
    }

    /// Copies as many bytes as the send bound leaves room for; they leave with the turn. Waits where there is no room.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_write(cx, bytes)
    }

    /// Waits until the kernel has taken everything that was sent. Cancel-safe.
    ///
    /// # Errors
    /// What a send ran into; from then on every time.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// As [`flush`](Self::flush), by polling.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_flush(cx)
    }

    /// Ends the sending half once everything has gone: the peer sees the end of the stream. Receiving goes on.
    /// Cancel-safe; once polled, it happens even if the future is dropped.
    ///
    /// # Errors
    /// What a send ran into.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_shutdown(cx)).await
    }

    /// As [`shutdown`](Self::shutdown), by polling.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown).
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_shutdown(cx)
    }

    /// Discards what is still to be sent and resets the connection.
    pub fn abort(self) {
        self.socket.abort();
    }

    /// Parts the two directions, to be used by two tasks. The connection closes when both halves are gone; dropping the
    /// sending half alone ends the sending side.
    pub fn split(self) -> (RecvHalf, SendHalf) {
        let socket = Rc::new(self.socket);
        (RecvHalf::new(socket.clone()), SendHalf::new(socket))
    }

    /// Takes the connection off this runtime, to move it to another thread: what was sent is flushed, and its memory back
    /// where it was not copied; the receive in flight is ended, and what it brought comes along.
    ///
    /// # Errors
    /// What a send ran into; `ConnectionReset`, …, where the connection has failed, also behind bytes that nobody took yet:
    /// elsewhere they would look like all there is. The connection is then closed. `Unsupported` under a simulated kernel.
    pub async fn into_parts(self) -> io::Result<Parts> {
        let Self { socket } = self;
        if !socket.core.kernel.real_descriptors() {
            let text = "a simulated connection cannot leave its simulation";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        poll_fn(|cx| socket.poll_with(|stream, _, io| stream.poll_over(io, cx))).await?;
        poll_fn(|cx| socket.poll_with(|stream, _, io| stream.poll_stopped(io, cx))).await?;
        let (fd, received, permit) = {
            let inner = &mut *socket.core.enter()?;
            inner.streams.release(&mut inner.io, socket.slot)
        };
        socket.forget();
        Ok(Parts::of_fd(fd, received, permit))
    }

    /// Takes a connection over from another runtime, with what it had received.
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
        Ok(Self { socket: Socket::of_slot(core, slot) })
    }

    /// The address at the other end.
    ///
    /// # Errors
    /// Where the peer has gone, or after the runtime's end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// The address at this end.
    ///
    /// # Errors
    /// After the runtime's end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Whether small sends leave at once (`TCP_NODELAY`); on by default.
    ///
    /// # Errors
    /// Where the peer has gone, or after the runtime's end.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.socket.set_nodelay(on)
    }
}

impl AsSocket for TcpStream {
    fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream")
            .field("local", &self.local_addr().ok())
            .field("peer", &self.peer_addr().ok())
            .finish()
    }
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    timeout: Option<Duration>,
    nodelay: bool,
    source: Option<IpAddr>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { timeout: None, nodelay: true, source: None }
    }
}

impl ConnectOptions {
    /// No delay on, no timeout but the system's (minutes).
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives up on each address after this long.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Small sends leave at once (`TCP_NODELAY`). On by default.
    pub fn nodelay(mut self, on: bool) -> Self {
        self.nodelay = on;
        self
    }

    /// Leaves from this address of the machine, instead of one of the system's choice; the port is the system's choice
    /// either way. Connections from several addresses have more ports between them.
    pub fn source(mut self, address: IpAddr) -> Self {
        self.source = Some(address);
        self
    }

    /// Connects: see [`TcpStream::connect`].
    ///
    /// # Errors
    /// As [`TcpStream::connect`].
    pub async fn connect(&self, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let core = current::get()?;
        let mut error = None;
        for address in resolve(address)? {
            match self.connect_one(&core, address).await {
                Ok(stream) => return Ok(stream),
                Err(e) => error = Some(failed(e, "connecting to", &address)),
            }
        }
        Err(last_error(error))
    }

    async fn connect_one(&self, core: &Rc<Core>, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = NewFd::tcp_for(&core.kernel, address)?;
        socket.set(SocketOption::NoDelay(self.nodelay))?;
        if let Some(source) = self.source {
            socket.set(SocketOption::BindAddressNoPort(true))?;
            socket.bind(&Address::from(SocketAddr::new(source, 0)))?;
        }
        let attempt = Attempt::start(core, socket, address, self.timeout)?;
        let fd = attempt.connected().await?;
        Ok(TcpStream { socket: Socket::new(core.clone(), fd)? })
    }
}

/// A connection attempt, cancelled on drop.
struct Attempt {
    core: Rc<Core>,
    slot: Option<u32>,
}

impl Attempt {
    fn start(
        core: &Rc<Core>,
        socket: NewFd,
        address: SocketAddr,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let inner = &mut *core.enter()?;
        let (fd, address) = (socket.into_fd(), Address::from(address));
        let slot = inner.connects.start(&mut inner.io, fd, address, deadline);
        Ok(Self { core: core.clone(), slot: Some(slot) })
    }

    async fn connected(mut self) -> io::Result<Fd> {
        poll_fn(|cx| {
            let Some(slot) = self.slot else { unreachable!("polled after it was ready") };
            let inner = &mut *self.core.enter_running()?;
            let outcome = ready!(inner.connects.poll(&mut inner.io, slot, cx));
            self.slot = None;
            Poll::Ready(outcome)
        })
        .await
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let (Some(slot), Ok(mut inner)) = (self.slot, self.core.enter()) {
            let inner = &mut *inner;
            inner.connects.drop_connect(&mut inner.io, slot);
        }
    }
}
