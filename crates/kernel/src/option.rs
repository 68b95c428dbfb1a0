//! Socket options, with their values.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The internet protocol of an option. A socket of [`Domain::Inet6`](crate::Domain::Inet6) that also has IPv4 peers has both: each
/// applies to the datagrams of its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A socket option with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// `SO_REUSEADDR`.
    ReuseAddress(bool),
    /// `SO_REUSEPORT`.
    ReusePort(bool),
    /// `IP_BIND_ADDRESS_NO_PORT`: a bind to port zero leaves the choice of the port to the connect, which knows the peer.
    BindAddressNoPort(bool),
    /// `SO_INCOMING_CPU`: of sockets that share a port, prefer this one for what the CPU handles (6.2).
    IncomingCpu(u32),
    /// `TCP_NODELAY`.
    NoDelay(bool),
    /// `TCP_CORK`; turned off, what was sent with `MSG_MORE` leaves.
    Cork(bool),
    /// `TCP_QUICKACK`: what is received is acknowledged at once. The kernel turns it off again by itself.
    QuickAck(bool),
    /// `TCP_USER_TIMEOUT`, in milliseconds: how long sent bytes may stay unacknowledged; zero is the system's rule.
    UserTimeout(u32),
    /// `SO_KEEPALIVE`.
    KeepAlive(bool),
    /// `TCP_KEEPIDLE`, in seconds.
    KeepAliveTime(u32),
    /// `TCP_KEEPINTVL`, in seconds.
    KeepAliveInterval(u32),
    /// `TCP_KEEPCNT`.
    KeepAliveRetries(u32),
    /// `SO_BINDTODEVICE`.
    Device(DeviceName),
    /// `SO_LINGER`; `Some(ZERO)` makes a close a reset.
    Linger(Option<Duration>),
    /// `IPV6_V6ONLY`.
    V6Only(bool),
    /// `SO_RCVBUF`, in bytes. Linux doubles it.
    RecvBuffer(usize),
    /// `SO_SNDBUF`, in bytes. Linux doubles it.
    SendBuffer(usize),
    /// `SO_BROADCAST`: sends to broadcast addresses are allowed.
    Broadcast(bool),
    /// `IP_ADD_MEMBERSHIP`, on the interface with this address; if unspecified, the system chooses one.
    JoinV4 {
        /// The multicast group.
        group: Ipv4Addr,
        /// An address of the interface.
        interface: Ipv4Addr,
    },
    /// `IP_DROP_MEMBERSHIP`.
    LeaveV4 {
        /// The multicast group.
        group: Ipv4Addr,
        /// An address of the interface.
        interface: Ipv4Addr,
    },
    /// `IPV6_ADD_MEMBERSHIP`, on the interface with this number; if zero, the system chooses one.
    JoinV6 {
        /// The multicast group.
        group: Ipv6Addr,
        /// The number of the interface.
        interface: u32,
    },
    /// `IPV6_DROP_MEMBERSHIP`.
    LeaveV6 {
        /// The multicast group.
        group: Ipv6Addr,
        /// The number of the interface.
        interface: u32,
    },
    /// `IP_MULTICAST_IF`: the interface of outgoing multicast datagrams, by its address.
    MulticastInterfaceV4(Ipv4Addr),
    /// `IPV6_MULTICAST_IF`: the same, by its number.
    MulticastInterfaceV6(u32),
    /// `IP_MULTICAST_LOOP`, `IPV6_MULTICAST_LOOP`: members on this host receive what it sends.
    MulticastLoop(Ip, bool),
    /// `IP_MULTICAST_TTL`, `IPV6_MULTICAST_HOPS`.
    MulticastTtl(Ip, u8),
    /// `IP_TTL`, `IPV6_UNICAST_HOPS`.
    Ttl(Ip, u8),
    /// `IP_TOS`, `IPV6_TCLASS`: six bits of service class, two of congestion notification.
    Tos(Ip, u8),
    /// `IP_RECVTOS`, `IPV6_RECVTCLASS`: received datagrams have a [`Control::Tos`](crate::Control::Tos).
    RecvTos(Ip, bool),
    /// `IP_PKTINFO`, `IPV6_RECVPKTINFO`: they have a [`Control::PacketInfo`](crate::Control::PacketInfo).
    PacketInfo(Ip, bool),
    /// `SO_TIMESTAMPNS`: they have a [`Control::Timestamp`](crate::Control::Timestamp).
    Timestamps(bool),
    /// `SO_RXQ_OVFL`: they have a [`Control::Drops`](crate::Control::Drops), once some were dropped.
    DropCount(bool),
    /// `IP_RECVERR`, `IPV6_RECVERR`: errors of single datagrams are queued separately, and reported to unconnected sockets too.
    RecvErrors(Ip, bool),
    /// `IP_MTU_DISCOVER`, `IPV6_MTU_DISCOVER`. If on, a datagram is never fragmented, and one larger than the MTU of the interface
    /// is refused (`IP_PMTUDISC_PROBE`); if off, the system fragments (`IP_PMTUDISC_DONT`).
    DontFragment(Ip, bool),
    /// `UDP_SEGMENT`: each send is split into datagrams of this size; zero is off.
    SegmentSize(u16),
    /// `UDP_GRO`: datagrams of one flow may be coalesced, with a [`Control::SegmentSize`](crate::Control::SegmentSize).
    Coalesce(bool),
    /// `SO_PASSCRED`: what a Unix socket receives has a [`Control::Credentials`](crate::Control::Credentials).
    PassCredentials(bool),
}

