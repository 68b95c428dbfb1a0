//! The layout of a received datagram's buffer, for each domain of sockets, and the addresses of
//! peers.

use crate::bytes::lease::Lease;
use crate::memory::{HeapMemory, Meter};
use annulus_kernel::{
    Address, Domain, IoVec, MAX_DESCRIPTORS_PER_MESSAGE, MessageHead, MessageLayout, MsgHeader,
    space,
};
use std::net::SocketAddr;
use std::rc::Rc;
use std::{fmt, ptr};

/// Space in a buffer before the payload, for the sender's address and for control messages.
///
/// For an internet socket, the space does not depend on its options, because unused space costs
/// nothing. A Unix socket gets space for control messages only if it asked for them, because the
/// kernel opens as many descriptors as fit, even if none were requested.
#[derive(Debug)]
pub(crate) struct MessageFormat {
    pub(crate) layout: MessageLayout,
    pub(crate) domain: Domain,
    /// The header for multishot receives. Only `name_len` and `control_len` are set.
    header: MsgHeader,
}

/// Space for packet information and service class (IPv4 and IPv6), a timestamp and the segment
/// size.
const INET_CONTROL_BYTES: usize = space(12) + space(20) + 2 * space(4) + space(16) + space(4);
/// Space for the sender's credentials (`struct ucred`).
const UNIX_CONTROL_BYTES: usize = space(12);

impl MessageFormat {
    const fn new(domain: Domain, name: usize, control: usize) -> Self {
        // The payload starts on a cache line. The padding enlarges the space for the address,
        // because the kernel could open descriptors into larger space for control messages.
        let name = (MessageLayout::HEAD_BYTES + name + control).next_multiple_of(64)
            - MessageLayout::HEAD_BYTES
            - control;
        let layout = MessageLayout { name, control };
        let header = MsgHeader { name_len: name as u32, control_len: control, ..MsgHeader::EMPTY };
        Self { layout, domain, header }
    }

    /// For IPv4 sockets.
    pub(crate) const INET: &'static Self = &Self::new(Domain::Inet, 32, INET_CONTROL_BYTES);
    /// For IPv6 sockets. `struct sockaddr_in6` has 28 bytes.
    pub(crate) const INET6: &'static Self = &Self::new(Domain::Inet6, 32, INET_CONTROL_BYTES);
    /// For Unix sockets. `struct sockaddr_un` has 110 bytes.
    pub(crate) const UNIX: &'static Self = &Self::new(Domain::Unix, 112, 0);
    /// Unix, with space for the sender's credentials only.
    pub(crate) const UNIX_CREDENTIALS: &'static Self =
        &Self::new(Domain::Unix, 112, UNIX_CONTROL_BYTES);
    /// Unix, with space for as many descriptors as one message can carry.
    pub(crate) const UNIX_DESCRIPTORS: &'static Self =
        &Self::new(Domain::Unix, 112, UNIX_CONTROL_BYTES + space(4 * MAX_DESCRIPTORS_PER_MESSAGE));

    pub(crate) fn has_descriptors(&self) -> bool {
        self.domain == Domain::Unix && self.layout.control > UNIX_CONTROL_BYTES
    }

    pub(crate) fn header(&'static self) -> *const u8 {
        ptr::from_ref(&self.header).cast()
    }
}

/// A heap buffer with the layout of pool buffers, and the header that points into it. It must not
/// move or be freed until the receive's terminal event.
pub(crate) struct RecvMsgBuf {
    header: MsgHeader,
    vector: IoVec,
    memory: Box<HeapMemory>,
}

impl RecvMsgBuf {
    /// Puts a new buffer for a datagram of up to `most` bytes into `place`. Returns the address of
    /// the buffer's header.
    pub(crate) fn put(
        place: &mut Option<Box<Self>>,
        format: &MessageFormat,
        most: usize,
        meter: &Meter,
    ) -> *mut u8 {
        let layout = format.layout;
        let mut memory = HeapMemory::zeroed(layout.payload_at() + most, meter);
        let start = memory.as_mut_ptr();
        let at = |offset| start.wrapping_add(offset).cast_const();
        let buf = place.insert(Box::new(Self {
            vector: IoVec { base: at(layout.payload_at()), len: most },
            header: MsgHeader {
                name: at(MessageLayout::HEAD_BYTES),
                name_len: layout.name as u32,
                vectors: std::ptr::null(),
                vector_count: 1,
                control: at(layout.control_at()),
                control_len: layout.control,
                flags: 0,
            },
            memory,
        }));
        buf.header.vectors = &raw const buf.vector;
        (&raw mut buf.header).cast()
    }

