//! UDP sockets, and how to open one.

use super::datagram::{Datagram, Transmit};
use super::datagram_handle::{DatagramHandle, SendDatagram};
use super::listener_handle::retry_while_in_use;
use super::option_methods::*;
use super::resolve::ToSocketAddrs;
use super::resolve::{first, first_of, resolve};
use super::socket::NewFd;
use super::socket::Socket;
use super::socket::SocketSettings;
use crate::bytes::chunk::IntoChunk;
use crate::bytes::lease::Lease;
use crate::errors::Operation;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::slots::datagrams::{DatagramSettings, MessageFormat, SendMeta};
use crate::slots::interest::Interest;
use crate::waiters::Wait;
use annulus_kernel::{Address, Multicast, SocketOption, SocketType};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::{fmt, io};

/// A UDP socket.
///
/// A received datagram is a [`Lease`] on a buffer of the runtime, which by default holds the
/// largest datagram that UDP allows. Several tasks may wait for datagrams at once. The socket holds
/// a bounded number of datagrams that no task has taken. The kernel queues the rest. When its queue
/// is full, it drops datagrams and counts them: see [`dropped`](Self::dropped).
///
/// A send is ready once the datagram is queued. The datagram leaves at the end of the turn, or
/// earlier if an option of the socket is set, which affects only the datagrams after it. If the
/// kernel refuses it, the next send to the same address returns the error, or
/// [`drain`](Self::drain) does. The socket remains usable after any error.
///
/// ```
/// use annulus::net::UdpSocket;
///
/// # annulus::run(async {
/// let server = UdpSocket::bind("127.0.0.1:0")?;
/// let client = UdpSocket::bind("127.0.0.1:0")?;
/// client.connect(server.local_addr()?).await?; // Now receives only from this peer.
/// client.send("marco").await?;
/// let (lease, source) = server.recv_from().await?;
/// assert_eq!(&*lease, b"marco");
/// server.send_to("polo", source).await?;
/// assert_eq!(&*client.recv().await?, b"polo");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct UdpSocket {
    handle: DatagramHandle,
    peer_is_v4: Cell<bool>,
}

