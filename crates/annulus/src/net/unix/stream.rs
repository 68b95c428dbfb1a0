//! Unix streams.
#![allow(unsafe_code)]

use super::super::option_methods::*;
use super::super::parts::{Parts, new_descriptor};
use super::super::recv_buffer::RecvBuffer;
use super::super::socket::Socket;
use super::super::split::{Family, RecvHalf, ReuniteError, SendHalf, reunite};
use super::super::stream_handle::{AsStream, SendFuture, StreamHandle};
use super::UnixOptions;
use crate::bytes::chunk::IntoChunk;
use crate::bytes::lease::Lease;
use crate::slots::interest::Interest;
use annulus_kernel::{Credentials, SocketOption};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A Unix stream. It follows the same rules as [`TcpStream`](crate::net::TcpStream).
///
/// Without [`UnixOptions::descriptors`], the kernel closes descriptors that a peer sends.
///
/// ```
/// use annulus::net::UnixStream;
///
/// # annulus::run(async {
/// let (mut one, mut two) = UnixStream::pair()?;
/// one.send("over here").await?;
/// assert_eq!(&*two.recv().await?.unwrap(), b"over here");
/// drop(one);
/// assert!(two.recv().await?.is_none());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct UnixStream {
    handle: StreamHandle,
    unread: RecvBuffer,
}

