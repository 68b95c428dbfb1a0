//! Control messages, in the kernel's layout (`struct cmsghdr`).

use crate::option::Credentials;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;
use std::time::Duration;

const SOL_IP: i32 = 0;
const SOL_SOCKET: i32 = 1;
const SOL_UDP: i32 = 17;
const SOL_IPV6: i32 = 41;
const SCM_RIGHTS: i32 = 1;
const SCM_CREDENTIALS: i32 = 2;
const SCM_PIDFD: i32 = 4;
const SCM_TIMESTAMPNS: i32 = 35;
const SO_RXQ_OVFL: i32 = 40;
const IP_TOS: i32 = 1;
const IP_PKTINFO: i32 = 8;
const IPV6_PKTINFO: i32 = 50;
const IPV6_TCLASS: i32 = 67;
const UDP_SEGMENT: i32 = 103;
const UDP_GRO: i32 = 104;

/// Bytes of `struct cmsghdr`: length, level, kind.
const HEADER_BYTES: usize = size_of::<usize>() + 8;
const ALIGN_BYTES: usize = size_of::<usize>();

/// Maximum number of descriptors in one message (`SCM_MAX_FD`).
pub const MAX_DESCRIPTORS_PER_MESSAGE: usize = 253;

/// Returns the bytes that a message with `len` bytes of data takes, including padding
/// (`CMSG_SPACE`).
pub const fn space(len: usize) -> usize {
    HEADER_BYTES + len.next_multiple_of(ALIGN_BYTES)
}

/// One control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// Received: the local address that the datagram was sent to, and its interface. Sent: the
    /// local address and the interface (zero: any) to send from.
    PacketInfo {
        /// The local address.
        local: IpAddr,
        /// The number of the interface.
        interface: u32,
    },
    /// `IP_TOS`: service class and, in the low two bits, congestion notification.
    Tos(u8),
    /// Service class and congestion notification of IPv6 (`IPV6_TCLASS`), like [`Tos`](Self::Tos).
    TrafficClass(u8),
    /// Sent (`UDP_SEGMENT`): split the bytes into datagrams of this size, the last of which may be
    /// shorter. Received (`UDP_GRO`): the bytes are such datagrams, coalesced.
    SegmentSize(u16),
    /// The time since 1970 when the message was received. A time before 1970, from a wrong clock,
    /// is [`Unknown`](Self::Unknown).
    Timestamp(Duration),
    /// Number of datagrams that the socket has dropped so far because its buffer was full, modulo
    /// 2^32.
    Drops(u32),
    /// The sender's process, user and group (`SCM_CREDENTIALS`).
    Credentials(Credentials),
    /// Descriptors of four bytes each, native-endian. Received ones are open, and belong to the
    /// receiver.
    Descriptors(&'a [u8]),
    /// Received: a descriptor of the sender's process (`SCM_PIDFD`, since Linux 6.5), which is open
    /// and belongs to the receiver.
    ProcessDescriptor(RawFd),
    /// A message of another kind, or one that cannot be decoded.
    Unknown {
        /// `cmsg_level`
        level: i32,
        /// `cmsg_type`
        kind: i32,
    },
}

/// The direction of control messages, which determines how a segment size is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// As the kernel writes them.
    Received,
    /// As a sender writes them.
    Sent,
}

/// A writer of consecutive control messages.
#[derive(Debug)]
pub struct ControlWriter<'a> {
    buffer: &'a mut [u8],
    len: usize,
    direction: Direction,
}

impl<'a> ControlWriter<'a> {
    /// Creates a writer that starts at the beginning of `buffer`.
    pub fn new(buffer: &'a mut [u8], direction: Direction) -> Self {
        Self { buffer, len: 0, direction }
    }