    /// Returns the received datagram of `len` bytes in the layout of a pool buffer. The kernel
    /// writes the head only into pool buffers, so this function adds it.
    pub(crate) fn into_lease(self, format: &MessageFormat, len: usize) -> Lease {
        let Self { header, mut memory, .. } = self;
        let head = MessageHead {
            name_len: header.name_len,
            control_len: header.control_len as u32,
            payload_len: len as u32,
            flags: header.flags as u32,
        };
        memory[..MessageLayout::HEAD_BYTES].copy_from_slice(&head.bytes());
        let len = memory.len().min(format.layout.payload_at() + len);
        Lease::of_heap(memory, len)
    }
}

const MAX_INLINE_BYTES: usize = Address::INET_SPACE_BYTES;

/// An address in the kernel's layout. An empty address means the peer of a connected socket.
#[derive(Clone, PartialEq)]
pub(crate) struct PeerAddress(Repr);

#[derive(Clone, PartialEq)]
enum Repr {
    /// Internet addresses, and short Unix paths.
    Short([u8; MAX_INLINE_BYTES], u8),
    Long(Rc<[u8]>),
}

impl PeerAddress {
    #[inline]
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        if bytes.len() > MAX_INLINE_BYTES {
            return Self(Repr::Long(bytes.into()));
        }
        let mut short = [0; MAX_INLINE_BYTES];
        short[..bytes.len()].copy_from_slice(bytes);
        Self(Repr::Short(short, bytes.len() as u8))
    }

    /// Returns the address in the kernel's layout. The bytes do not move unless `self` moves.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Short(bytes, len) => &bytes[..usize::from(*len)],
            Repr::Long(bytes) => bytes,
        }
    }

    #[inline]
    pub(crate) fn address(&self) -> Address {
        Address::from_bytes(self.as_bytes())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl Default for PeerAddress {
    fn default() -> Self {
        Self(Repr::Short([0; MAX_INLINE_BYTES], 0))
    }
}

impl From<SocketAddr> for PeerAddress {
    #[inline]
    fn from(address: SocketAddr) -> Self {
        let (bytes, len) = Address::inet_bytes(address);
        Self(Repr::Short(bytes, len as u8))
    }
}

impl From<Address> for PeerAddress {
    #[inline]
    fn from(address: Address) -> Self {
        Self::from_bytes(address.as_bytes())
    }
}

impl fmt::Debug for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_start_on_a_cache_line_and_the_largest_datagram_fits() {
        let formats = [
            MessageFormat::INET,
            MessageFormat::UNIX,
            MessageFormat::UNIX_CREDENTIALS,
            MessageFormat::UNIX_DESCRIPTORS,
        ];
        let payloads = formats.map(|format| format.layout.payload_at());
        assert_eq!(payloads.map(|at| at % 64), [0; 4]);
        assert!(payloads[0] + 65_527 <= 68 * 1024, "{payloads:?}");
        assert!(payloads[3] <= 4096, "{payloads:?}");
    }

    #[test]
    fn only_the_format_with_descriptors_has_space_for_them() {
        let space_of = |format: &MessageFormat| format.layout.control;
        assert_eq!(
            (space_of(MessageFormat::UNIX), space_of(MessageFormat::UNIX_CREDENTIALS)),
            (0, UNIX_CONTROL_BYTES)
        );
        assert!(
            space_of(MessageFormat::UNIX_DESCRIPTORS) >= space(4 * MAX_DESCRIPTORS_PER_MESSAGE)
        );
    }

    #[test]
    fn long_and_short_addresses_keep_their_bytes() {
        for len in [0, 2, MAX_INLINE_BYTES, MAX_INLINE_BYTES + 1, 110] {
            let bytes: Vec<u8> = (0..len as u8).collect();
            let address = PeerAddress::from_bytes(&bytes);
            assert_eq!((address.as_bytes(), address.is_empty()), (&*bytes, len == 0));
            assert!(address == PeerAddress::from_bytes(&bytes));
        }
    }
}
