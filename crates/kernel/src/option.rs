//! Socket options with their values, and as `setsockopt(2)` and `getsockopt(2)` have them.
#![allow(unsafe_code)]

use libc::{SOL_IP, SOL_IPV6, SOL_SOCKET, SOL_TCP, SOL_UDP};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
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
    const SIZE: usize = 16;

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

/// The value of an option in the kernel's layout: at most `struct ipv6_mreq`.
struct Value {
    bytes: [u8; 20],
    len: usize,
}

impl Value {
    fn new(parts: &[&[u8]]) -> Self {
        let (mut bytes, mut len) = ([0; 20], 0);
        for part in parts {
            bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        Self { bytes, len }
    }

    fn int(value: impl Into<i32>) -> Self {
        Self::new(&[&value.into().to_ne_bytes()])
    }

    /// A number, or the largest that the kernel takes.
    fn capped(value: impl TryInto<i32>) -> Self {
        Self::int(value.try_into().unwrap_or(i32::MAX))
    }
}

pub(crate) fn set(fd: BorrowedFd<'_>, option: SocketOption) -> io::Result<()> {
    let ((level, name), Value { bytes, len }) = encoded(option);
    let (fd, len) = (fd.as_raw_fd(), len as libc::socklen_t);
    // SAFETY: the call reads `len` bytes, which are initialised.
    match unsafe { libc::setsockopt(fd, level, name, bytes.as_ptr().cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The index of the dropped datagrams in the result of `SO_MEMINFO` (`SK_MEMINFO_DROPS`), and its length.
const DROPS: usize = 8;
const MEMORY: usize = 9;

pub(crate) fn read(fd: BorrowedFd<'_>, query: SocketQuery) -> io::Result<u32> {
    match query {
        SocketQuery::Drops => {
            let mut memory = [0u32; MEMORY];
            fill(fd, SOL_SOCKET, libc::SO_MEMINFO, &mut memory)?;
            Ok(memory[DROPS])
        }
        SocketQuery::Linger => {
            let mut linger = [0u32; 2];
            fill(fd, SOL_SOCKET, libc::SO_LINGER, &mut linger)?;
            Ok(if linger[0] == 0 { SocketQuery::NO_LINGER } else { linger[1] })
        }
        _ => {
            let (level, name) = query_name(query);
            let mut value = 0u32;
            fill(fd, level, name, &mut value)?;
            Ok(value)
        }
    }
}

/// The level and the name of a query whose answer is one number.
fn query_name(query: SocketQuery) -> (i32, i32) {
    match query {
        SocketQuery::Drops => (SOL_SOCKET, libc::SO_MEMINFO),
        SocketQuery::Linger => (SOL_SOCKET, libc::SO_LINGER),
        SocketQuery::RecvBuffer => (SOL_SOCKET, libc::SO_RCVBUF),
        SocketQuery::SendBuffer => (SOL_SOCKET, libc::SO_SNDBUF),
        SocketQuery::Error => (SOL_SOCKET, libc::SO_ERROR),
        SocketQuery::Broadcast => (SOL_SOCKET, libc::SO_BROADCAST),
        SocketQuery::Ttl(ip) => of(ip, libc::IP_TTL, libc::IPV6_UNICAST_HOPS),
        SocketQuery::Tos(ip) => of(ip, libc::IP_TOS, libc::IPV6_TCLASS),
        SocketQuery::MulticastLoop(ip) => multicast_loop(ip),
        SocketQuery::MulticastTtl(ip) => multicast_ttl(ip),
        SocketQuery::ReuseAddress => (SOL_SOCKET, libc::SO_REUSEADDR),
        SocketQuery::ReusePort => (SOL_SOCKET, libc::SO_REUSEPORT),
        SocketQuery::V6Only => (SOL_IPV6, libc::IPV6_V6ONLY),
        SocketQuery::NoDelay => (SOL_TCP, libc::TCP_NODELAY),
        SocketQuery::QuickAck => (SOL_TCP, libc::TCP_QUICKACK),
        SocketQuery::UserTimeout => (SOL_TCP, libc::TCP_USER_TIMEOUT),
        SocketQuery::KeepAlive => (SOL_SOCKET, libc::SO_KEEPALIVE),
        SocketQuery::KeepAliveTime => (SOL_TCP, libc::TCP_KEEPIDLE),
        SocketQuery::KeepAliveInterval => (SOL_TCP, libc::TCP_KEEPINTVL),
        SocketQuery::KeepAliveRetries => (SOL_TCP, libc::TCP_KEEPCNT),
        SocketQuery::Domain => (SOL_SOCKET, libc::SO_DOMAIN),
        SocketQuery::Type => (SOL_SOCKET, libc::SO_TYPE),
        SocketQuery::Protocol => (SOL_SOCKET, libc::SO_PROTOCOL),
        SocketQuery::Listens => (SOL_SOCKET, libc::SO_ACCEPTCONN),
    }
}

/// The interface that a socket is bound to.
pub(crate) fn device(fd: BorrowedFd<'_>) -> io::Result<Option<DeviceName>> {
    let mut name = [0u8; DeviceName::SIZE];
    fill(fd, SOL_SOCKET, libc::SO_BINDTODEVICE, &mut name)?;
    Ok((name[0] != 0).then_some(DeviceName(name)))
}

/// A new descriptor of the process at the other end of a Unix socket (6.5).
pub(crate) fn peer_process(fd: BorrowedFd<'_>) -> io::Result<RawFd> {
    let mut process = 0u32;
    fill(fd, SOL_SOCKET, libc::SO_PEERPIDFD, &mut process)?;
    Ok(process as RawFd)
}

pub(crate) fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    fill(fd, SOL_SOCKET, libc::SO_PEERCRED, &mut peer)?;
    Ok(Credentials { pid: peer.pid.unsigned_abs(), uid: peer.uid, gid: peer.gid })
}

/// A type of integers only, without padding.
///
/// # Safety
/// Every bit pattern must be a valid value.
unsafe trait Integers {}

// SAFETY: every bit pattern is an integer.
unsafe impl Integers for u32 {}
// SAFETY: every bit pattern is an array of integers.
unsafe impl<const N: usize> Integers for [u32; N] {}
// SAFETY: every bit pattern is an array of integers.
unsafe impl<const N: usize> Integers for [u8; N] {}
// SAFETY: the three fields are integers of four bytes.
unsafe impl Integers for libc::ucred {}

/// Reads the value of an option.
fn fill<T: Integers>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: the call writes at most `len` bytes, the size of the value, of which every bit pattern is valid.
    match unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value, &raw mut len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn of(ip: Ip, v4: i32, v6: i32) -> (i32, i32) {
    match ip {
        Ip::V4 => (SOL_IP, v4),
        Ip::V6 => (SOL_IPV6, v6),
    }
}

/// The level and the name of an option, and its value.
fn encoded(option: SocketOption) -> ((i32, i32), Value) {
    use SocketOption as Set;
    let (socket, tcp) = (|name| (SOL_SOCKET, name), |name| (SOL_TCP, name));
    match option {
        Set::ReuseAddress(on) => (socket(libc::SO_REUSEADDR), Value::int(on)),
        Set::ReusePort(on) => (socket(libc::SO_REUSEPORT), Value::int(on)),
        Set::BindAddressNoPort(on) => ((SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT), Value::int(on)),
        Set::IncomingCpu(cpu) => (socket(libc::SO_INCOMING_CPU), Value::capped(cpu)),
        Set::NoDelay(on) => (tcp(libc::TCP_NODELAY), Value::int(on)),
        Set::Cork(on) => (tcp(libc::TCP_CORK), Value::int(on)),
        Set::QuickAck(on) => (tcp(libc::TCP_QUICKACK), Value::int(on)),
        Set::UserTimeout(time) => (tcp(libc::TCP_USER_TIMEOUT), Value::capped(time)),
        Set::KeepAlive(on) => (socket(libc::SO_KEEPALIVE), Value::int(on)),
        Set::KeepAliveTime(time) => (tcp(libc::TCP_KEEPIDLE), Value::capped(time)),
        Set::KeepAliveInterval(time) => (tcp(libc::TCP_KEEPINTVL), Value::capped(time)),
        Set::KeepAliveRetries(count) => (tcp(libc::TCP_KEEPCNT), Value::capped(count)),
        Set::Device(name) => (socket(libc::SO_BINDTODEVICE), Value::new(&[&name.0])),
        Set::Linger(time) => (socket(libc::SO_LINGER), linger(time)),
        Set::V6Only(on) => ((SOL_IPV6, libc::IPV6_V6ONLY), Value::int(on)),
        Set::RecvBuffer(bytes) => (socket(libc::SO_RCVBUF), Value::capped(bytes)),
        Set::SendBuffer(bytes) => (socket(libc::SO_SNDBUF), Value::capped(bytes)),
        Set::Broadcast(on) => (socket(libc::SO_BROADCAST), Value::int(on)),
        Set::JoinV4 { group, interface } => {
            let value = Value::new(&[&group.octets(), &interface.octets()]);
            ((SOL_IP, libc::IP_ADD_MEMBERSHIP), value)
        }
        Set::LeaveV4 { group, interface } => {
            let value = Value::new(&[&group.octets(), &interface.octets()]);
            ((SOL_IP, libc::IP_DROP_MEMBERSHIP), value)
        }
        Set::JoinV6 { group, interface } => {
            let value = Value::new(&[&group.octets(), &interface.to_ne_bytes()]);
            ((SOL_IPV6, libc::IPV6_ADD_MEMBERSHIP), value)
        }
        Set::LeaveV6 { group, interface } => {
            let value = Value::new(&[&group.octets(), &interface.to_ne_bytes()]);
            ((SOL_IPV6, libc::IPV6_DROP_MEMBERSHIP), value)
        }
        Set::MulticastInterfaceV4(interface) => {
            ((SOL_IP, libc::IP_MULTICAST_IF), Value::new(&[&interface.octets()]))
        }
        Set::MulticastInterfaceV6(interface) => {
            ((SOL_IPV6, libc::IPV6_MULTICAST_IF), Value::new(&[&interface.to_ne_bytes()]))
        }
        Set::MulticastLoop(ip, on) => (multicast_loop(ip), Value::int(on)),
        Set::MulticastTtl(ip, ttl) => (multicast_ttl(ip), Value::int(ttl)),
        Set::Ttl(ip, ttl) => (of(ip, libc::IP_TTL, libc::IPV6_UNICAST_HOPS), Value::int(ttl)),
        Set::Tos(ip, tos) => (of(ip, libc::IP_TOS, libc::IPV6_TCLASS), Value::int(tos)),
        Set::RecvTos(ip, on) => (of(ip, libc::IP_RECVTOS, libc::IPV6_RECVTCLASS), Value::int(on)),
        Set::PacketInfo(ip, on) => {
            (of(ip, libc::IP_PKTINFO, libc::IPV6_RECVPKTINFO), Value::int(on))
        }
        Set::Timestamps(on) => (socket(libc::SO_TIMESTAMPNS), Value::int(on)),
        Set::DropCount(on) => (socket(libc::SO_RXQ_OVFL), Value::int(on)),
        Set::RecvErrors(ip, on) => (of(ip, libc::IP_RECVERR, libc::IPV6_RECVERR), Value::int(on)),
        Set::DontFragment(ip, on) => {
            // The values are the same for both protocols.
            let value = if on { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_DONT };
            (of(ip, libc::IP_MTU_DISCOVER, libc::IPV6_MTU_DISCOVER), Value::int(value))
        }
        Set::SegmentSize(size) => ((SOL_UDP, libc::UDP_SEGMENT), Value::int(size)),
        Set::Coalesce(on) => ((SOL_UDP, libc::UDP_GRO), Value::int(on)),
        Set::PassCredentials(on) => (socket(libc::SO_PASSCRED), Value::int(on)),
    }
}

fn multicast_loop(ip: Ip) -> (i32, i32) {
    of(ip, libc::IP_MULTICAST_LOOP, libc::IPV6_MULTICAST_LOOP)
}

fn multicast_ttl(ip: Ip) -> (i32, i32) {
    of(ip, libc::IP_MULTICAST_TTL, libc::IPV6_MULTICAST_HOPS)
}

/// `struct linger`: whole seconds, rounded up.
fn linger(time: Option<Duration>) -> Value {
    let seconds = time.unwrap_or_default().as_nanos().div_ceil(1_000_000_000);
    let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
    Value::new(&[&i32::from(time.is_some()).to_ne_bytes(), &seconds.to_ne_bytes()])
}
