//! UDP.

mod options;

pub use options::UdpOptions;

use super::datagram::{Datagram, Transmit};
use super::datagram_handle::{DatagramHandle, SendDatagram};
use super::resolve::first;
use crate::chunk::Chunk;
use crate::lease::Lease;
use crate::slots::datagrams::ReceivedMessage;
use crate::waiters::Wait;
use annulus_kernel::{Address, Ip, SocketOption, SocketQuery};
use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::task::{Context, Poll};

/// A UDP socket.
///
/// Datagrams come as [`Lease`]s on memory that the ring lent, whole: buffers hold the largest there is. Several tasks may
/// wait for one at once. What is not taken is bounded; beyond it the kernel queues, drops, and counts: see
/// [`dropped`](Self::dropped).
///
/// A send is ready once the datagram is queued, and leaves with the turn: in order, in one system call with everything
/// else. What becomes of it later is told by the next send on the same way, or by [`flush`](Self::flush). An error never
/// ends the socket.
pub struct UdpSocket {
    handle: DatagramHandle,
    is_v4: bool,
    peer_is_v4: Cell<bool>,
}

impl UdpSocket {
    /// Opens a socket with default [`UdpOptions`].
    ///
    /// # Errors
    /// As [`UdpOptions::bind`].
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        UdpOptions::new().bind(address)
    }

    fn new(handle: DatagramHandle, is_v4: bool) -> Self {
        Self { handle, is_v4, peer_is_v4: Cell::new(true) }
    }

    /// Sets the peer: [`send`](Self::send) goes to it, and nobody else's datagrams are received. It may be set anew.
    /// Resolving a name blocks the thread; numbers do not.
    ///
    /// # Errors
    /// `NetworkUnreachable`, …, naming the address.
    pub fn connect(&self, address: impl ToSocketAddrs) -> io::Result<()> {
        let connect = |address: SocketAddr| {
            self.handle.with_fd(|kernel, fd| kernel.connect(fd, &Address::from(address)))?;
            Ok(address.ip())
        };
        let peer = first(address, "connecting to", connect)?;
        self.peer_is_v4.set(goes_over_v4(peer));
        self.handle.set_connected()
    }

    /// The next datagram, and who sent it. Datagrams that came together are handed out one by one.
    ///
    /// Cancel-safe: the receive belongs to the socket; dropping the future loses no datagram. An empty datagram is an empty
    /// lease.
    ///
    /// # Errors
    /// On a connected socket, what its peer's host answered to an earlier datagram (`ConnectionRefused`), once;
    /// `InvalidData` for a datagram that was larger than [`max_datagram`](UdpOptions::max_datagram): its bytes are lost, the
    /// next one is not.
    #[inline]
    pub async fn recv_from(&self) -> io::Result<(Lease, SocketAddr)> {
        whole(self.handle.recv(true).await?)
    }

    /// As [`recv_from`](Self::recv_from), where the sender is known.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub async fn recv(&self) -> io::Result<Lease> {
        self.recv_from().await.map(|(bytes, _)| bytes)
    }

    /// The next datagram, with all that the kernel tells of it; those that came together as one. Cancel-safe.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from), but a cut datagram is told by [`Datagram::is_truncated`].
    #[inline]
    pub async fn recv_datagram(&self) -> io::Result<Datagram> {
        Datagram::new(self.handle.recv(false).await?)
    }

    /// As [`recv_from`](Self::recv_from), by polling. Every task that polled is woken.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn poll_recv_from(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Lease, SocketAddr)>> {
        self.handle.poll_recv(true, Wait::Polling, cx)?.map(whole)
    }

    /// As [`recv_datagram`](Self::recv_datagram), by polling. Every task that polled is woken.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn poll_recv_datagram(&self, cx: &mut Context<'_>) -> Poll<io::Result<Datagram>> {
        self.handle.poll_recv(false, Wait::Polling, cx)?.map(Datagram::new)
    }

    /// Sends a datagram: a lease, or any owned bytes. Ready once it is queued within the runtime's send bound; it leaves
    /// with the turn, without being copied.
    ///
    /// Dropped before it is ready, nothing is sent; afterwards it goes in order.
    ///
    /// # Errors
    /// `InvalidInput` for more bytes than a datagram can have, naming the limit; what became of an earlier datagram to the
    /// same address: `ConnectionRefused`, `NetworkUnreachable`, …. This one is then not sent.
    #[inline]
    pub fn send_to(&self, chunk: impl Into<Chunk>, to: SocketAddr) -> SendDatagram<'_> {
        self.send_with(chunk, &Transmit::to(to))
    }

    /// As [`send_to`](Self::send_to), to the peer of a connected socket.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn send(&self, chunk: impl Into<Chunk>) -> SendDatagram<'_> {
        self.send_with(chunk, &Transmit::connected())
    }

    /// Sends a payload as datagrams of `segment_size` bytes each, but for the last one. The kernel or the device cuts them
    /// (`UDP_SEGMENT`, 4.18); where they refuse, it is done here.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to), with the limit for one segment; `InvalidInput` for segments of 0 bytes.
    pub fn send_segments(
        &self,
        chunk: impl Into<Chunk>,
        segment_size: u16,
        to: SocketAddr,
    ) -> SendDatagram<'_> {
        self.send_with(chunk, &Transmit::to(to).segment_size(segment_size))
    }

    /// Sends as told.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    #[inline]
    pub fn send_with(&self, chunk: impl Into<Chunk>, how: &Transmit) -> SendDatagram<'_> {
        self.handle.send(chunk.into(), how.meta(self.peer_is_v4.get()))
    }

    /// Copies a datagram, to leave with the turn, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` where too much is queued: see [`poll_send_ready`](Self::poll_send_ready); else as
    /// [`send_to`](Self::send_to).
    pub fn try_send(&self, bytes: &[u8], how: &Transmit) -> io::Result<()> {
        self.handle.try_send(bytes, how.meta(self.peer_is_v4.get()))
    }

    /// Ready once a datagram would be accepted. Every task that polled is woken.
    ///
    /// # Errors
    /// Outside its runtime.
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handle.poll_send_ready(cx)
    }

    /// Waits until the kernel has taken every datagram, and tells what became of them. Cancel-safe.
    ///
    /// # Errors
    /// Why a datagram was not sent, once, naming its length and address, and how many more were not. All others were.
    pub async fn flush(&self) -> io::Result<()> {
        self.handle.flush().await
    }

    /// As [`flush`](Self::flush), by polling. Every task that polled is woken.
    ///
    /// # Errors
    /// As there.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handle.poll_flush(Wait::Polling, cx)
    }

    /// Datagrams that the kernel has dropped by now because this socket's reader was slow: what `SO_RXQ_OVFL` tells with
    /// every datagram, asked of the socket instead (`SO_MEMINFO`), so that datagrams pay nothing for it.
    ///
    /// # Errors
    /// After the runtime's end; before Linux 4.12.
    pub fn dropped(&self) -> io::Result<u64> {
        self.handle.dropped()
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// After the runtime's end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.local_address(fd)?.to_inet())
    }

    /// The peer it is connected to.
    ///
    /// # Errors
    /// `NotConnected`; or after the runtime's end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.peer_address(fd)?.to_inet())
    }
}

