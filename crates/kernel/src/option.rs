//! Socket options, with their values.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Which internet protocol an option is about. A socket of [`Domain::Inet6`](crate::Domain::Inet6) that also speaks to
/// IPv4 peers knows both: each is about the datagrams of its own kind.
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
    /// `IP_BIND_ADDRESS_NO_PORT`: a bind without a port leaves that to the connect, which knows the other end.
    BindAddressNoPort(bool),
    /// `SO_INCOMING_CPU`: of sockets that share a port, the one for what this CPU handles (6.2).
    IncomingCpu(u32),
    /// `TCP_NODELAY`.
    NoDelay(bool),
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
    /// `IP_ADD_MEMBERSHIP`, on the interface that has this address; unspecified, on one of the system's choice.
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
    /// `IPV6_ADD_MEMBERSHIP`, on the interface of this number; zero, on one of the system's choice.
    JoinV6 {
        /// The multicast group.
        group: Ipv6Addr,
        /// The interface's number.
        interface: u32,
    },
    /// `IPV6_DROP_MEMBERSHIP`.
    LeaveV6 {
        /// The multicast group.
        group: Ipv6Addr,
        /// The interface's number.
        interface: u32,
    },
    /// `IP_MULTICAST_IF`: where multicast datagrams leave, by an address of the interface.
    MulticastInterfaceV4(Ipv4Addr),
    /// `IPV6_MULTICAST_IF`: the same, by the interface's number.
    MulticastInterfaceV6(u32),
    /// `IP_MULTICAST_LOOP`, `IPV6_MULTICAST_LOOP`: this host's members hear what it sends.
    MulticastLoop(Ip, bool),
    /// `IP_MULTICAST_TTL`, `IPV6_MULTICAST_HOPS`.
    MulticastTtl(Ip, u8),
    /// `IP_TTL`, `IPV6_UNICAST_HOPS`.
    Ttl(Ip, u8),
    /// `IP_TOS`, `IPV6_TCLASS`: six bits of service class, two of congestion notification.
    Tos(Ip, u8),
    /// `IP_RECVTOS`, `IPV6_RECVTCLASS`: received datagrams bring a [`Control::Tos`](crate::Control::Tos).
    RecvTos(Ip, bool),
    /// `IP_PKTINFO`, `IPV6_RECVPKTINFO`: they bring a [`Control::PacketInfo`](crate::Control::PacketInfo).
    PacketInfo(Ip, bool),
    /// `SO_TIMESTAMPNS`: they bring a [`Control::Timestamp`](crate::Control::Timestamp).
    Timestamps(bool),
    /// `SO_RXQ_OVFL`: they bring a [`Control::Drops`](crate::Control::Drops), once some were dropped.
    DropCount(bool),
    /// `IP_RECVERR`, `IPV6_RECVERR`: errors of single datagrams are kept on a queue of their own, and told to unconnected
    /// sockets too.
    RecvErrors(Ip, bool),
    /// `IP_MTU_DISCOVER`, `IPV6_MTU_DISCOVER`: on, a datagram is never fragmented, and one larger than the interface's
    /// limit is refused (`IP_PMTUDISC_PROBE`); off, the system fragments (`IP_PMTUDISC_DONT`).
    DontFragment(Ip, bool),
    /// `UDP_SEGMENT`: each send is cut into datagrams of this size; zero ends that.
    SegmentSize(u16),
    /// `UDP_GRO`: datagrams of one flow may come as one, with a [`Control::SegmentSize`](crate::Control::SegmentSize).
    Coalesce(bool),
    /// `SO_PASSCRED`: what a Unix socket receives brings a [`Control::Credentials`](crate::Control::Credentials).
    PassCredentials(bool),
}

/// A socket option to be read; the answer is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketQuery {
    /// `SO_RCVBUF`, in bytes, as doubled.
    RecvBuffer,
    /// `SO_SNDBUF`, in bytes, as doubled.
    SendBuffer,
    /// `SO_ERROR`: the pending error's number, which is thereby taken; zero where there is none.
    Error,
    /// `IP_TTL`, `IPV6_UNICAST_HOPS`.
    Ttl(Ip),
    /// `IP_TOS`, `IPV6_TCLASS`.
    Tos(Ip),
    /// `SO_BROADCAST`, 0 or 1.
    Broadcast,
    /// `SO_MEMINFO` (4.12): how many datagrams were dropped so far for want of room, modulo 2^32.
    Drops,
}

/// Who is at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The process; zero where it cannot be seen from here.
    pub pid: u32,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}
