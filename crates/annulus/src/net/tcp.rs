//! TCP connections.

use super::connect::ConnectOptions;
use super::option_methods::*;
use super::parts::Parts;
use super::recv_buffer::RecvBuffer;
use super::resolve::ToSocketAddrs;
use super::socket::Socket;
use super::split::{Family, RecvHalf, ReuniteError, SendHalf, reunite};
use super::stream_handle::{AsStream, SendFuture, StreamHandle};
use crate::bytes::chunk::IntoChunk;
use crate::bytes::lease::Lease;
use crate::slots::interest::Interest;
use annulus_kernel::SocketOption;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A TCP connection.
///
/// Received bytes are [`Lease`]s on buffers of the runtime; an idle connection holds no buffer.
/// Queued bytes are sent even if the future of the `send` is dropped. A dropped stream closes once
/// its queue is empty, at the latest when the runtime's [linger](crate::Builder::linger) time
/// expires. [`abort`](Self::abort) discards the queue.
///
/// One task at a time may wait to receive, and one to send. [`into_split`](Self::into_split)
/// gives each direction its own handle.
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
    /// Connects to the first of the addresses that answers. Looking up a host name does not block
    /// the loop: see [`lookup_host`](super::lookup_host). Several addresses race as described in
    /// RFC 8305. They are tried in the order of the look-up, alternating between IPv6 and IPv4. The
    /// next attempt begins when one fails or has not succeeded within 250 ms
    /// ([`attempt_delay`](ConnectOptions::attempt_delay)).
    ///
    /// Dropping the future cancels all attempts and closes their sockets.
    ///
    /// # Errors
    /// Fails with `ConnectionRefused` or another error of the system; the message lists each
    /// address that was tried. `ConnectionRefused` is also returned if no server listens and the
    /// system has connected the socket to itself. Also fails with the errors of
    /// [`lookup_host`](super::lookup_host), and outside a runtime.
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        ConnectOptions::new().connect(address).await
    }

    /// Like [`connect`](Self::connect), but allows only `timeout` for the look-up, and then for
    /// each address.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect); `TimedOut`.
    pub async fn connect_timeout(
        address: impl ToSocketAddrs,
        timeout: Duration,
    ) -> io::Result<Self> {
        ConnectOptions::new().timeout(timeout).connect(address).await
    }

    pub(super) fn new(handle: StreamHandle) -> Self {
        Self { handle, unread: RecvBuffer::default() }
    }

    /// Returns an accepted connection with its peer's address. If the peer has already reset the
    /// connection, counts it as aborted and returns `None`.
    ///
    /// # Errors
    /// A system error, for example because a seccomp filter denies the call.
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
                // The runtime may not take another turn after this error, so close the connection
                // now. Otherwise the peer would wait.
                let polled = self.handle.poll_release(&Context::from_waker(Waker::noop()));
                if let Poll::Ready(Ok(released)) = polled {
                    self.handle.close(released)?;
                }
                Err(error)
            }
        }
    }

    const FAMILY: Family = Family::Tcp;

    pub(crate) fn source_handle(&self) -> &StreamHandle {
        &self.handle
    }

    /// Returns what receiving takes: the handle, and the bytes that it has shown.
    pub(crate) fn source(&mut self) -> (&StreamHandle, &mut RecvBuffer) {
        (&self.handle, &mut self.unread)
    }

    /// Returns the next bytes, at least one, or `None` at the end of the stream and on every later
    /// call. Bytes that [`fill_buf`](Self::fill_buf) or [`fill_at_least`](Self::fill_at_least)
    /// showed and that were not consumed come first.
    ///
    /// Cancel-safe: the receive belongs to the stream, so dropping the future loses no byte.
    /// Leases that are still held do not stop the stream from receiving.
    ///
    /// # Errors
    /// `ConnectionReset` and others, after all bytes received before it, and on every later
    /// call.
    #[inline]
    pub fn recv(&mut self) -> impl Future<Output = io::Result<Option<Lease>>> {
        poll_fn(|cx| self.unread.poll_recv(&self.handle, cx))
    }

    /// Like [`recv`](Self::recv), but returns only bytes that earlier turns of the loop have
    /// received. A call that finds none starts receiving, so the first call usually returns
    /// `WouldBlock`. A task that polled before is still woken.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has been received yet, and the errors of [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> io::Result<Option<Lease>> {
        self.unread.try_recv(&self.handle)
    }

    /// Waits until [`try_recv`](Self::try_recv) and [`try_read`](Self::try_read) find bytes,
    /// the end of the stream or an error. The bytes are then in the runtime's memory and no
    /// longer in the kernel, so your own system calls would not find them.
    ///
    /// Cancel-safe. Only one task at a time may wait.
    ///
    /// # Errors
    /// If the loop of its runtime is not running.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.unread.poll_readable(&self.handle, cx)).await
    }

    /// Like [`try_recv`](Self::try_recv), but copies the bytes of one lease into the caller's
    /// memory. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// The errors of [`try_recv`](Self::try_recv).
    pub fn try_read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        self.unread.try_read(&self.handle, memory)
    }

    /// Like [`try_read`](Self::try_read), but fills several pieces of memory in order, with all
    /// bytes that have been received.
    ///
    /// # Errors
    /// The errors of [`try_read`](Self::try_read), unless some bytes were copied.
    pub fn try_read_vectored(&mut self, memory: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.unread.try_read_vectored(&self.handle, memory)
    }

    /// Shows the next bytes, at least one, without a copy, or none at the end of the stream. They
    /// stay until they are [consumed](Self::consume).
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// The errors of [`recv`](Self::recv).
    #[inline]
    pub async fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.fill_at_least(1).await
    }

    /// Drops the first `n` of the bytes that [`fill_buf`](Self::fill_buf) or
    /// [`fill_at_least`](Self::fill_at_least) has shown.
    ///
    /// # Panics
    /// If fewer than `n` bytes were shown.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        self.unread.consume(n);
    }

    /// Like [`fill_buf`](Self::fill_buf), but waits for at least `n` bytes. It shows fewer only
    /// at the end of the stream. Bytes that span several leases are copied into one piece of
    /// memory. The `peek` of other libraries copies to the caller's memory, and does not wait for a
    /// number of bytes.
    ///
    /// Cancel-safe: received bytes stay in the stream.
    ///
    /// # Errors
    /// The errors of [`recv`](Self::recv), even if fewer than `n` bytes arrived before the
    /// error. Those bytes stay, and [`recv`](Self::recv) returns them.
    pub async fn fill_at_least(&mut self, n: usize) -> io::Result<&[u8]> {
        poll_fn(|cx| self.unread.poll_fill_at_least(&self.handle, cx, n).map_ok(drop)).await?;
        Ok(self.unread.shown())
    }

    /// Returns the next `n` bytes as one lease. They are copied into heap memory if they arrived in
    /// several leases.
    ///
    /// Cancel-safe: received bytes stay in the stream.
    ///
    /// # Errors
    /// The errors of [`recv`](Self::recv), and `UnexpectedEof` if the stream ends first, with the
    /// number of received bytes in the message. These bytes stay, and [`recv`](Self::recv) returns
    /// them.
    pub async fn recv_exact(&mut self, n: usize) -> io::Result<Lease> {
        poll_fn(|cx| self.unread.poll_exact(&self.handle, cx, n)).await
    }

    /// Queues a chunk, which is a [`Lease`](crate::Lease) or any owned bytes, and sends all of it.
    /// The chunks of a turn are sent together. They are not copied, unless a copy costs less: for
    /// neighbours of up to 1 KiB each in the queue, and for chunks of up to 8 KiB while the peer
    /// makes no room.
    ///
    /// Resolves once the queue is within the runtime's [unsent
    /// limit](crate::Builder::unsent_limit). The first poll usually queues the chunk, which is then
    /// sent even if the future is dropped. If the queue is full, or the task has used up its
    /// budget, the chunk is not queued yet. Dropping the future then sends nothing.
    ///
    /// # Errors
    /// The error of an earlier send (`BrokenPipe`, `ConnectionReset` and others), because this
    /// chunk has not been sent yet. To see the error of this send, call [`drain`](Self::drain).
    /// `BrokenPipe` after [`shutdown`](Self::shutdown).
    #[inline]
    pub fn send(&mut self, chunk: impl IntoChunk) -> SendFuture<'_> {
        self.handle.send(chunk.into())
    }

    /// Sends several chunks in order. If the future is dropped, the chunks that it has queued
    /// are sent, and the rest are not.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub async fn send_vectored<C: IntoChunk>(
        &mut self,
        chunks: impl IntoIterator<Item = C>,
    ) -> io::Result<()> {
        self.handle.send_all(chunks.into_iter().map(Into::into)).await
    }

    /// Waits until [`try_write`](Self::try_write) would accept bytes. This means that the queue is
    /// below the unsent limit, even if the kernel has no space.
    ///
    /// Cancel-safe. Only one task at a time may wait.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.handle.poll_space(cx)).await
    }

    /// Waits until the stream is ready in any direction of `interest`, as
    /// [`readable`](Self::readable) and [`writable`](Self::writable) do, and returns the directions
    /// that are ready.
    ///
    /// Cancel-safe. Only one task at a time may wait for each direction.
    ///
    /// ```
    /// use annulus::io::Interest;
    /// use annulus::net::{TcpListener, TcpStream};
    ///
    /// # annulus::run(async {
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let one = TcpStream::connect(listener.local_addr()?).await?;
    /// let ready = one.ready(Interest::READABLE | Interest::WRITABLE).await?;
    /// assert_eq!(ready, Interest::WRITABLE); // Nothing was sent to it.
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The errors of [`readable`](Self::readable) and [`writable`](Self::writable).
    pub async fn ready(&self, interest: Interest) -> io::Result<Interest> {
        self.handle.ready(interest, &self.unread).await
    }

    /// Like [`write`](Self::write), but never waits.
    ///
    /// # Errors
    /// `WouldBlock` if the unsent limit has been reached, and the errors of [`send`](Self::send).
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.handle.try_write(&[IoSlice::new(bytes)])
    }

    /// Like [`try_write`](Self::try_write), but for several slices in order.
    ///
    /// # Errors
    /// The errors of [`try_write`](Self::try_write).
    pub fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.handle.try_write(slices)
    }

    /// Sends or queues as many of the borrowed bytes as the kernel takes now and the unsent limit
    /// allows, and returns their number: at least one, unless `bytes` is empty. Large writes
    /// usually go to the kernel at once, if nothing of the stream is in flight. Other bytes are
    /// copied and sent at the end of the turn, after the chunks that [`send`](Self::send) has
    /// queued. `send` sends owned bytes without a copy.
    ///
    /// Cancel-safe: if the future is dropped before it is ready, nothing has been sent or
    /// queued.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.handle.poll_write(cx, &[IoSlice::new(bytes)])).await
    }

    /// Like [`write`](Self::write), but for several slices in order.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub async fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        poll_fn(|cx| self.handle.poll_write(cx, slices)).await
    }

    /// Sends all of the borrowed bytes, and waits whenever the unsent limit has been reached.
    ///
    /// Not cancel-safe: if the future is dropped, some of the bytes may have been queued.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.handle.write_all(bytes).await
    }

    /// Sends the queued bytes now, by a separate system call, instead of at the end of the turn.
    /// Bytes that cannot be sent now stay queued, for example because the socket has no space or an
    /// earlier send is in flight. Never waits.
    ///
    /// Use it for a reply that must not wait for the other tasks of the turn. Otherwise it wastes
    /// CPU time, because all sends of a turn share one system call.
    ///
    /// ```
    /// use annulus::net::UnixStream;
    ///
    /// # annulus::run(async {
    /// let (mut stream, mut peer) = UnixStream::pair()?;
    /// stream.send("urgent").await?;
    /// stream.push()?;
    /// assert_eq!(&*peer.recv().await?.unwrap(), b"urgent");
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The error of this send or of an earlier one.
    pub fn push(&mut self) -> io::Result<()> {
        self.handle.push()
    }

    /// Waits until the kernel has taken all queued bytes. Cancel-safe.
    ///
    /// # Errors
    /// The error of a send, which every later call also returns.
    pub async fn drain(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_drain(cx)).await
    }

    /// Polls like [`drain`](Self::drain).
    ///
    /// # Errors
    /// The errors of [`drain`](Self::drain).
    pub fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handle.poll_drain(cx)
    }

    /// Closes the sending direction once everything has been sent: the peer sees the end of the
    /// stream. Receiving continues. Cancel-safe: a shutdown that has begun completes even if the
    /// future is dropped.
    ///
    /// # Errors
    /// The error of a send.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.handle.poll_shutdown(cx)).await
    }

    /// Returns the number of sent bytes that the peer's system has not acknowledged: those that are
    /// still queued, and those in the kernel's send buffer. While the peer reads slowly, only
    /// this number shows that sending makes progress.
    ///
    /// Returns 0 after the runtime has ended.
    pub fn unacknowledged(&self) -> usize {
        self.handle.unacknowledged()
    }

    /// Waits until the kernel has taken the queued bytes and, for at most the runtime's
    /// [linger](crate::Builder::linger), until the peer has acknowledged them. Then closes the
    /// stream. Received bytes that have not been read are lost. If the future is dropped, the
    /// stream closes like a dropped stream.
    ///
    /// # Errors
    /// The error of a send or of the connection. The stream is closed even then.
    pub async fn close(self) -> io::Result<()> {
        let released = poll_fn(|cx| self.handle.poll_close(cx)).await?;
        self.handle.close(released)
    }

    /// Closes the stream at once and discards queued bytes. A TCP connection is reset.
    pub fn abort(self) {
        self.handle.abort();
    }

    /// Splits the stream into a receiving and a sending half, for two tasks. The stream closes when
    /// both halves have been dropped. Dropping the sending half alone closes the sending direction.
    pub fn into_split(self) -> (RecvHalf, SendHalf) {
        let handle = Rc::new(self.handle);
        (RecvHalf::new(handle.clone(), self.unread), SendHalf::new(handle))
    }

    /// Rejoins the two halves of a stream.
    ///
    /// In tokio this is a method of the halves. Here TCP and Unix streams have the same halves, so
    /// the caller names the type of the stream.
    ///
    /// # Errors
    /// If the halves belong to different streams or to a Unix stream, or if the runtime has ended.
    /// The error contains both halves.
    pub fn reunite(receiving: RecvHalf, sending: SendHalf) -> Result<Self, ReuniteError> {
        let (handle, unread) = reunite(receiving, sending, Self::FAMILY)?;
        Ok(Self { handle, unread })
    }

    /// Like [`into_parts`](Self::into_parts), but returns a non-blocking stream of the standard
    /// library.
    ///
    /// # Errors
    /// The errors of [`into_parts`](Self::into_parts), and `InvalidData` if bytes have been
    /// received that no task has read. Those bytes are lost; `into_parts` would return them.
    pub async fn into_std(self) -> io::Result<std::net::TcpStream> {
        Ok(self.into_parts().await?.into_nonblocking()?.into())
    }

    /// Detaches the connection from this runtime, to move it to another thread or to code
    /// outside this crate. Waits until the kernel has taken the queued bytes and no longer uses
    /// the stream's memory, and cancels the receive in flight. Bytes that were received but not
    /// taken are in [`Parts::received`]. If the future is dropped, the connection closes like a
    /// dropped stream.
    ///
    /// The socket is blocking, as a child process expects of its standard streams.
    ///
    /// # Errors
    /// The error of a send or of the connection (such as `ConnectionReset`), even if bytes
    /// arrived before it: without the error, these bytes would look like the whole stream. The
    /// connection is then closed. `Unsupported` on a simulated kernel.
    pub async fn into_parts(self) -> io::Result<Parts> {
        let Self { handle, unread } = self;
        Parts::release(handle, unread).await
    }

    /// Takes over a connection that belongs to no runtime, with its received bytes. A positive
    /// `SO_LINGER` is turned off, so that a close does not block.
    ///
    /// # Errors
    /// Outside a runtime, or on a simulated kernel; `InvalidInput` for 2 GiB of received bytes
    /// or more. The connection is then closed.
    pub fn from_parts(parts: Parts) -> io::Result<Self> {
        Ok(Self::new(parts.adopt()?))
    }

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

