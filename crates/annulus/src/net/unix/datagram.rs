//! Unix datagram sockets.

use super::super::datagram_handle::{DatagramHandle, SendDatagram};
use super::super::option_methods::*;
use super::super::resolve::failed;
use super::super::socket::NewFd;
use super::super::socket::Socket;
use super::UnixOptions;
use super::path::BoundPath;
use crate::bytes::chunk::IntoChunk;
use crate::bytes::lease::Lease;
use crate::errors::Operation;
use crate::runtime::core::Core;
use crate::slots::datagrams::{DatagramSettings, MessageFormat, ReceivedMessage, SendMeta};
use crate::slots::interest::Interest;
use crate::waiters::Wait;
use annulus_kernel::{Address, Control, Credentials, SocketOption};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A received datagram, with its sender, credentials and descriptors.
///
/// ```
/// use annulus::net::{UnixMessage, UnixOptions};
/// use std::io::Read;
///
/// # annulus::run(async {
/// let options = UnixOptions::new().credentials(true).descriptors(true);
/// let (parent, child) = options.datagram_pair()?;
/// let (mut reader, writer) = std::io::pipe()?;
/// parent.send_with_descriptors("your output", vec![writer.into()]).await?;
///
/// let UnixMessage { bytes, credentials, mut descriptors, .. } = child.recv_message().await?;
/// assert_eq!(&*bytes, b"your output");
/// assert_eq!(credentials.unwrap().pid, std::process::id());
/// drop(descriptors.pop()); // Closes the last writer, so that the reader sees the end.
/// assert_eq!(reader.read(&mut [0])?, 0);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct UnixMessage {
    /// The payload, in memory of the runtime.
    pub bytes: Lease,
    /// The sender's address, unnamed if the sender is not bound.
    pub source: SocketAddr,
    /// The process that sent it, if [`UnixOptions::credentials`] is on.
    pub credentials: Option<Credentials>,
    /// The descriptors that were sent with it, if [`UnixOptions::descriptors`] is on.
    pub descriptors: Vec<OwnedFd>,
    /// The length of the payload as sent. Larger than the length of `bytes` if the payload was
    /// truncated.
    pub whole_len: usize,
    /// Whether descriptors sent with it were lost because the process cannot open more
    /// (`RLIMIT_NOFILE`).
    pub lost_descriptors: bool,
}

impl UnixMessage {
    fn new(mut message: ReceivedMessage) -> io::Result<Self> {
        let credentials = message.controls().find_map(|control| match control {
            Control::Credentials(credentials) => Some(credentials),
            _ => None,
        });
        Ok(Self {
            source: message.source().to_std_unix()?,
            credentials,
            descriptors: message.take_descriptors(),
            whole_len: message.whole_len(),
            lost_descriptors: message.lost_descriptors(),
            bytes: message.into_bytes(),
        })
    }

    /// Returns true if part of the message is missing: its end, because it was longer than its
    /// buffer, or some of its descriptors.
    pub fn is_truncated(&self) -> bool {
        self.whole_len > self.bytes.len() || self.lost_descriptors
    }
}

/// A Unix datagram socket. It works like [`UdpSocket`](crate::net::UdpSocket), but by default
/// datagrams are neither lost nor reordered: if a receiver is slow, sends wait. When the socket is
/// dropped, its path is removed.
///
/// ```
/// use annulus::net::UnixDatagram;
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-log-{}", std::process::id()));
/// let log = UnixDatagram::bind(&path)?;
/// let (client, _other) = UnixDatagram::pair()?;
/// client.connect(&path)?;
/// client.send("a line").await?;
/// assert_eq!(&*log.recv().await?, b"a line");
/// drop(log);
/// assert!(!path.exists());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct UnixDatagram {
    _path: Option<BoundPath>,
    handle: DatagramHandle,
}

