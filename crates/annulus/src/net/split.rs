//! The receiving and the sending half of a split stream.

use super::recv_buffer::RecvBuffer;
use super::socket::Socket;
use super::stream_handle::{AsStream, SendFuture, StreamHandle};
use crate::bytes::chunk::IntoChunk;
use crate::bytes::lease::Lease;
use annulus_kernel::SocketOption;
use rustix::net::AddressFamily;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

/// The receiving half of a [`TcpStream`](super::TcpStream) or [`UnixStream`](super::UnixStream).
///
/// It ends when the peer closes its sending direction, or with an error. Dropping it does not close
/// the stream while the sending half exists.
///
/// ```
/// use annulus::net::{RecvHalf, UnixStream};
///
/// /// Counts bytes until the peer has closed its sending direction.
/// async fn count(mut input: RecvHalf) -> std::io::Result<usize> {
///     let mut bytes = 0;
///     while let Some(lease) = input.recv().await? {
///         bytes += lease.len();
///     }
///     Ok(bytes)
/// }
///
/// # annulus::run(async {
/// let (stream, mut peer) = UnixStream::pair()?;
/// let (receiving, mut sending) = stream.into_split();
/// let counting = annulus::spawn(count(receiving));
/// sending.send("meanwhile").await?;
/// assert_eq!(&*peer.recv().await?.unwrap(), b"meanwhile");
/// peer.send("12345").await?;
/// peer.shutdown().await?;
/// assert_eq!(counting.await.unwrap()?, 5);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct RecvHalf {
    handle: Rc<StreamHandle>,
    unread: RecvBuffer,
}

impl RecvHalf {
    pub(super) fn new(handle: Rc<StreamHandle>, unread: RecvBuffer) -> Self {
        Self { handle, unread }
    }

    pub(crate) fn source_handle(&self) -> &StreamHandle {
        &self.handle
    }

    /// Returns what receiving takes: the handle, and the bytes that it has shown.
    pub(crate) fn source(&mut self) -> (&StreamHandle, &mut RecvBuffer) {
        (&self.handle, &mut self.unread)
    }

    /// Returns the next bytes, at least one, or `None` at the end of the stream and on every later
    /// call. See [`TcpStream::recv`](crate::net::TcpStream::recv).
    ///
    /// # Errors
    /// The errors of [`TcpStream::recv`](crate::net::TcpStream::recv).
    #[inline]
    pub fn recv(&mut self) -> impl Future<Output = io::Result<Option<Lease>>> {
        poll_fn(|cx| self.unread.poll_recv(&self.handle, cx))
    }

    /// Like [`recv`](Self::recv), but returns only bytes that earlier turns of the loop have
    /// received. See [`TcpStream::try_recv`](crate::net::TcpStream::try_recv).
    ///
    /// # Errors
    /// The errors of [`TcpStream::try_recv`](crate::net::TcpStream::try_recv).
    pub fn try_recv(&mut self) -> io::Result<Option<Lease>> {
        self.unread.try_recv(&self.handle)
    }

    /// Waits until [`try_recv`](Self::try_recv) and [`try_read`](Self::try_read) find bytes, the
    /// end of the stream or an error. See
    /// [`TcpStream::readable`](crate::net::TcpStream::readable).
    ///
    /// # Errors
    /// The errors of [`TcpStream::readable`](crate::net::TcpStream::readable).
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

    /// Like [`try_read`](Self::try_read), but fills several pieces of memory in order, with all bytes
    /// that have been received.
    ///
    /// # Errors
    /// The errors of [`try_read`](Self::try_read), unless some bytes were copied.
    pub fn try_read_vectored(&mut self, memory: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.unread.try_read_vectored(&self.handle, memory)
    }

    /// Shows the next bytes, at least one, without a copy, or none at the end of the stream. See
    /// [`TcpStream::fill_buf`](crate::net::TcpStream::fill_buf).
    ///
    /// # Errors
    /// The errors of [`TcpStream::fill_buf`](crate::net::TcpStream::fill_buf).
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

    /// Like [`fill_buf`](Self::fill_buf), but waits for at least `n` bytes. See
    /// [`TcpStream::fill_at_least`](crate::net::TcpStream::fill_at_least).
    ///
    /// # Errors
    /// The errors of [`TcpStream::fill_at_least`](crate::net::TcpStream::fill_at_least).
    pub async fn fill_at_least(&mut self, n: usize) -> io::Result<&[u8]> {
        poll_fn(|cx| self.unread.poll_fill_at_least(&self.handle, cx, n).map_ok(drop)).await?;
        Ok(self.unread.shown())
    }

    /// Returns the next `n` bytes as one lease. They are copied into heap memory if they arrived in
    /// several leases. See [`TcpStream::recv_exact`](crate::net::TcpStream::recv_exact).
    ///
    /// # Errors
    /// The errors of [`TcpStream::recv_exact`](crate::net::TcpStream::recv_exact).
    pub async fn recv_exact(&mut self, n: usize) -> io::Result<Lease> {
        poll_fn(|cx| self.unread.poll_exact(&self.handle, cx, n)).await
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// If this is half of a Unix stream, if the connection is closed, or if the runtime has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.peer_address(fd)?.to_inet())
    }
}