impl UdpSocket {
    /// Opens a socket with default [`UdpOptions`].
    ///
    /// # Errors
    /// The errors of [`UdpOptions::bind`].
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        UdpOptions::new().bind(address)
    }

    pub(super) fn handle(&self) -> &DatagramHandle {
        &self.handle
    }

    /// Takes over a socket that other code has created and perhaps connected.
    pub(super) fn adopt(core: &Rc<Core>, socket: NewFd, is_v4: bool) -> io::Result<Self> {
        let format = if is_v4 { MessageFormat::INET } else { MessageFormat::INET6 };
        let peer = socket.with_fd(|kernel, fd| kernel.peer_address(fd)?.to_inet());
        let coalesces = socket.query(SocketOption::Coalesce).is_ok_and(is_on);
        let this =
            Self::new(DatagramHandle::new(core, socket, format, DatagramSettings::default())?);
        if coalesces {
            this.handle.expect_coalesced()?;
        }
        if let Ok(peer) = peer {
            this.peer_is_v4.set(goes_over_v4(peer.ip()));
            this.handle.set_connected()?;
        }
        Ok(this)
    }

    fn new(handle: DatagramHandle) -> Self {
        Self { handle, peer_is_v4: Cell::new(true) }
    }

    /// Sets the peer: [`send`](Self::send) sends to it, and only its datagrams are received. The
    /// peer may be changed later; datagrams that have been sent to the former one, but have not left
    /// yet, still go there, and datagrams from others that have already arrived are still received.
    /// Looking up a host name does not block the loop: see [`lookup_host`](super::lookup_host). If
    /// the future is dropped before it is ready, the peer is unchanged.
    ///
    /// # Errors
    /// `NetworkUnreachable`, …, with the address in the message; or the errors of
    /// [`lookup_host`](super::lookup_host).
    pub async fn connect(&self, address: impl ToSocketAddrs) -> io::Result<()> {
        let connect = |address: SocketAddr| {
            self.handle.connect(&Address::from(address))?;
            Ok(address.ip())
        };
        let peer = first_of(resolve(address, None).await?, Operation::Connect, connect)?;
        self.peer_is_v4.set(goes_over_v4(peer));
        Ok(())
    }

    /// Receives the next datagram and its sender's address. Coalesced datagrams are returned one by
    /// one.
    ///
    /// Cancel-safe: the receive belongs to the socket, so no datagram is lost if the future is
    /// dropped. An empty datagram is an empty lease.
    ///
    /// # Errors
    /// On a connected socket, an error that the peer's host has sent in reply to an earlier
    /// datagram (`ConnectionRefused`), once. As in the kernel, another such error replaces one that
    /// no call has returned yet. `InvalidData` for a datagram larger than
    /// [`max_datagram`](UdpOptions::max_datagram): its bytes are lost, but the next datagram is
    /// not.
    #[inline]
    pub fn recv_from(&self) -> impl Future<Output = io::Result<(Lease, SocketAddr)>> {
        self.handle.recv(DatagramHandle::poll_recv_from)
    }

    /// Like [`recv_from`](Self::recv_from), but without the address.
    ///
    /// # Errors
    /// The errors of [`recv_from`](Self::recv_from).
    #[inline]
    pub async fn recv(&self) -> io::Result<Lease> {
        self.recv_from().await.map(|(bytes, _)| bytes)
    }

    /// Receives the next datagram and its metadata from the kernel. Coalesced datagrams are
    /// returned as one. Cancel-safe.
    ///
    /// # Errors
    /// The errors of [`recv_from`](Self::recv_from), except that a truncated datagram is not an
    /// error: see [`Datagram::is_truncated`].
    #[inline]
    pub async fn recv_datagram(&self) -> io::Result<Datagram> {
        Datagram::new(self.handle.recv(|handle, wait, cx| handle.poll_recv(false, wait, cx)).await?)
    }

    /// Polls like [`recv_from`](Self::recv_from). A datagram wakes every task that polled.
    ///
    /// # Errors
    /// The errors of [`recv_from`](Self::recv_from).
    #[inline]
    pub fn poll_recv_from(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Lease, SocketAddr)>> {
        self.handle.poll_recv_from(Wait::Polling, cx)
    }

    /// Polls like [`recv_datagram`](Self::recv_datagram). A datagram wakes every task that polled.
    ///
    /// # Errors
    /// The errors of [`recv_datagram`](Self::recv_datagram).
    #[inline]
    pub fn poll_recv_datagram(&self, cx: &mut Context<'_>) -> Poll<io::Result<Datagram>> {
        self.handle.poll_recv(false, Wait::Polling, cx)?.map(Datagram::new)
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
        self.handle.try_recv()?.into_inet()
    }

    /// Receives several datagrams at once: waits for one, and appends it and up to `limit` - 1
    /// others that the loop has already received, in order. Returns their number.
    ///
    /// The loop takes many datagrams from the kernel with one system call, so this makes none. It
    /// saves the waits between them.
    ///
    /// ```
    /// use annulus::net::UdpSocket;
    ///
    /// # annulus::run(async {
    /// let server = UdpSocket::bind("127.0.0.1:0")?;
    /// let client = UdpSocket::bind("127.0.0.1:0")?;
    /// for number in 0..5_u8 {
    ///     client.send_to(vec![number], server.local_addr()?).await?;
    /// }
    /// let (mut batch, mut sum) = (Vec::new(), 0);
    /// while sum < 10 {
    ///     server.recv_many_from(&mut batch, 64).await?;
    ///     for (bytes, _sender) in batch.drain(..) {
    ///         sum += bytes[0];
    ///     }
    /// }
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// Cancel-safe: if the future is dropped before it is ready, nothing has been taken. Each held
    /// datagram keeps a buffer, so choose a limit of at most some hundreds, and drop the leases
    /// soon.
    ///
    /// # Errors
    /// The errors of [`recv_from`](Self::recv_from). If one occurs after another datagram, this
    /// call returns the datagrams before it, and the next call returns the error.
    pub async fn recv_many_from(
        &self,
        datagrams: &mut Vec<(Lease, SocketAddr)>,
        limit: usize,
    ) -> io::Result<usize> {
        self.handle.recv_many(datagrams, limit).await
    }

    /// Copies the beginning of the next datagram, which stays in the socket. Returns the number of
    /// copied bytes and the sender. A datagram that is longer than `memory` is cut.
    ///
    /// ```
    /// use annulus::net::UdpSocket;
    ///
    /// # annulus::run(async {
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.send_to("a long text", socket.local_addr()?).await?;
    /// let mut kind = [0; 1];
    /// let (count, sender) = socket.peek_from(&mut kind).await?;
    /// assert_eq!((count, kind, sender), (1, *b"a", socket.local_addr()?));
    /// assert_eq!(&*socket.recv().await?, b"a long text");
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// Cancel-safe. Every waiting task is woken, unless another one takes the datagram first.
    ///
    /// # Errors
    /// The errors of [`recv_from`](Self::recv_from), except that a datagram larger than
    /// [`max_datagram`](UdpOptions::max_datagram) is shown in part.
    pub async fn peek_from(&self, memory: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.handle.peek(memory).await
    }

    /// Like [`peek_from`](Self::peek_from), but without the address.
    ///
    /// # Errors
    /// The errors of [`peek_from`](Self::peek_from).
    pub async fn peek(&self, memory: &mut [u8]) -> io::Result<usize> {
        self.peek_from(memory).await.map(|(count, _)| count)
    }

    /// Like [`peek_from`](Self::peek_from), but returns only the sender.
    ///
    /// # Errors
    /// The errors of [`peek_from`](Self::peek_from).
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        self.peek_from(&mut []).await.map(|(_, sender)| sender)
    }

    /// Like [`peek_from`](Self::peek_from), but does not wait. The first call only starts
    /// receiving, so it shows nothing.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has been received yet; otherwise the errors of
    /// [`peek_from`](Self::peek_from).
    pub fn try_peek_from(&self, memory: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.handle.try_peek(memory)
    }

    /// Sends a lease or any owned bytes as a datagram, without a copy. The future is ready once the
    /// datagram is queued, and waits while the queue exceeds the runtime's [unsent
    /// limit](crate::Builder::unsent_limit). A queued datagram leaves at the end of the turn.
    ///
    /// If the future is dropped before it is ready, nothing is sent.
    ///
    /// # Errors
    /// `InvalidInput` for more bytes than a datagram can hold, with the limit in the message. The
    /// error of an earlier datagram to the same address (`ConnectionRefused`, `NetworkUnreachable`,
    /// …), in which case this datagram is not sent.
    #[inline]
    pub fn send_to(&self, chunk: impl IntoChunk, to: SocketAddr) -> SendDatagram<'_> {
        self.handle.send(chunk.into(), SendMeta::to_inet(to))
    }

    /// Like [`send_to`](Self::send_to), but sends to the peer of a connected socket.
    ///
    /// # Errors
    /// The errors of [`send_to`](Self::send_to).
    #[inline]
    pub fn send(&self, chunk: impl IntoChunk) -> SendDatagram<'_> {
        self.handle.send(chunk.into(), SendMeta::connected(self.peer_is_v4.get()))
    }

    /// Sends a payload as datagrams of `segment_size` bytes each; the last one may be shorter. The
    /// kernel or the device splits the payload (`UDP_SEGMENT`, since Linux 4.18); if they refuse,
    /// the runtime splits it.
    ///
    /// # Errors
    /// The errors of [`send_to`](Self::send_to), with the limit applied to each segment.
    /// `InvalidInput` for segments of 0 bytes.
    pub fn send_segments(
        &self,
        chunk: impl IntoChunk,
        segment_size: u16,
        to: SocketAddr,
    ) -> SendDatagram<'_> {
        self.send_with(chunk, &Transmit::to(to).segment_size(segment_size))
    }

    /// Sends a datagram with the destination and options in `how`.
    ///
    /// # Errors
    /// The errors of [`send_to`](Self::send_to).
    #[inline]
    pub fn send_with(&self, chunk: impl IntoChunk, how: &Transmit) -> SendDatagram<'_> {
        self.handle.send(chunk.into(), how.meta(self.peer_is_v4.get()))
    }

    /// Sends a datagram of borrowed bytes without waiting. The bytes are copied and leave at the
    /// end of the turn. If the socket has no peer and nothing is queued, a payload of 4 KiB or more
    /// usually goes to the kernel at once, without a copy.
    ///
    /// # Errors
    /// `WouldBlock` if too much is queued: see [`poll_send_ready`](Self::poll_send_ready).
    /// Otherwise the errors of [`send_to`](Self::send_to).
    pub fn try_send(&self, bytes: &[u8], how: &Transmit) -> io::Result<()> {
        self.handle.try_send(bytes, how.meta(self.peer_is_v4.get()))
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

    /// Polls like [`writable`](Self::writable). Space in the queue wakes every task that polled.
    ///
    /// # Errors
    /// If the loop of its runtime is not running.
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handle.poll_send_ready(Wait::Polling, cx)
    }

    /// Waits until the kernel has accepted or refused every datagram. Cancel-safe.
    ///
    /// # Errors
    /// The reason why the last failed datagram was not sent, with its length, its address and the
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

    /// Returns the number of datagrams that the kernel dropped because its queue for this socket
    /// was full. The count is read from the socket (`SO_MEMINFO`), not from a control message with
    /// each datagram (`SO_RXQ_OVFL`), so receives do not pay for it.
    ///
    /// # Errors
    /// If the runtime has ended, or on Linux before 4.12.
    pub fn dropped(&self) -> io::Result<u64> {
        self.handle.dropped()
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    /// If the runtime has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.local_address(fd)?.to_inet())
    }

    /// Returns the peer that the socket is connected to.
    ///
    /// # Errors
    /// `NotConnected`; or if the runtime has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.peer_address(fd)?.to_inet())
    }
}