/// A socket option to read, whose value is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketQuery {
    /// `SO_RCVBUF`, in bytes, as doubled.
    RecvBuffer,
    /// `SO_SNDBUF`, in bytes, as doubled.
    SendBuffer,
    /// `SO_ERROR`: the pending error, which is cleared; zero if there is none.
    Error,
    /// `IP_TTL`, `IPV6_UNICAST_HOPS`.
    Ttl(Ip),
    /// `IP_TOS`, `IPV6_TCLASS`.
    Tos(Ip),
    /// `SO_BROADCAST`, 0 or 1.
    Broadcast,
    /// `IP_MULTICAST_LOOP`, `IPV6_MULTICAST_LOOP`, 0 or 1.
    MulticastLoop(Ip),
    /// `IP_MULTICAST_TTL`, `IPV6_MULTICAST_HOPS`.
    MulticastTtl(Ip),
    /// `SO_REUSEADDR`, 0 or 1.
    ReuseAddress,
    /// `SO_REUSEPORT`, 0 or 1.
    ReusePort,
    /// `IPV6_V6ONLY`, 0 or 1.
    V6Only,
    /// `TCP_NODELAY`, 0 or 1.
    NoDelay,
    /// `TCP_QUICKACK`, 0 or 1.
    QuickAck,
    /// `TCP_USER_TIMEOUT`, in milliseconds.
    UserTimeout,
    /// `SO_KEEPALIVE`, 0 or 1.
    KeepAlive,
    /// `TCP_KEEPIDLE`, in seconds.
    KeepAliveTime,
    /// `TCP_KEEPINTVL`, in seconds.
    KeepAliveInterval,
    /// `TCP_KEEPCNT`.
    KeepAliveRetries,
    /// `SO_LINGER`: seconds, or [`NO_LINGER`](SocketQuery::NO_LINGER).
    Linger,
    /// `SO_DOMAIN`: an address family of Linux.
    Domain,
    /// `SO_TYPE`: a socket type of Linux.
    Type,
    /// `SO_PROTOCOL`: a protocol of Linux, such as [`TCP`](SocketQuery::TCP).
    Protocol,
    /// `SO_ACCEPTCONN`: 1 if it listens.
    Listens,
    /// `SO_MEMINFO` (4.12): how many datagrams were dropped so far because the buffer was full, modulo 2^32.
    Drops,
}

impl SocketQuery {
    /// The answer to [`Protocol`](Self::Protocol) of a TCP socket.
    pub const TCP: u32 = 6;

    /// The answer to [`Linger`](Self::Linger) of a socket that does not linger. No time has this value.
    pub const NO_LINGER: u32 = u32::MAX;
}

/// The name of a network interface, such as `eth0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceName([u8; DeviceName::SIZE]);

impl DeviceName {
    /// No interface: the socket is bound to none.
    pub const NONE: Self = Self([0; Self::SIZE]);
    /// Bytes of a name, with the zero that ends it (`IFNAMSIZ`).
    pub(crate) const SIZE: usize = 16;

    /// # Errors
    /// `InvalidInput` if no interface can have this name: it is empty, longer than 15 bytes, or has a zero byte, a slash or a space.
    pub fn new(name: &str) -> io::Result<Self> {
        let refused = |byte: u8| matches!(byte, 0 | b'/') || byte.is_ascii_whitespace();
        if name.is_empty() || name.len() >= Self::SIZE || name.bytes().any(refused) {
            let most = Self::SIZE - 1;
            let text = format!(
                "no network interface has the name {name:?}: 1 to {most} bytes, no slash, no space"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut bytes = [0; Self::SIZE];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self(bytes))
    }

    pub(crate) fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        f.write_str(&String::from_utf8_lossy(&self.0[..end]))
    }
}

/// The process at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The process; zero if it is in a namespace that is not visible.
    pub pid: u32,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}