    /// Returns the bytes written so far: the value of `msg_controllen`.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a message. Returns false, and writes nothing, if there is no space for it or its kind
    /// is unknown.
    #[must_use]
    pub fn push(&mut self, control: Control<'_>) -> bool {
        match control {
            Control::PacketInfo { local: IpAddr::V4(local), interface } => {
                // `ipi_spec_dst` is the address to send from, `ipi_addr` the address received at:
                // both are `local`.
                let parts = [interface.to_ne_bytes(), local.octets(), local.octets()];
                self.push_raw(SOL_IP, IP_PKTINFO, parts.as_flattened())
            }
            Control::PacketInfo { local: IpAddr::V6(local), interface } => {
                let mut bytes = [0; 20];
                bytes[..16].copy_from_slice(&local.octets());
                bytes[16..].copy_from_slice(&interface.to_ne_bytes());
                self.push_raw(SOL_IPV6, IPV6_PKTINFO, &bytes)
            }
            Control::Tos(tos) => self.push_raw(SOL_IP, IP_TOS, &[tos]),
            Control::TrafficClass(class) => {
                self.push_raw(SOL_IPV6, IPV6_TCLASS, &i32::from(class).to_ne_bytes())
            }
            Control::SegmentSize(size) => match self.direction {
                Direction::Sent => self.push_raw(SOL_UDP, UDP_SEGMENT, &size.to_ne_bytes()),
                Direction::Received => {
                    self.push_raw(SOL_UDP, UDP_GRO, &i32::from(size).to_ne_bytes())
                }
            },
            Control::Timestamp(at) => {
                let parts =
                    [at.as_secs().to_ne_bytes(), u64::from(at.subsec_nanos()).to_ne_bytes()];
                self.push_raw(SOL_SOCKET, SCM_TIMESTAMPNS, parts.as_flattened())
            }
            Control::Drops(count) => self.push_raw(SOL_SOCKET, SO_RXQ_OVFL, &count.to_ne_bytes()),
            Control::Credentials(sender) => {
                let parts = [sender.pid, sender.uid, sender.gid].map(u32::to_ne_bytes);
                self.push_raw(SOL_SOCKET, SCM_CREDENTIALS, parts.as_flattened())
            }
            Control::Descriptors(bytes) => self.push_raw(SOL_SOCKET, SCM_RIGHTS, bytes),
            Control::ProcessDescriptor(fd) => {
                self.push_raw(SOL_SOCKET, SCM_PIDFD, &fd.to_ne_bytes())
            }
            Control::Unknown { .. } => false,
        }
    }

    fn push_raw(&mut self, level: i32, kind: i32, data: &[u8]) -> bool {
        let Some(message) = self.buffer.get_mut(self.len..self.len + space(data.len())) else {
            return false;
        };
        message.fill(0);
        message[..ALIGN_BYTES].copy_from_slice(&(HEADER_BYTES + data.len()).to_ne_bytes());
        message[ALIGN_BYTES..ALIGN_BYTES + 4].copy_from_slice(&level.to_ne_bytes());
        message[ALIGN_BYTES + 4..HEADER_BYTES].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER_BYTES..HEADER_BYTES + data.len()].copy_from_slice(data);
        self.len += space(data.len());
        true
    }
}

/// An iterator over control messages that the kernel has written.
#[derive(Clone, Debug)]
pub struct Controls<'a>(&'a [u8]);

impl<'a> Controls<'a> {
    /// Iterates over the messages in `bytes`, the first `msg_controllen` bytes of a control buffer.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Iterator for Controls<'a> {
    type Item = Control<'a>;

    fn next(&mut self) -> Option<Control<'a>> {
        let len = usize::from_ne_bytes(part(self.0, 0)?);
        let (level, kind) = (int(self.0, ALIGN_BYTES)?, int(self.0, ALIGN_BYTES + 4)?);
        let data = self.0.get(HEADER_BYTES..len)?;
        self.0 = self.0.get(len.next_multiple_of(ALIGN_BYTES)..).unwrap_or_default();
        Some(decode(level, kind, data).unwrap_or(Control::Unknown { level, kind }))
    }
}

/// Returns the descriptors of a [`Control::Descriptors`].
pub fn descriptors(bytes: &[u8]) -> impl Iterator<Item = RawFd> {
    bytes.chunks_exact(4).map(|fd| RawFd::from_ne_bytes([fd[0], fd[1], fd[2], fd[3]]))
}

