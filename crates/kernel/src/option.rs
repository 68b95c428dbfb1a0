//! The table of socket options: their level and name in `setsockopt(2)` and `getsockopt(2)`, and
//! the initial value of a simulated socket. A new option needs a variant and its row here; a row in
//! `annulus`'s `net/option_methods.rs` generates its methods.
#![allow(unsafe_code)]

use libc::{SOL_IP, SOL_IPV6, SOL_SOCKET, SOL_TCP, SOL_UDP};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The internet protocol of an option. A socket of [`Domain::Inet6`](crate::Domain::Inet6) that
/// also has IPv4 peers has the options of both protocols: each applies to the datagrams of its
/// protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A socket option, whose value is a number. For a switch, 0 is off and 1 is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// `SO_REUSEADDR`.
    ReuseAddress,
    /// `SO_REUSEPORT`.
    ReusePort,
    /// `IP_BIND_ADDRESS_NO_PORT`: a bind to port zero leaves the choice of the port to the connect,
    /// which knows the peer.
    BindAddressNoPort,
    /// `SO_INCOMING_CPU`: among sockets that share a port, the kernel prefers this one for packets
    /// that this CPU handles (6.2).
    IncomingCpu,
    /// `TCP_NODELAY`.
    NoDelay,
    /// `TCP_CORK`. Turning it off sends the bytes that `MSG_MORE` has held back.
    Cork,
    /// `TCP_QUICKACK`: received bytes are acknowledged at once. The kernel turns it off again by
    /// itself.
    QuickAck,
    /// `TCP_USER_TIMEOUT`, in milliseconds: how long sent bytes may stay unacknowledged; zero is
    /// the system's default.
    UserTimeout,
    /// `SO_KEEPALIVE`.
    KeepAlive,
    /// `TCP_KEEPIDLE`, in seconds.
    KeepAliveTime,
    /// `TCP_KEEPINTVL`, in seconds.
    KeepAliveInterval,
    /// `TCP_KEEPCNT`.
    KeepAliveRetries,
    /// `SO_LINGER`: seconds, or [`NO_LINGER`](Self::NO_LINGER); zero makes a close reset the
    /// connection.
    Linger,
    /// `IPV6_V6ONLY`.
    V6Only,
    /// `SO_RCVBUF`, in bytes. Linux doubles it.
    RecvBuffer,
    /// `SO_SNDBUF`, in bytes. Linux doubles it.
    SendBuffer,
    /// `SO_BROADCAST`: sends to broadcast addresses are allowed.
    Broadcast,
    /// `IPV6_MULTICAST_IF`: the number of the interface for outgoing multicast datagrams.
    MulticastInterfaceV6,
    /// `IP_MULTICAST_LOOP`, `IPV6_MULTICAST_LOOP`: members on this host also receive the multicast
    /// datagrams that this socket sends.
    MulticastLoop(Ip),
    /// `IP_MULTICAST_TTL`, `IPV6_MULTICAST_HOPS`.
    MulticastTtl(Ip),
    /// `IP_TTL`, `IPV6_UNICAST_HOPS`.
    Ttl(Ip),
    /// `IP_TOS`, `IPV6_TCLASS`: six bits of service class, two of congestion notification.
    Tos(Ip),
    /// `IP_RECVTOS`, `IPV6_RECVTCLASS`: received datagrams have a
    /// [`Control::Tos`](crate::Control::Tos).
    RecvTos(Ip),
    /// `IP_PKTINFO`, `IPV6_RECVPKTINFO`: received datagrams have a
    /// [`Control::PacketInfo`](crate::Control::PacketInfo).
    PacketInfo(Ip),
    /// `SO_TIMESTAMPNS`: received datagrams have a
    /// [`Control::Timestamp`](crate::Control::Timestamp).
    Timestamps,
    /// `SO_RXQ_OVFL`: received datagrams have a [`Control::Drops`](crate::Control::Drops), once
    /// some have been dropped.
    DropCount,
    /// `IP_RECVERR`, `IPV6_RECVERR`: errors of single datagrams are queued separately, and also
    /// reported to unconnected sockets.
    RecvErrors(Ip),
    /// `IP_MTU_DISCOVER`, `IPV6_MTU_DISCOVER`. If on, a datagram is never fragmented, and one
    /// larger than the MTU of the interface is refused (`IP_PMTUDISC_PROBE`); if off, the system
    /// fragments (`IP_PMTUDISC_DONT`).
    DontFragment(Ip),
    /// `UDP_SEGMENT`: each send is split into datagrams of this size; zero is off.
    SegmentSize,
    /// `UDP_GRO`: datagrams of one flow may be coalesced, with a
    /// [`Control::SegmentSize`](crate::Control::SegmentSize).
    Coalesce,
    /// `SO_PASSCRED`: messages that a Unix socket receives have a
    /// [`Control::Credentials`](crate::Control::Credentials).
    PassCredentials,
    /// `SO_ERROR`, read-only: the pending error, which reading clears; zero if no error is pending.
    Error,
    /// `SO_DOMAIN`, read-only: an address family of Linux.
    Domain,
    /// `SO_TYPE`, read-only: a socket type of Linux.
    Type,
    /// `SO_PROTOCOL`, read-only: a protocol of Linux, such as [`TCP`](Self::TCP).
    Protocol,
    /// `SO_ACCEPTCONN`, read-only: 1 if the socket listens.
    Listens,
    /// `SO_MEMINFO` (4.12), read-only: how many datagrams have been dropped so far because the
    /// buffer was full, modulo 2^32.
    Drops,
}