/// Options. All of them fail after the runtime's end, and with what the system says.
impl UdpSocket {
    /// Whether sends to broadcast addresses are allowed (`SO_BROADCAST`). Off at first.
    ///
    /// # Errors
    /// See above.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.handle.set(SocketOption::Broadcast(on))
    }

    /// Hops that a datagram may take (`IP_TTL`, `IPV6_UNICAST_HOPS`).
    ///
    /// # Errors
    /// See above.
    pub fn set_ttl(&self, hops: u8) -> io::Result<()> {
        self.handle.set(SocketOption::Ttl(self.ip(), hops))
    }

    /// Service class and congestion notification of what is sent (`IP_TOS`, `IPV6_TCLASS`), eight bits.
    ///
    /// # Errors
    /// See above.
    pub fn set_tos(&self, tos: u8) -> io::Result<()> {
        self.both(|ip| SocketOption::Tos(ip, tos))
    }

    /// Whether datagrams tell their service class and congestion notification: [`Datagram::tos`].
    ///
    /// # Errors
    /// See above.
    pub fn set_recv_tos(&self, on: bool) -> io::Result<()> {
        self.both(|ip| SocketOption::RecvTos(ip, on))
    }

    /// Whether datagrams tell which local address and interface they came to: [`Datagram::local`].
    ///
    /// # Errors
    /// See above.
    pub fn set_packet_info(&self, on: bool) -> io::Result<()> {
        self.both(|ip| SocketOption::PacketInfo(ip, on))
    }

    /// Whether datagrams tell when the kernel received them: [`Datagram::timestamp`].
    ///
    /// # Errors
    /// See above.
    pub fn set_timestamps(&self, on: bool) -> io::Result<()> {
        self.handle.set(SocketOption::Timestamps(on))
    }

    /// Whether the kernel may put datagrams of one flow together (`UDP_GRO`, 5.0), which costs it less.
    /// [`recv_from`](Self::recv_from) hands them out one by one all the same; see [`Datagram::segment_size`].
    ///
    /// # Errors
    /// See above.
    pub fn set_coalescing(&self, on: bool) -> io::Result<()> {
        self.handle.set(SocketOption::Coalesce(on))
    }

    /// Whether datagrams may never be fragmented, as probing for the largest that fits needs it. Larger ones than the
    /// interface allows are then refused.
    ///
    /// # Errors
    /// See above.
    pub fn set_dont_fragment(&self, on: bool) -> io::Result<()> {
        self.both(|ip| SocketOption::DontFragment(ip, on))
    }

    /// Receives what is sent to a multicast group, on the interface that has this address; unspecified, on one of the
    /// system's choice.
    ///
    /// # Errors
    /// See above.
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.handle.set(SocketOption::JoinV4 { group, interface })
    }

    /// Ends that.
    ///
    /// # Errors
    /// See above.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.handle.set(SocketOption::LeaveV4 { group, interface })
    }

    /// Receives what is sent to a multicast group, on the interface of this number; zero, on one of the system's choice.
    ///
    /// # Errors
    /// See above.
    pub fn join_multicast_v6(&self, group: Ipv6Addr, interface: u32) -> io::Result<()> {
        self.handle.set(SocketOption::JoinV6 { group, interface })
    }

    /// Ends that.
    ///
    /// # Errors
    /// See above.
    pub fn leave_multicast_v6(&self, group: Ipv6Addr, interface: u32) -> io::Result<()> {
        self.handle.set(SocketOption::LeaveV6 { group, interface })
    }

    /// The interface that multicast datagrams leave by, told by one of its addresses.
    ///
    /// # Errors
    /// See above.
    pub fn set_multicast_interface_v4(&self, interface: Ipv4Addr) -> io::Result<()> {
        self.handle.set(SocketOption::MulticastInterfaceV4(interface))
    }

    /// The interface that multicast datagrams leave by, told by its number.
    ///
    /// # Errors
    /// See above.
    pub fn set_multicast_interface_v6(&self, interface: u32) -> io::Result<()> {
        self.handle.set(SocketOption::MulticastInterfaceV6(interface))
    }

    /// Whether this host's own members of a group hear what is sent to it. On at first.
    ///
    /// # Errors
    /// See above.
    pub fn set_multicast_loop(&self, on: bool) -> io::Result<()> {
        self.handle.set(SocketOption::MulticastLoop(self.ip(), on))
    }

    /// Hops that a multicast datagram may take. One at first: it stays in the local network.
    ///
    /// # Errors
    /// See above.
    pub fn set_multicast_ttl(&self, hops: u8) -> io::Result<()> {
        self.handle.set(SocketOption::MulticastTtl(self.ip(), hops))
    }

    /// Bytes the kernel holds for this socket until they are received, as it counts them: twice what was asked for.
    ///
    /// # Errors
    /// See above.
    pub fn recv_buffer(&self) -> io::Result<usize> {
        self.handle.with_fd(|kernel, fd| Ok(kernel.option(fd, SocketQuery::RecvBuffer)? as usize))
    }

    /// Bytes the kernel holds until they have left, as it counts them: twice what was asked for.
    ///
    /// # Errors
    /// See above.
    pub fn send_buffer(&self) -> io::Result<usize> {
        self.handle.with_fd(|kernel, fd| Ok(kernel.option(fd, SocketQuery::SendBuffer)? as usize))
    }

    fn ip(&self) -> Ip {
        if self.is_v4 { Ip::V4 } else { Ip::V6 }
    }

    /// An IPv6 socket that also speaks to IPv4 peers has an option for each.
    fn both(&self, option: impl Fn(Ip) -> SocketOption) -> io::Result<()> {
        if !self.is_v4 {
            // Where it keeps to IPv6, there is none for IPv4.
            _ = self.handle.set(option(Ip::V4));
        }
        self.handle.set(option(self.ip()))
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

/// A datagram of which nothing is missing.
fn whole(message: ReceivedMessage) -> io::Result<(Lease, SocketAddr)> {
    if message.is_cut() {
        return Err(cut(&message));
    }
    let source = message.inet_source()?;
    Ok((message.into_bytes(), source))
}

/// Says what was cut off.
pub(super) fn cut(message: &ReceivedMessage) -> io::Error {
    let text = format!(
        "a datagram of {} bytes was cut to {}; ask for larger ones with max_datagram",
        message.whole_len(),
        message.len()
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}
