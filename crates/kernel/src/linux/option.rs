//! Socket options as arguments of `setsockopt(2)` and `getsockopt(2)`.
#![allow(unsafe_code)]

use crate::option::{Credentials, DeviceName, Ip, SocketOption, SocketQuery};
use libc::{SOL_IP, SOL_IPV6, SOL_SOCKET, SOL_TCP, SOL_UDP};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

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

    fn int(value: i32) -> Self {
        Self::new(&[&value.to_ne_bytes()])
    }
}

pub(super) fn set(fd: BorrowedFd<'_>, option: SocketOption) -> io::Result<()> {
    let (level, name) = name(option);
    let Value { bytes, len } = value(option);
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

pub(super) fn read(fd: BorrowedFd<'_>, query: SocketQuery) -> io::Result<u32> {
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
        SocketQuery::MulticastLoop(ip) => {
            of(ip, libc::IP_MULTICAST_LOOP, libc::IPV6_MULTICAST_LOOP)
        }
        SocketQuery::MulticastTtl(ip) => of(ip, libc::IP_MULTICAST_TTL, libc::IPV6_MULTICAST_HOPS),
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
pub(super) fn device(fd: BorrowedFd<'_>) -> io::Result<Option<DeviceName>> {
    let mut name = [0u8; DeviceName::SIZE];
    fill(fd, SOL_SOCKET, libc::SO_BINDTODEVICE, &mut name)?;
    Ok((name[0] != 0).then(|| DeviceName::from_bytes(name)))
}

/// A new descriptor of the process at the other end of a Unix socket (6.5).
pub(super) fn peer_process(fd: BorrowedFd<'_>) -> io::Result<RawFd> {
    let mut process = 0u32;
    fill(fd, SOL_SOCKET, libc::SO_PEERPIDFD, &mut process)?;
    Ok(process as RawFd)
}

pub(super) fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<Credentials> {
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

/// The level and the name of an option.
fn name(option: SocketOption) -> (i32, i32) {
    match option {
        SocketOption::ReuseAddress(_) => (SOL_SOCKET, libc::SO_REUSEADDR),
        SocketOption::ReusePort(_) => (SOL_SOCKET, libc::SO_REUSEPORT),
        SocketOption::BindAddressNoPort(_) => (SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT),
        SocketOption::IncomingCpu(_) => (SOL_SOCKET, libc::SO_INCOMING_CPU),
        SocketOption::NoDelay(_) => (SOL_TCP, libc::TCP_NODELAY),
        SocketOption::Cork(_) => (SOL_TCP, libc::TCP_CORK),
        SocketOption::QuickAck(_) => (SOL_TCP, libc::TCP_QUICKACK),
        SocketOption::UserTimeout(_) => (SOL_TCP, libc::TCP_USER_TIMEOUT),
        SocketOption::KeepAlive(_) => (SOL_SOCKET, libc::SO_KEEPALIVE),
        SocketOption::KeepAliveTime(_) => (SOL_TCP, libc::TCP_KEEPIDLE),
        SocketOption::KeepAliveInterval(_) => (SOL_TCP, libc::TCP_KEEPINTVL),
        SocketOption::KeepAliveRetries(_) => (SOL_TCP, libc::TCP_KEEPCNT),
        SocketOption::Device(_) => (SOL_SOCKET, libc::SO_BINDTODEVICE),
        SocketOption::Linger(_) => (SOL_SOCKET, libc::SO_LINGER),
        SocketOption::V6Only(_) => (SOL_IPV6, libc::IPV6_V6ONLY),
        SocketOption::RecvBuffer(_) => (SOL_SOCKET, libc::SO_RCVBUF),
        SocketOption::SendBuffer(_) => (SOL_SOCKET, libc::SO_SNDBUF),
        SocketOption::Broadcast(_) => (SOL_SOCKET, libc::SO_BROADCAST),
        SocketOption::JoinV4 { .. } => (SOL_IP, libc::IP_ADD_MEMBERSHIP),
        SocketOption::LeaveV4 { .. } => (SOL_IP, libc::IP_DROP_MEMBERSHIP),
        SocketOption::JoinV6 { .. } => (SOL_IPV6, libc::IPV6_ADD_MEMBERSHIP),
        SocketOption::LeaveV6 { .. } => (SOL_IPV6, libc::IPV6_DROP_MEMBERSHIP),
        SocketOption::MulticastInterfaceV4(_) => (SOL_IP, libc::IP_MULTICAST_IF),
        SocketOption::MulticastInterfaceV6(_) => (SOL_IPV6, libc::IPV6_MULTICAST_IF),
        SocketOption::MulticastLoop(ip, _) => {
            of(ip, libc::IP_MULTICAST_LOOP, libc::IPV6_MULTICAST_LOOP)
        }
        SocketOption::MulticastTtl(ip, _) => {
            of(ip, libc::IP_MULTICAST_TTL, libc::IPV6_MULTICAST_HOPS)
        }
        SocketOption::Ttl(ip, _) => of(ip, libc::IP_TTL, libc::IPV6_UNICAST_HOPS),
        SocketOption::Tos(ip, _) => of(ip, libc::IP_TOS, libc::IPV6_TCLASS),
        SocketOption::RecvTos(ip, _) => of(ip, libc::IP_RECVTOS, libc::IPV6_RECVTCLASS),
        SocketOption::PacketInfo(ip, _) => of(ip, libc::IP_PKTINFO, libc::IPV6_RECVPKTINFO),
        SocketOption::Timestamps(_) => (SOL_SOCKET, libc::SO_TIMESTAMPNS),
        SocketOption::DropCount(_) => (SOL_SOCKET, libc::SO_RXQ_OVFL),
        SocketOption::RecvErrors(ip, _) => of(ip, libc::IP_RECVERR, libc::IPV6_RECVERR),
        SocketOption::DontFragment(ip, _) => of(ip, libc::IP_MTU_DISCOVER, libc::IPV6_MTU_DISCOVER),
        SocketOption::SegmentSize(_) => (SOL_UDP, libc::UDP_SEGMENT),
        SocketOption::Coalesce(_) => (SOL_UDP, libc::UDP_GRO),
        SocketOption::PassCredentials(_) => (SOL_SOCKET, libc::SO_PASSCRED),
    }
}

fn value(option: SocketOption) -> Value {
    match option {
        SocketOption::ReuseAddress(on)
        | SocketOption::ReusePort(on)
        | SocketOption::BindAddressNoPort(on)
        | SocketOption::NoDelay(on)
        | SocketOption::Cork(on)
        | SocketOption::QuickAck(on)
        | SocketOption::KeepAlive(on)
        | SocketOption::V6Only(on)
        | SocketOption::Broadcast(on)
        | SocketOption::MulticastLoop(_, on)
        | SocketOption::RecvTos(_, on)
        | SocketOption::PacketInfo(_, on)
        | SocketOption::Timestamps(on)
        | SocketOption::DropCount(on)
        | SocketOption::RecvErrors(_, on)
        | SocketOption::Coalesce(on)
        | SocketOption::PassCredentials(on) => Value::int(on.into()),
        SocketOption::RecvBuffer(bytes) | SocketOption::SendBuffer(bytes) => {
            Value::int(i32::try_from(bytes).unwrap_or(i32::MAX))
        }
        SocketOption::MulticastTtl(_, value)
        | SocketOption::Ttl(_, value)
        | SocketOption::Tos(_, value) => Value::int(value.into()),
        SocketOption::IncomingCpu(number)
        | SocketOption::UserTimeout(number)
        | SocketOption::KeepAliveTime(number)
        | SocketOption::KeepAliveInterval(number)
        | SocketOption::KeepAliveRetries(number) => {
            Value::int(i32::try_from(number).unwrap_or(i32::MAX))
        }
        SocketOption::Device(name) => Value::new(&[name.as_bytes()]),
        SocketOption::SegmentSize(size) => Value::int(size.into()),
        SocketOption::DontFragment(_, on) => {
            // The values are the same for both protocols.
            Value::int(if on { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_DONT })
        }
        SocketOption::Linger(time) => linger(time),
        SocketOption::MulticastInterfaceV4(interface) => Value::new(&[&interface.octets()]),
        SocketOption::MulticastInterfaceV6(interface) => Value::new(&[&interface.to_ne_bytes()]),
        SocketOption::JoinV4 { group, interface } | SocketOption::LeaveV4 { group, interface } => {
            Value::new(&[&group.octets(), &interface.octets()])
        }
        SocketOption::JoinV6 { group, interface } | SocketOption::LeaveV6 { group, interface } => {
            Value::new(&[&group.octets(), &interface.to_ne_bytes()])
        }
    }
}

/// `struct linger`: whole seconds, rounded up.
fn linger(time: Option<Duration>) -> Value {
    let seconds = time.unwrap_or_default().as_nanos().div_ceil(1_000_000_000);
    let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
    Value::new(&[&i32::from(time.is_some()).to_ne_bytes(), &seconds.to_ne_bytes()])
}