impl UnixStream {
    /// Connects to a path with default [`UnixOptions`]. Waits while the listener's backlog is full.
    ///
    /// # Errors
    /// `NotFound`, `ConnectionRefused` (no listener), …, with the path in the message; or outside a
    /// runtime.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        UnixOptions::new().connect(path).await
    }

    /// Connects to an address, which may be an abstract name.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect).
    pub async fn connect_addr(address: &SocketAddr) -> io::Result<Self> {
        UnixOptions::new().connect_addr(address).await
    }

    /// Creates two streams that are connected to each other.
    ///
    /// # Errors
    /// If no descriptor is left, or outside a runtime.
    pub fn pair() -> io::Result<(Self, Self)> {
        UnixOptions::new().pair()
    }

    pub(in super::super) fn new(handle: StreamHandle) -> Self {
        Self { handle, unread: RecvBuffer::default() }
    }

    /// Creates a stream that passes descriptors with its bytes.
    pub(super) fn passing_descriptors(handle: StreamHandle) -> io::Result<Self> {
        handle.pass_descriptors()?;
        Ok(Self { handle, unread: RecvBuffer::of_messages() })
    }

    const FAMILY: Family = Family::Unix;

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

    /// Waits until the stream is ready in any direction of `interest`, and returns the directions
    /// that are ready. See [`TcpStream::ready`](crate::net::TcpStream::ready).
    ///
    /// # Errors
    /// The errors of [`TcpStream::ready`](crate::net::TcpStream::ready).
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

    /// Returns the number of sent bytes that the peer has not read: those that are still queued,
    /// and those in the kernel, which includes its own overhead. While the peer reads slowly, only
    /// this number shows that sending makes progress.
    ///
    /// Returns 0 after the runtime has ended.
    pub fn unacknowledged(&self) -> usize {
        self.handle.unacknowledged()
    }

    /// Waits until the kernel has taken the queued bytes, and closes the stream. See
    /// [`TcpStream::close`](crate::net::TcpStream::close).
    ///
    /// # Errors
    /// The errors of [`TcpStream::close`](crate::net::TcpStream::close).
    pub async fn close(self) -> io::Result<()> {
        let released = poll_fn(|cx| self.handle.poll_close(cx)).await?;
        self.handle.close(released)
    }

    /// Closes the stream at once and discards queued bytes.
    pub fn abort(self) {
        self.handle.abort();
    }

    /// Splits the stream into a receiving and a sending half, for two tasks. The stream closes when
    /// both halves have been dropped. Dropping the sending half alone closes the sending direction.
    pub fn into_split(self) -> (RecvHalf, SendHalf) {
        let handle = Rc::new(self.handle);
        (RecvHalf::new(handle.clone(), self.unread), SendHalf::new(handle))
    }

    /// Rejoins the two halves of a stream. See
    /// [`TcpStream::reunite`](crate::net::TcpStream::reunite).
    ///
    /// # Errors
    /// If the halves belong to different streams or to a TCP stream, or if the runtime has ended.
    /// The error contains both halves.
    pub fn reunite(receiving: RecvHalf, sending: SendHalf) -> Result<Self, ReuniteError> {
        let (handle, unread) = reunite(receiving, sending, Self::FAMILY)?;
        Ok(Self { handle, unread })
    }

    /// Like [`into_parts`](Self::into_parts), but returns a non-blocking stream of the standard
    /// library. See [`TcpStream::into_std`](crate::net::TcpStream::into_std).
    ///
    /// # Errors
    /// The errors of [`TcpStream::into_std`](crate::net::TcpStream::into_std).
    pub async fn into_std(self) -> io::Result<std::os::unix::net::UnixStream> {
        Ok(self.into_parts().await?.into_nonblocking()?.into())
    }

    /// Detaches the connection from this runtime, to move it to another thread or to code outside
    /// this crate. See [`TcpStream::into_parts`](crate::net::TcpStream::into_parts).
    ///
    /// # Errors
    /// The errors of [`TcpStream::into_parts`](crate::net::TcpStream::into_parts).
    pub async fn into_parts(self) -> io::Result<Parts> {
        let Self { handle, unread } = self;
        Parts::release(handle, unread).await
    }

    /// Takes over a connection that belongs to no runtime, with its received bytes.
    ///
    /// # Errors
    /// Outside a runtime, or on a simulated kernel; `InvalidInput` for 2 GiB of received bytes
    /// or more. The connection is then closed.
    pub fn from_parts(parts: Parts) -> io::Result<Self> {
        Ok(Self::new(parts.adopt()?))
    }

    /// Receives the next bytes and the descriptors that arrived with them. If
    /// [`fill_at_least`](Self::fill_at_least) or [`recv_exact`](Self::recv_exact) has copied
    /// several leases together, all of their descriptors come with the first of these bytes.
    /// Cancel-safe.
    ///
    /// # Errors
    /// The errors of [`recv`](Self::recv); `Unsupported` if the stream was created without
    /// [`descriptors`](UnixOptions::descriptors); `QuotaExceeded` if descriptors that arrived with
    /// the next bytes are lost because the process cannot open more. The next call then returns
    /// those bytes and the remaining descriptors.
    pub async fn recv_with_descriptors(&mut self) -> io::Result<Option<(Lease, Vec<OwnedFd>)>> {
        self.check_passing()?;
        poll_fn(|cx| self.unread.poll_message(&self.handle, cx)).await
    }

    /// Sends a whole chunk, and descriptors with its first byte. The descriptors stay open in this
    /// process until they have been sent. While more descriptors of this user are in transit than a
    /// process may open (`RLIMIT_NOFILE`), they stay queued. Before Linux 6.10 the kernel returns
    /// the same error for a socket in whose queue other sockets are in transit, more than four
    /// levels deep; these bytes stay queued until the inner sockets have been received.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send); `InvalidInput` for an empty chunk or more than 253
    /// descriptors; `Unsupported` if the stream was created without
    /// [`descriptors`](UnixOptions::descriptors).
    pub async fn send_with_descriptors(
        &mut self,
        chunk: impl IntoChunk,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        self.check_passing()?;
        let chunk = chunk.into();
        if chunk.is_empty() {
            let text = "descriptors are sent with at least one byte; add one";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.handle.send(chunk.with_descriptors(descriptors)?).await
    }

    /// Returns the credentials of the peer process at the time when it connected, listened or
    /// created the pair.
    ///
    /// # Errors
    /// If the runtime has ended.
    pub fn peer_cred(&self) -> io::Result<Credentials> {
        self.handle.with_fd(|kernel, fd| kernel.peer_credentials(fd))
    }

    /// Returns a descriptor of the peer process (`SO_PEERPIDFD`, since Linux 6.5). Unlike the
    /// process number, it never refers to another process after the peer has ended.
    ///
    /// # Errors
    /// `Unsupported` under a simulated kernel; a system error on older kernels or if the process
    /// has been waited for; or if the runtime has ended.
    pub fn peer_pidfd(&self) -> io::Result<OwnedFd> {
        let process = self.handle.with_fd(|kernel, fd| kernel.peer_process(fd))?;
        // SAFETY: the kernel created the descriptor for this call, and nothing else owns it. A
        // simulated kernel does not have this call.
        Ok(unsafe { new_descriptor(process) })
    }

    options!(methods: buffer error);

    /// Returns the peer's address.
    ///
    /// # Errors
    /// If the connection is closed or the runtime has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.peer_address(fd)?.to_std_unix())
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// If the runtime has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.local_address(fd)?.to_std_unix())
    }

    fn check_passing(&self) -> io::Result<()> {
        if self.handle.core.borrow()?.streams.get(self.handle.slot).0.passes_descriptors() {
            return Ok(());
        }
        let text = "this stream cannot pass descriptors; create it with UnixOptions::descriptors";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}

impl AsStream for UnixStream {
    fn handle(&self) -> &StreamHandle {
        &self.handle
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixStream")
            .field("local", &self.local_addr().ok())
            .field("peer", &self.peer_addr().ok())
            .finish()
    }
}