/// Socket options.
impl UdpSocket {
    options!(methods: buffer ip broadcast multicast error device);
    options!(getters: bind share);

    /// Sets whether received datagrams report their service class and congestion notification, in
    /// [`Datagram::tos`].
    ///
    /// # Errors
    /// If the system refuses the change, or if the runtime has ended.
    pub fn set_recv_tos(&self, on: bool) -> io::Result<()> {
        self.handle.set_ip(SocketOption::RecvTos, on.into())
    }

    /// Sets whether received datagrams report the local address and the interface at which they
    /// arrived, in [`Datagram::local`] and [`Datagram::interface`].
    ///
    /// # Errors
    /// If the system refuses the change, or if the runtime has ended.
    pub fn set_packet_info(&self, on: bool) -> io::Result<()> {
        self.handle.set_ip(SocketOption::PacketInfo, on.into())
    }

    /// Sets whether received datagrams report when the kernel received them, in
    /// [`Datagram::timestamp`].
    ///
    /// # Errors
    /// If the system refuses the change, or if the runtime has ended.
    pub fn set_timestamps(&self, on: bool) -> io::Result<()> {
        self.handle.set(SocketOption::Timestamps, on.into())
    }

    /// Sets whether the kernel may coalesce datagrams of one flow (`UDP_GRO`, since Linux 5.0),
    /// which takes less CPU time. [`recv_from`](Self::recv_from) still returns the datagrams one by
    /// one. [`recv_datagram`](Self::recv_datagram) returns them together, with a
    /// [`segment_size`](Datagram::segment_size).
    ///
    /// Coalesced datagrams together have up to 65,535 bytes, so from then on this replaces the
    /// socket's [`max_datagram`](UdpOptions::max_datagram). If a buffer of
    /// [`Builder::datagram_buffer_size`](crate::Builder::datagram_buffer_size) holds less, receives
    /// use heap memory.
    ///
    /// # Errors
    /// If the system refuses the change, or if the runtime has ended.
    pub fn set_coalescing(&self, on: bool) -> io::Result<()> {
        if on {
            self.handle.expect_coalesced()?;
        }
        self.handle.set(SocketOption::Coalesce, on.into())
    }