/// An option in the table.
#[derive(Clone, Debug)]
pub struct OptionRow {
    level: i32,
    name: i32,
    /// Initial value of a simulated socket. If `None`, simulated sockets do not have the option,
    /// and setting it is an error.
    pub initial: Option<u32>,
    /// The values that a simulated socket accepts.
    pub range: RangeInclusive<u32>,
}

impl OptionRow {
    fn new(level: i32, name: i32) -> Self {
        Self { level, name, initial: None, range: 0..=u32::MAX }
    }

    /// Adds the option to simulated sockets.
    fn simulated(self, initial: u32) -> Self {
        Self { initial: Some(initial), ..self }
    }

    /// Returns the protocol that a socket needs for the option. TCP options count as IPv4 options,
    /// because IPv6 sockets accept those as well.
    pub fn protocol(&self) -> Option<Ip> {
        match self.level {
            SOL_IP | SOL_TCP => Some(Ip::V4),
            SOL_IPV6 => Some(Ip::V6),
            _ => None,
        }
    }
}

impl SocketOption {
    /// The value of [`Protocol`](Self::Protocol) for a TCP socket.
    pub const TCP: u32 = 6;

    /// The value of [`Linger`](Self::Linger) for a socket that does not linger. It is not a valid
    /// time.
    pub const NO_LINGER: u32 = u32::MAX;

    /// Returns the option's row in the table.
    pub fn row(self) -> OptionRow {
        let socket = |name| OptionRow::new(SOL_SOCKET, name);
        let tcp = |name| OptionRow::new(SOL_TCP, name);
        let seconds = 1..=32_767;
        match self {
            Self::ReuseAddress => socket(libc::SO_REUSEADDR).simulated(0),
            Self::ReusePort => socket(libc::SO_REUSEPORT).simulated(0),
            Self::BindAddressNoPort => {
                OptionRow::new(SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT).simulated(0)
            }
            Self::IncomingCpu => socket(libc::SO_INCOMING_CPU).simulated(0),
            Self::NoDelay => tcp(libc::TCP_NODELAY).simulated(0),
            // Only needed when pages of files are sent, which simulations do not do.
            Self::Cork => tcp(libc::TCP_CORK),
            Self::QuickAck => tcp(libc::TCP_QUICKACK).simulated(1),
            Self::UserTimeout => tcp(libc::TCP_USER_TIMEOUT).simulated(0),
            Self::KeepAlive => socket(libc::SO_KEEPALIVE).simulated(0),
            Self::KeepAliveTime => {
                OptionRow { range: seconds, ..tcp(libc::TCP_KEEPIDLE).simulated(7200) }
            }
            Self::KeepAliveInterval => {
                OptionRow { range: seconds, ..tcp(libc::TCP_KEEPINTVL).simulated(75) }
            }
            Self::KeepAliveRetries => {
                OptionRow { range: 1..=127, ..tcp(libc::TCP_KEEPCNT).simulated(9) }
            }
            Self::Linger => socket(libc::SO_LINGER).simulated(Self::NO_LINGER),
            Self::V6Only => OptionRow::new(SOL_IPV6, libc::IPV6_V6ONLY).simulated(0),
            // Simulated links determine the initial size of buffers.
            Self::RecvBuffer => socket(libc::SO_RCVBUF).simulated(0),
            Self::SendBuffer => socket(libc::SO_SNDBUF).simulated(0),
            Self::Broadcast => socket(libc::SO_BROADCAST).simulated(0),
            Self::MulticastInterfaceV6 => {
                OptionRow::new(SOL_IPV6, libc::IPV6_MULTICAST_IF).simulated(0)
            }
            Self::MulticastLoop(ip) => {
                of(ip, libc::IP_MULTICAST_LOOP, libc::IPV6_MULTICAST_LOOP).simulated(1)
            }
            Self::MulticastTtl(ip) => {
                of(ip, libc::IP_MULTICAST_TTL, libc::IPV6_MULTICAST_HOPS).simulated(1)
            }
            Self::Ttl(ip) => of(ip, libc::IP_TTL, libc::IPV6_UNICAST_HOPS).simulated(64),
            Self::Tos(ip) => of(ip, libc::IP_TOS, libc::IPV6_TCLASS).simulated(0),
            Self::RecvTos(ip) => of(ip, libc::IP_RECVTOS, libc::IPV6_RECVTCLASS).simulated(0),
            Self::PacketInfo(ip) => of(ip, libc::IP_PKTINFO, libc::IPV6_RECVPKTINFO).simulated(0),
            Self::Timestamps => socket(libc::SO_TIMESTAMPNS).simulated(0),
            Self::DropCount => socket(libc::SO_RXQ_OVFL).simulated(0),
            Self::RecvErrors(ip) => of(ip, libc::IP_RECVERR, libc::IPV6_RECVERR).simulated(0),
            Self::DontFragment(ip) => {
                of(ip, libc::IP_MTU_DISCOVER, libc::IPV6_MTU_DISCOVER).simulated(0)
            }
            Self::SegmentSize => OptionRow::new(SOL_UDP, libc::UDP_SEGMENT).simulated(0),
            Self::Coalesce => OptionRow::new(SOL_UDP, libc::UDP_GRO).simulated(0),
            Self::PassCredentials => socket(libc::SO_PASSCRED).simulated(0),
            // Read-only. A simulated socket computes some of these values itself.
            Self::Error => socket(libc::SO_ERROR),
            Self::Domain => socket(libc::SO_DOMAIN),
            Self::Type => socket(libc::SO_TYPE),
            Self::Protocol => socket(libc::SO_PROTOCOL),
            Self::Listens => socket(libc::SO_ACCEPTCONN),
            Self::Drops => socket(libc::SO_MEMINFO),
        }
    }
}