impl UnixDatagram {
    /// Opens a socket at a path with default [`UnixOptions`]. A path left by a process that has
    /// ended is taken over.
    ///
    /// # Errors
    /// `AddrInUse` if another socket receives at the path, or the path is not a socket. Before
    /// that, it retries for a tenth of a second, like
    /// [`ListenOptions::bind`](crate::net::ListenOptions::bind). `InvalidInput` for more than 107
    /// bytes; `NotFound`, `PermissionDenied`, …, with the path in the message; or outside a
    /// runtime.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        UnixOptions::new().bind(path)
    }

    /// Opens a socket at an address, which may be an abstract name. For an unnamed address, see
    /// [`unbound`](Self::unbound).
    ///
    /// # Errors
    /// The errors of [`bind`](Self::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        UnixOptions::new().bind_addr(address)
    }

    /// Opens a socket without an address. It can send, but other sockets cannot send to it.
    ///
    /// # Errors
    /// If no descriptor is left, or outside a runtime.
    pub fn unbound() -> io::Result<Self> {
        UnixOptions::new().unbound()
    }

    /// Creates two sockets that are connected to each other.
    ///
    /// # Errors
    /// If no descriptor is left, or outside a runtime.
    pub fn pair() -> io::Result<(Self, Self)> {
        UnixOptions::new().datagram_pair()
    }

    pub(in super::super) fn handle(&self) -> &DatagramHandle {
        &self.handle
    }

    /// Takes over a socket that other code has created and perhaps connected. Dropping it does not
    /// remove its path.
    pub(in super::super) fn adopt(core: &Rc<Core>, socket: NewFd) -> io::Result<Self> {
        let has_peer = socket.with_fd(|kernel, fd| kernel.peer_address(fd)).is_ok();
        let handle =
            DatagramHandle::new(core, socket, MessageFormat::UNIX, DatagramSettings::default())?;
        if has_peer {
            handle.set_connected()?;
        }
        Ok(Self::new(handle, None))
    }

    pub(super) fn new(handle: DatagramHandle, path: Option<BoundPath>) -> Self {
        Self { _path: path, handle }
    }

    pub(super) fn set_connected(&self) -> io::Result<()> {
        self.handle.set_connected()
    }

    /// Sets the peer: [`send`](Self::send) goes to it, and only its datagrams are received.
    /// Datagrams from others that have already arrived are still received.
    ///
    /// # Errors
    /// `NotFound`, `ConnectionRefused`, …, with the path in the message.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.connect_at(&Address::from_unix_path(path.as_ref())?)
    }

    /// Sets the peer, which may have an abstract name.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect).
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.connect_at(&Address::from_std_unix(address)?)
    }

    fn connect_at(&self, address: &Address) -> io::Result<()> {
        let connected = self.handle.connect(address);
        connected.map_err(|error| failed(error, Operation::Connect, *address))
    }

    /// Receives the next datagram and its sender's address. Descriptors that were sent with it are
    /// closed. Cancel-safe.
    ///
    /// # Errors
    /// `InvalidData` for a datagram larger than [`max_datagram`](UnixOptions::max_datagram): its
    /// bytes are lost, but the next datagram is not.
    #[inline]
    pub async fn recv_from(&self) -> io::Result<(Lease, SocketAddr)> {
        let message = self.handle.recv(|handle, wait, cx| handle.poll_recv(true, wait, cx)).await?;
        bytes_and_source(message)
    }

    /// Like [`recv_from`](Self::recv_from), but without the address.
    ///
    /// # Errors
    /// The errors of [`recv_from`](Self::recv_from).
    #[inline]
    pub async fn recv(&self) -> io::Result<Lease> {
        self.recv_from().await.map(|(bytes, _)| bytes)
    }

    /// Receives the next datagram with its credentials and descriptors. Cancel-safe.
    ///
    /// # Errors
    /// The errors of [`recv_from`](Self::recv_from), except that a truncated datagram is not an
    /// error: see [`UnixMessage::is_truncated`].
    pub async fn recv_message(&self) -> io::Result<UnixMessage> {
        UnixMessage::new(
            self.handle.recv(|handle, wait, cx| handle.poll_recv(false, wait, cx)).await?,
        )
    }

    /// Polls like [`recv_message`](Self::recv_message). A datagram wakes every task that polled.
    ///
    /// # Errors
    /// The errors of [`recv_message`](Self::recv_message).
    pub fn poll_recv_message(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixMessage>> {
        self.handle.poll_recv(false, Wait::Polling, cx)?.map(UnixMessage::new)
    }

    /// Waits until [`try_recv_from`](Self::try_recv_from) has something to return. By then the
    /// datagram has left the kernel and is in the runtime's memory, so your own system calls would
    /// not find it. Every waiting task is woken, unless another one takes the datagram first.
    /// Cancel-safe.
    ///
    /// # Errors
    /// If the loop of its runtime is not running.
    pub async fn readable(&self) -> io::Result<()> {
        self.handle.ready(Interest::READABLE).await.map(drop)
    }

    /// Like [`recv_from`](Self::recv_from), but does not wait: returns a datagram that the loop
    /// received in an earlier turn. A call that finds none starts receiving, so the first call
    /// usually returns `WouldBlock`.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has been received yet; otherwise the errors of
    /// [`recv_from`](Self::recv_from).
    pub fn try_recv_from(&self) -> io::Result<(Lease, SocketAddr)> {
        bytes_and_source(self.handle.try_recv()?)
    }

    /// Sends a datagram to a path. The future is ready once the datagram is queued, and waits while
    /// the queue exceeds the runtime's [unsent limit](crate::Builder::unsent_limit). If the future
    /// is dropped before it is ready, nothing is sent.
    ///
    /// # Errors
    /// The error of an earlier datagram to the same path (`NotFound`, `ConnectionRefused`, …), in
    /// which case this datagram is not sent.
    pub async fn send_to(&self, chunk: impl IntoChunk, path: impl AsRef<Path>) -> io::Result<()> {
        self.handle.send(chunk.into(), SendMeta::to(Address::from_unix_path(path.as_ref())?)).await
    }

    /// Sends a datagram to an address, which may be an abstract name.
    ///
    /// # Errors
    /// The errors of [`send_to`](Self::send_to).
    pub async fn send_to_addr(&self, chunk: impl IntoChunk, to: &SocketAddr) -> io::Result<()> {
        self.handle.send(chunk.into(), SendMeta::to(Address::from_std_unix(to)?)).await
    }

    /// Sends a datagram to the peer of a connected socket.
    ///
    /// # Errors
    /// The errors of [`send_to`](Self::send_to).
    #[inline]
    pub fn send(&self, chunk: impl IntoChunk) -> SendDatagram<'_> {
        self.handle.send(chunk.into(), SendMeta::default())
    }

    /// Sends a datagram of borrowed bytes to the peer of a connected socket, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if too much is queued: see [`writable`](Self::writable). Otherwise the errors
    /// of [`send_to`](Self::send_to).
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<()> {
        self.handle.try_send(bytes, SendMeta::default())
    }

    /// Like [`try_send`](Self::try_send), but sends to a path.
    ///
    /// # Errors
    /// The errors of [`try_send`](Self::try_send).
    pub fn try_send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<()> {
        self.handle.try_send(bytes, SendMeta::to(Address::from_unix_path(path.as_ref())?))
    }

    /// Waits until the socket is ready in any direction of `interest`, as
    /// [`readable`](Self::readable) and [`writable`](Self::writable) do, and returns the directions
    /// that are ready. Cancel-safe.
    ///
    /// # Errors
    /// If the loop of its runtime is not running.
    pub async fn ready(&self, interest: Interest) -> io::Result<Interest> {
        self.handle.ready(interest).await
    }

    /// Waits until [`try_send`](Self::try_send) would queue a datagram. Every waiting task is
    /// woken. Cancel-safe.
    ///
    /// # Errors
    /// If the loop of its runtime is not running.
    pub async fn writable(&self) -> io::Result<()> {
        self.handle.ready(Interest::WRITABLE).await.map(drop)
    }

    /// Sends a datagram with descriptors to the peer of a connected socket. The descriptors stay
    /// open in this process until the datagram has left. While more descriptors of this user are in
    /// transit than a process may open (`RLIMIT_NOFILE`), or before Linux 6.10 while sockets are in
    /// transit within each other more than four levels deep, it stays queued. If the future is
    /// dropped before it is ready, nothing is sent and the descriptors are closed.
    ///
    /// # Errors
    /// The errors of [`send_to`](Self::send_to); `InvalidInput` for more than 253 descriptors;
    /// `Unsupported` under a simulated kernel.
    pub async fn send_with_descriptors(
        &self,
        chunk: impl IntoChunk,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        if !descriptors.is_empty() {
            self.handle.core.require_real("a real descriptor cannot enter a simulation")?;
        }
        let chunk = chunk.into().with_descriptors(descriptors)?;
        self.handle.send(chunk, SendMeta::default()).await
    }

    /// Waits until the kernel has accepted or refused every datagram. Cancel-safe.
    ///
    /// # Errors
    /// The reason why the last failed datagram was not sent, with its length, its path and the
    /// number of other failed datagrams. Each failure is reported once.
    pub async fn drain(&self) -> io::Result<()> {
        self.handle.drain().await
    }

    /// Polls like [`drain`](Self::drain). The end of the drain wakes every task that polled.
    ///
    /// # Errors
    /// The errors of [`drain`](Self::drain).
    pub fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handle.poll_drain(Wait::Polling, cx)
    }

    options!(methods: buffer error);

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    /// If the runtime has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.local_address(fd)?.to_std_unix())
    }

    /// Returns the peer that the socket is connected to.
    ///
    /// # Errors
    /// `NotConnected`; or if the runtime has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.peer_address(fd)?.to_std_unix())
    }
}

/// # Errors
/// `InvalidData` if the datagram was truncated.
fn bytes_and_source(message: ReceivedMessage) -> io::Result<(Lease, SocketAddr)> {
    message.check_whole()?;
    let source = message.source().to_std_unix()?;
    Ok((message.into_bytes(), source))
}

impl fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixDatagram").field("local", &self.local_addr().ok()).finish()
    }
}