    /// Sets whether sent datagrams must not be fragmented, as path MTU discovery requires. If on,
    /// datagrams larger than the MTU of the interface are refused.
    ///
    /// # Errors
    /// If the system refuses the change, or if the runtime has ended.
    pub fn set_dont_fragment(&self, on: bool) -> io::Result<()> {
        self.handle.set_ip(SocketOption::DontFragment, on.into())
    }

    /// Joins a multicast group on the interface with this address. If the address is unspecified,
    /// the system chooses an interface.
    ///
    /// A socket that is bound to the unspecified address gets the datagrams of all groups that any
    /// socket of the machine has joined. To receive the datagrams of one group only, bind the
    /// socket to the address of the group.
    ///
    /// # Errors
    /// If the system refuses the change, or if the runtime has ended.
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.handle.set_multicast(Multicast::V4 { joins: true, group, interface })
    }

    /// Leaves a multicast group that was joined with the same interface address.
    ///
    /// # Errors
    /// If the system refuses the change, or if the runtime has ended.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.handle.set_multicast(Multicast::V4 { joins: false, group, interface })
    }

    /// Joins a multicast group on the interface with this index. If the index is zero, the system
    /// chooses an interface.
    ///
    /// # Errors
    /// If the system refuses the change, or if the runtime has ended.
    pub fn join_multicast_v6(&self, group: Ipv6Addr, interface: u32) -> io::Result<()> {
        self.handle.set_multicast(Multicast::V6 { joins: true, group, interface })
    }

    /// Leaves a multicast group that was joined with the same interface index.
    ///
    /// # Errors
    /// If the system refuses the change, or if the runtime has ended.
    pub fn leave_multicast_v6(&self, group: Ipv6Addr, interface: u32) -> io::Result<()> {
        self.handle.set_multicast(Multicast::V6 { joins: false, group, interface })
    }

    /// Sets the interface through which multicast datagrams leave, by one of its addresses.
    ///
    /// # Errors
    /// If the system refuses the change, or if the runtime has ended.
    pub fn set_multicast_interface_v4(&self, interface: Ipv4Addr) -> io::Result<()> {
        self.handle.set_multicast(Multicast::InterfaceV4(interface))
    }

    /// Sets the interface through which multicast datagrams leave, by its index.
    ///
    /// # Errors
    /// If the system refuses the change, or if the runtime has ended.
    pub fn set_multicast_interface_v6(&self, interface: u32) -> io::Result<()> {
        self.handle.set(SocketOption::MulticastInterfaceV6, interface)
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket").field("local", &self.local_addr().ok()).finish()
    }
}