fn of(ip: Ip, v4: i32, v6: i32) -> OptionRow {
    match ip {
        Ip::V4 => OptionRow::new(SOL_IP, v4),
        Ip::V6 => OptionRow::new(SOL_IPV6, v6),
    }
}

/// A change to a socket's multicast groups, or to the interface of its multicast datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multicast {
    /// `IP_ADD_MEMBERSHIP` or `IP_DROP_MEMBERSHIP`.
    V4 {
        /// Whether the socket joins or leaves the group.
        joins: bool,
        /// The multicast group.
        group: Ipv4Addr,
        /// An address of the interface; if unspecified, the system chooses one.
        interface: Ipv4Addr,
    },
    /// `IPV6_ADD_MEMBERSHIP` or `IPV6_DROP_MEMBERSHIP`.
    V6 {
        /// Whether the socket joins or leaves the group.
        joins: bool,
        /// The multicast group.
        group: Ipv6Addr,
        /// The number of the interface; if zero, the system chooses one.
        interface: u32,
    },
    /// `IP_MULTICAST_IF`: the address of the interface for outgoing multicast datagrams.
    InterfaceV4(Ipv4Addr),
}

/// The name of a network interface, such as `eth0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceName([u8; DeviceName::SIZE]);

impl DeviceName {
    /// No interface: the socket is not bound to one.
    pub const NONE: Self = Self([0; Self::SIZE]);
    /// Bytes of a name, with the zero that ends it (`IFNAMSIZ`).
    const SIZE: usize = 16;