/// The sending half of a [`TcpStream`](super::TcpStream) or [`UnixStream`](super::UnixStream).
/// Dropping it closes the sending direction once everything has been sent.
///
/// ```
/// use annulus::net::UnixStream;
///
/// # annulus::run(async {
/// let (stream, mut peer) = UnixStream::pair()?;
/// let (mut receiving, mut sending) = stream.into_split();
/// sending.send("last words").await?;
/// drop(sending);
/// assert_eq!(&*peer.recv().await?.unwrap(), b"last words");
/// assert!(peer.recv().await?.is_none()); // The sending direction is closed.
/// peer.send("still heard").await?; // The receiving half still works.
/// assert_eq!(&*receiving.recv().await?.unwrap(), b"still heard");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct SendHalf {
    handle: Rc<StreamHandle>,
    /// Whether the halves have been rejoined, so that a drop must not close the sending direction.
    reunited: bool,
}

impl SendHalf {
    pub(super) fn new(handle: Rc<StreamHandle>) -> Self {
        Self { handle, reunited: false }
    }

    /// Returns a reference that does not keep the stream open.
    pub(super) fn downgrade(&self) -> Weak<StreamHandle> {
        Rc::downgrade(&self.handle)
    }

    /// Queues a chunk, which is a [`Lease`](crate::Lease) or any owned bytes, and sends all of it.
    /// See [`TcpStream::send`](crate::net::TcpStream::send).
    ///
    /// # Errors
    /// The errors of [`TcpStream::send`](crate::net::TcpStream::send).
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

    /// Waits until [`try_write`](Self::try_write) would accept bytes. See
    /// [`TcpStream::writable`](crate::net::TcpStream::writable).
    ///
    /// # Errors
    /// The errors of [`TcpStream::writable`](crate::net::TcpStream::writable).
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.handle.poll_space(cx)).await
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
    /// allows, and returns their number: at least one, unless `bytes` is empty.
    /// [`send`](Self::send) sends owned bytes without a copy. See
    /// [`TcpStream::write`](crate::net::TcpStream::write).
    ///
    /// # Errors
    /// The errors of [`TcpStream::write`](crate::net::TcpStream::write).
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

    /// Sends all of the borrowed bytes, and waits whenever the unsent limit has been reached. See
    /// [`TcpStream::write_all`](crate::net::TcpStream::write_all).
    ///
    /// # Errors
    /// The errors of [`TcpStream::write_all`](crate::net::TcpStream::write_all).
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.handle.write_all(bytes).await
    }

    /// Sends the queued bytes now, by a separate system call. See
    /// [`TcpStream::push`](crate::net::TcpStream::push).
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
    /// stream. See [`TcpStream::shutdown`](crate::net::TcpStream::shutdown).
    ///
    /// # Errors
    /// The errors of [`TcpStream::shutdown`](crate::net::TcpStream::shutdown).
    pub async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.handle.poll_shutdown(cx)).await
    }
}

impl AsStream for SendHalf {
    fn handle(&self) -> &StreamHandle {
        &self.handle
    }
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        if !self.reunited {
            let StreamHandle { core, slot, .. } = &*self.handle;
            core.if_alive(|inner| inner.streams.get(*slot).0.end_when_sent(&mut inner.state));
        }
    }
}

/// Rejoins two halves if they belong to the same stream, and the stream has this address family.
pub(super) fn reunite(
    receiving: RecvHalf,
    mut sending: SendHalf,
    family: Family,
) -> Result<(StreamHandle, RecvBuffer), ReuniteError> {
    if let Err(reason) = check_halves(&receiving, &sending, family) {
        return Err(ReuniteError { receiving, sending, reason });
    }
    sending.reunited = true;
    drop(sending);
    let RecvHalf { handle, unread } = receiving;
    let handle = Rc::into_inner(handle).expect("a stream has more than two halves");
    Ok((handle, unread))
}

/// Checks that two halves belong to one stream of this address family.
///
/// # Errors
/// The text of the [`ReuniteError`].
fn check_halves(receiving: &RecvHalf, sending: &SendHalf, family: Family) -> Result<(), String> {
    if !Rc::ptr_eq(&receiving.handle, &sending.handle) {
        return Err("the halves belong to different streams".into());
    }
    match Family::of(&receiving.handle) {
        Ok(is) if is == family => Ok(()),
        Ok(is) => Err(format!("the halves belong to a {is:?} stream, not to a {family:?} stream")),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Tcp,
    Unix,
}

impl Family {
    fn of(handle: &StreamHandle) -> io::Result<Self> {
        let domain = handle.query(SocketOption::Domain)?;
        let is_unix = domain == u32::from(AddressFamily::UNIX.as_raw());
        Ok(if is_unix { Self::Unix } else { Self::Tcp })
    }
}

/// The error for two halves that do not belong to one stream of the requested type: see
/// [`TcpStream::reunite`](super::TcpStream::reunite).
///
/// ```
/// use annulus::net::{TcpStream, UnixStream};
///
/// # annulus::run(async {
/// let (stream, _peer) = UnixStream::pair()?;
/// let (receiving, sending) = stream.into_split();
/// let error = TcpStream::reunite(receiving, sending).unwrap_err();
/// let stream = UnixStream::reunite(error.receiving, error.sending).expect("halves of one stream");
/// # drop(stream);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct ReuniteError {
    /// The receiving half.
    pub receiving: RecvHalf,
    /// The sending half.
    pub sending: SendHalf,
    reason: String,
}

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ReuniteError {}

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