fn goes_over_v4(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some(),
    }
}

/// Options for opening a UDP socket.
///
/// ```
/// use annulus::net::UdpOptions;
///
/// # annulus::run(async {
/// let socket = UdpOptions::new()
///     .recv_buffer_size(1 << 20) // The kernel's queue, for bursts.
///     .max_datagram(1500)
///     .bind("127.0.0.1:0")?;
/// socket.send_to(vec![0; 1500], socket.local_addr()?).await?;
/// assert_eq!(socket.recv().await?.len(), 1500);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct UdpOptions {
    socket: SocketSettings,
    settings: DatagramSettings,
}

impl UdpOptions {
    /// Returns the system's defaults, with sends in order.
    pub fn new() -> Self {
        Self::default()
    }

    options!(setters: buffer ip bind share broadcast device);

    /// Allows datagrams to overtake each other, so that a datagram for which there is no space does
    /// not delay the others. Off by default.
    pub fn unordered(mut self, on: bool) -> Self {
        self.settings.unordered = on;
        self
    }

    /// Sets the size of the largest datagram that is received whole, at most 65,535 bytes. By
    /// default, it is what fits a buffer of
    /// [`Builder::datagram_buffer_size`](crate::Builder::datagram_buffer_size). If a larger size is
    /// set, datagrams are received one at a time, into heap memory.
    pub fn max_datagram(mut self, bytes: usize) -> Self {
        self.settings.max_datagram = Some(bytes);
        self
    }

    /// Opens a socket at the first address that works. For port 0, the system chooses a port.
    /// Looking up a name blocks the thread; [`lookup_host`](crate::net::lookup_host) does not, and
    /// a numeric address needs no look-up.
    ///
    /// # Errors
    /// `AddrInUse` (after retrying for a tenth of a second, as a
    /// [`TcpListener`](crate::net::TcpListener) does), `PermissionDenied`, …, with the address in
    /// the message. `InvalidInput` if [`max_datagram`](Self::max_datagram) is too large.
    /// `Unsupported` if the kernel's ring cannot receive messages. Outside a runtime.
    pub fn bind(&self, address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        let core = current::get()?;
        let bind = |address| retry_while_in_use(Some(&core), || self.bind_one(&core, address));
        first(address, Operation::Bind, bind)
    }

    fn bind_one(&self, core: &Rc<Core>, address: SocketAddr) -> io::Result<UdpSocket> {
        let format = if address.is_ipv4() { MessageFormat::INET } else { MessageFormat::INET6 };
        let socket = NewFd::new(&core.kernel, format.domain, SocketType::Datagram)?;
        self.socket.apply(&socket)?;
        socket.bind(&Address::from(address))?;
        let handle = DatagramHandle::new(core, socket, format, self.settings)?;
        Ok(UdpSocket::new(handle))
    }
}