/// Socket options.
impl TcpStream {
    options!(methods: buffer tcp ip quickack keepalive linger error device);
}

impl AsStream for TcpStream {
    fn handle(&self) -> &StreamHandle {
        &self.handle
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

/// When an idle TCP connection is probed, to detect a peer that has silently disappeared. If no
/// probe is answered, the connection fails with `TimedOut` or with the error that a router on the
/// way reported.
///
/// Times are rounded up to whole seconds. The defaults are the same as on Linux: 2 hours, 75
/// seconds, 9 probes.
///
/// ```
/// use annulus::net::{KeepAlive, TcpListener, TcpStream};
/// use std::time::Duration;
///
/// # annulus::run(async {
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?).await?;
/// let keepalive = KeepAlive { time: Duration::from_secs(60), ..KeepAlive::default() };
/// stream.set_keepalive(Some(keepalive))?;
/// assert_eq!(stream.keepalive()?, Some(keepalive));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// How long the connection is idle before the first probe (`TCP_KEEPIDLE`): 1 to 32,767
    /// seconds.
    pub time: Duration,
    /// The time between unanswered probes (`TCP_KEEPINTVL`): 1 to 32,767 seconds.
    pub interval: Duration,
    /// Number of unanswered probes before the connection fails (`TCP_KEEPCNT`): 1 to 127.
    pub retries: u32,
}