fn decode(level: i32, kind: i32, data: &[u8]) -> Option<Control<'_>> {
    Some(match (level, kind) {
        (SOL_IP, IP_PKTINFO) => Control::PacketInfo {
            local: Ipv4Addr::from(part::<4>(data, 8)?).into(),
            interface: u32::from_ne_bytes(part(data, 0)?),
        },
        (SOL_IPV6, IPV6_PKTINFO) => Control::PacketInfo {
            local: Ipv6Addr::from(part::<16>(data, 0)?).into(),
            interface: u32::from_ne_bytes(part(data, 16)?),
        },
        (SOL_IP, IP_TOS) => Control::Tos(*data.first()?),
        (SOL_IPV6, IPV6_TCLASS) => Control::TrafficClass(int(data, 0)? as u8),
        (SOL_UDP, UDP_GRO) => Control::SegmentSize(int(data, 0)? as u16),
        (SOL_UDP, UDP_SEGMENT) => Control::SegmentSize(u16::from_ne_bytes(part(data, 0)?)),
        (SOL_SOCKET, SCM_TIMESTAMPNS) => {
            let seconds = u64::try_from(i64::from_ne_bytes(part(data, 0)?)).ok()?;
            let nanos = u32::try_from(u64::from_ne_bytes(part(data, 8)?)).ok()?;
            let nanos = Some(nanos).filter(|nanos| *nanos < 1_000_000_000)?;
            Control::Timestamp(Duration::new(seconds, nanos))
        }
        (SOL_SOCKET, SO_RXQ_OVFL) => Control::Drops(u32::from_ne_bytes(part(data, 0)?)),
        (SOL_SOCKET, SCM_CREDENTIALS) => {
            let id = |at| part(data, at).map(u32::from_ne_bytes);
            Control::Credentials(Credentials { pid: id(0)?, uid: id(4)?, gid: id(8)? })
        }
        (SOL_SOCKET, SCM_RIGHTS) => Control::Descriptors(data),
        // A negative number is the error of opening the descriptor.
        (SOL_SOCKET, SCM_PIDFD) => Control::ProcessDescriptor(int(data, 0).filter(|fd| *fd >= 0)?),
        _ => return None,
    })
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    part(bytes, at).map(i32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_kind() -> [Control<'static>; 10] {
        [
            Control::PacketInfo { local: Ipv4Addr::new(127, 0, 0, 9).into(), interface: 3 },
            Control::PacketInfo { local: Ipv6Addr::LOCALHOST.into(), interface: 7 },
            Control::Tos(0x2e << 2 | 1),
            Control::TrafficClass(3),
            Control::SegmentSize(1200),
            Control::Timestamp(Duration::new(1_700_000_000, 999_999_999)),
            Control::Drops(u32::MAX),
            Control::Credentials(Credentials { pid: 1, uid: 1000, gid: 100 }),
            Control::Descriptors(&[5, 0, 0, 0, 6, 0, 0, 0]),
            Control::ProcessDescriptor(7),
        ]
    }

    #[test]
    fn messages_are_read_as_written() {
        for direction in [Direction::Received, Direction::Sent] {
            let mut buffer = [0xff; 512];
            let mut writer = ControlWriter::new(&mut buffer, direction);
            assert!(every_kind().into_iter().all(|control| writer.push(control)));
            let len = writer.len();
            let read: Vec<Control<'_>> = Controls::new(&buffer[..len]).collect();
            assert_eq!(read, every_kind(), "{direction:?}");
        }
    }

    #[test]
    fn a_full_buffer_and_truncated_messages_are_detected() {
        let mut buffer = [0; space(1) + space(2) - 1];
        let mut writer = ControlWriter::new(&mut buffer, Direction::Sent);
        assert!(writer.push(Control::Tos(1)));
        assert!(
            !writer.push(Control::SegmentSize(9)),
            "a message was written with one byte too few"
        );
        let len = writer.len();
        assert_eq!(Controls::new(&buffer[..len]).collect::<Vec<_>>(), [Control::Tos(1)]);
        for cut in 0..len {
            assert!(Controls::new(&buffer[..cut]).count() <= 1, "truncated at {cut}");
        }
    }

    #[test]
    fn an_invalid_length_ends_the_iteration() {
        for len in [0, 1, HEADER_BYTES - 1, 4096, usize::MAX] {
            let mut bytes = [0; 64];
            bytes[..ALIGN_BYTES].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(Controls::new(&bytes).count(), 0, "{len}");
        }
    }

    #[test]
    fn an_invalid_time_is_unknown() {
        for (seconds, nanos) in
            [(u64::MAX, u64::MAX), (u64::MAX, 0), (1, 1_000_000_000), (0, 1 << 32)]
        {
            let mut bytes = [0; space(16)];
            let mut writer = ControlWriter::new(&mut bytes, Direction::Received);
            assert!(writer.push(Control::Timestamp(Duration::ZERO)));
            bytes[HEADER_BYTES..][..8].copy_from_slice(&seconds.to_ne_bytes());
            bytes[HEADER_BYTES + 8..][..8].copy_from_slice(&nanos.to_ne_bytes());
            let unknown = Control::Unknown { level: SOL_SOCKET, kind: SCM_TIMESTAMPNS };
            assert_eq!(Controls::new(&bytes).next(), Some(unknown), "{seconds} s, {nanos} ns");
        }
    }

    #[test]
    fn descriptors_are_iterated() {
        let fds = descriptors(&[5, 0, 0, 0, 255, 255, 0, 0]).collect::<Vec<_>>();
        assert_eq!(fds, [5, 65535]);
    }
}