    /// Creates a name.
    ///
    /// # Errors
    /// `InvalidInput` if no interface can have this name: it is empty, longer than 15 bytes, or has
    /// a zero byte, a slash or white space.
    pub fn new(name: &str) -> io::Result<Self> {
        let refused = |byte: u8| matches!(byte, 0 | b'/') || byte.is_ascii_whitespace();
        if name.is_empty() || name.len() >= Self::SIZE || name.bytes().any(refused) {
            let most = Self::SIZE - 1;
            let text = format!(
                "{name:?} is not a valid interface name: use 1 to {most} bytes without slashes and spaces"
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

/// The identity of a process at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The process; zero if it is in a namespace that is not visible from here.
    pub pid: u32,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

pub(crate) fn set(fd: BorrowedFd<'_>, option: SocketOption, value: u32) -> io::Result<()> {
    let OptionRow { level, name, .. } = option.row();
    // The kernel takes an `int`, so a larger value becomes the maximum of that type.
    let most = value.min(i32::MAX as u32);
    match option {
        SocketOption::Linger => {
            let lingers = u32::from(value != SocketOption::NO_LINGER);
            set_value(fd, level, name, &[lingers, most].map(u32::to_ne_bytes).concat())
        }
        SocketOption::DontFragment(_) => {
            // The values are the same for both protocols.
            let value = if value != 0 { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_DONT };
            set_value(fd, level, name, &value.to_ne_bytes())
        }
        _ => set_value(fd, level, name, &most.to_ne_bytes()),
    }
}

pub(crate) fn set_multicast(fd: BorrowedFd<'_>, change: Multicast) -> io::Result<()> {
    match change {
        Multicast::V4 { joins, group, interface } => {
            let name = if joins { libc::IP_ADD_MEMBERSHIP } else { libc::IP_DROP_MEMBERSHIP };
            set_value(fd, SOL_IP, name, &[group.octets(), interface.octets()].concat())
        }
        Multicast::V6 { joins, group, interface } => {
            let name = if joins { libc::IPV6_ADD_MEMBERSHIP } else { libc::IPV6_DROP_MEMBERSHIP };
            let value = [&group.octets()[..], &interface.to_ne_bytes()].concat();
            set_value(fd, SOL_IPV6, name, &value)
        }
        Multicast::InterfaceV4(interface) => {
            set_value(fd, SOL_IP, libc::IP_MULTICAST_IF, &interface.octets())
        }
    }
}

pub(crate) fn set_device(fd: BorrowedFd<'_>, name: DeviceName) -> io::Result<()> {
    set_value(fd, SOL_SOCKET, libc::SO_BINDTODEVICE, &name.0)
}

/// Sets an option to a value in the kernel's layout.
fn set_value(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let (bytes, len) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
    // SAFETY: the call reads `len` bytes, which are initialised.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, bytes, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The index of the number of dropped datagrams in the result of `SO_MEMINFO` (`SK_MEMINFO_DROPS`),
/// and the length of that result.
const MEMINFO_DROPS_INDEX: usize = 8;
const MEMINFO_LEN: usize = 9;

pub(crate) fn read(fd: BorrowedFd<'_>, option: SocketOption) -> io::Result<u32> {
    let OptionRow { level, name, .. } = option.row();
    match option {
        SocketOption::Drops => {
            let mut memory = [0u32; MEMINFO_LEN];
            get_value(fd, level, name, &mut memory)?;
            Ok(memory[MEMINFO_DROPS_INDEX])
        }
        SocketOption::Linger => {
            let mut linger = [0u32; 2];
            get_value(fd, level, name, &mut linger)?;
            Ok(if linger[0] == 0 { SocketOption::NO_LINGER } else { linger[1] })
        }
        _ => {
            let mut value = 0u32;
            get_value(fd, level, name, &mut value)?;
            Ok(value)
        }
    }
}

/// Returns the interface that a socket is bound to.
pub(crate) fn device(fd: BorrowedFd<'_>) -> io::Result<Option<DeviceName>> {
    let mut name = [0u8; DeviceName::SIZE];
    get_value(fd, SOL_SOCKET, libc::SO_BINDTODEVICE, &mut name)?;
    Ok((name[0] != 0).then_some(DeviceName(name)))
}

/// Returns a new descriptor of the process at the other end of a Unix socket (6.5).
pub(crate) fn peer_process(fd: BorrowedFd<'_>) -> io::Result<RawFd> {
    let mut process = 0u32;
    get_value(fd, SOL_SOCKET, libc::SO_PEERPIDFD, &mut process)?;
    Ok(process as RawFd)
}

pub(crate) fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    get_value(fd, SOL_SOCKET, libc::SO_PEERCRED, &mut peer)?;
    Ok(Credentials { pid: peer.pid.unsigned_abs(), uid: peer.uid, gid: peer.gid })
}

/// A type of integers only, without padding.
///
/// # Safety
/// Every bit pattern must be a valid value.
unsafe trait PlainIntegers {}

// SAFETY: every bit pattern is an integer.
unsafe impl PlainIntegers for u32 {}
// SAFETY: every bit pattern is an array of integers.
unsafe impl<const N: usize> PlainIntegers for [u32; N] {}
// SAFETY: every bit pattern is an array of integers.
unsafe impl<const N: usize> PlainIntegers for [u8; N] {}
// SAFETY: all three fields are 4-byte integers, so every bit pattern is valid.
unsafe impl PlainIntegers for libc::ucred {}

fn get_value<T: PlainIntegers>(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &mut T,
) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: the call writes at most `len` bytes, the size of the value, and every bit pattern of
    // the value is valid.
    match unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value, &raw mut len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