const PROBE_SECONDS: RangeInclusive<u64> = 1..=32_767;
const PROBE_RETRIES: RangeInclusive<u32> = 1..=127;

impl Default for KeepAlive {
    fn default() -> Self {
        Self { time: Duration::from_secs(7200), interval: Duration::from_secs(75), retries: 9 }
    }
}

impl KeepAlive {
    /// Returns the socket options that turn probing on.
    ///
    /// # Errors
    /// `InvalidInput` for a value that Linux does not support.
    pub(super) fn options(self) -> io::Result<[(SocketOption, u32); 4]> {
        if !PROBE_RETRIES.contains(&self.retries) {
            return Err(out_of_range("retries", &self.retries.to_string(), "1 to 127"));
        }
        Ok([
            (SocketOption::KeepAliveTime, seconds("time", self.time)?),
            (SocketOption::KeepAliveInterval, seconds("interval", self.interval)?),
            (SocketOption::KeepAliveRetries, self.retries),
            (SocketOption::KeepAlive, 1),
        ])
    }
}

fn seconds(what: &str, time: Duration) -> io::Result<u32> {
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    if !PROBE_SECONDS.contains(&seconds) {
        return Err(out_of_range(what, &format!("{time:?}"), "1 to 32767 seconds"));
    }
    Ok(seconds as u32)
}

fn out_of_range(what: &str, value: &str, allowed: &str) -> io::Error {
    let text = format!("a keep-alive {what} of {value} is out of range; choose {allowed}");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
