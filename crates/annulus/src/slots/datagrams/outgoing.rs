//! A datagram from the moment at which it is accepted until it has left.

use super::PeerAddress;
use crate::bytes::chunk::Chunk;
use annulus_driver::MemoryOp;
use annulus_kernel::{Address, Control, ControlWriter, Direction, Fd, IoVec, MsgHeader, space};
use std::net::{IpAddr, SocketAddr};
use std::ptr;

/// The destination of a datagram, and the options of its send.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendMeta {
    /// Empty for the peer of a connected socket.
    pub(crate) to: PeerAddress,
    /// The payload is split into datagrams of this size.
    pub(crate) segment_size: Option<u16>,
    pub(crate) tos: Option<u8>,
    /// The local address to leave from.
    pub(crate) source: Option<IpAddr>,
    /// The destination is an IPv4 address, perhaps on an IPv6 socket.
    pub(crate) v4: bool,
}

/// Space for the control messages of a datagram without descriptors: segment size, service class, packet information.
pub(super) const CONTROL: usize = space(2) + space(4) + space(20);

/// The known state of an outgoing datagram.
///
/// *Queued* → *submitted* → what its event said, or still submitted, which means sent once its batch is settled. Settling
/// frees the sent and failed ones, and queues the others again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutgoingState {
    Queued,
    /// In flight.
    Submitted,
    /// An event said that it left.
    Sent,
    /// The datagram found no space.
    NoSpace,
    /// The datagram is to be sent again at once.
    Retry,
    /// The payload is to be split into datagrams here, which are sent at once.
    Split,
    /// The send failed, and the failure was noted.
    Failed,
}

/// An outgoing datagram, with everything that the kernel reads of it. It must not move while it is submitted: what is submitted
/// points into it.
pub(crate) struct OutgoingDatagram {
    pub(super) slot: u32,
    pub(super) state: OutgoingState,
    /// The datagram found no space before.
    pub(super) waited: bool,
    /// The datagram was sent again after an error that an earlier datagram may have caused.
    pub(super) retried: bool,
    pub(super) chunk: Chunk,
    pub(super) meta: SendMeta,
    /// Once it is submitted, unless that takes bytes and address as they are. Inline: a datagram with control messages needs no memory
    /// of its own, and one without leaves this untouched.
    message: Option<Message>,
}

/// The arguments of a `sendmsg`: the header points to the rest.
struct Message {
    header: MsgHeader,
    vector: IoVec,
    control: [u8; CONTROL],
}

impl OutgoingDatagram {
    #[inline]
    pub(super) fn new(slot: u32, chunk: Chunk, meta: SendMeta) -> Self {
        Self {
            slot,
            state: OutgoingState::Queued,
            waited: false,
            retried: false,
            chunk,
            meta,
            message: None,
        }
    }

    /// Bytes that it counts for against the send bound.
    #[inline]
    pub(super) fn weight(&self) -> usize {
        Self::weight_of(&self.chunk)
    }

    /// Bytes that a datagram with this payload will count for.
    #[inline]
    pub(super) fn weight_of(chunk: &Chunk) -> usize {
        chunk.len() + size_of::<Self>()
    }

    /// The operation that sends it without an event if it was sent. The memory that it names lies in `self`. If the driver has `addressed`
    /// sends, those that are only bytes and an address need no header.
    #[inline]
    pub(super) fn send_now(&mut self, fd: Fd, addressed: bool) -> MemoryOp {
        let is_plain = addressed && self.meta.is_plain() && self.chunk.control().is_empty();
        // A datagram longer than such an operation can say is left to the kernel to refuse: a part is not the datagram.
        let Some(len) = u32::try_from(self.chunk.len()).ok().filter(|_| is_plain) else {
            return MemoryOp::SendMessageNow { fd, header: self.write_header() };
        };
        let (bytes, to) = (self.chunk.as_ref(), self.meta.to.as_bytes());
        let (buffer, to_len) = (bytes.as_ptr(), to.len() as u16);
        MemoryOp::SendToNow { fd, buffer, len, to: start(to), to_len }
    }

    /// Writes the header, which points into `self`. Returns its address.
    pub(super) fn write_header(&mut self) -> *const u8 {
        let (bytes, to) = (self.chunk.as_ref(), self.meta.to.as_bytes());
        let vector = IoVec { base: bytes.as_ptr(), len: bytes.len() };
        let header = MsgHeader::EMPTY;
        let message = self.message.insert(Message { header, vector, control: [0; CONTROL] });
        let Message { header, vector, control } = message;
        (header.vectors, header.vector_count) = (ptr::from_ref(vector), 1);
        (header.name, header.name_len) = (start(to), to.len() as u32);
        if self.chunk.control().is_empty() {
            header.control_len = self.meta.write_control(control);
            header.control = control.as_ptr();
        } else {
            header.control_len = self.chunk.control().len();
            header.control = self.chunk.control().as_ptr();
        }
        ptr::from_ref(header).cast()
    }
}

/// The pointer to an address: null if there is none, since a send takes every other one for an address.
#[inline]
fn start(to: &[u8]) -> *const u8 {
    if to.is_empty() { ptr::null() } else { to.as_ptr() }
}

impl SendMeta {
    /// Whether the datagram has no control messages.
    #[inline]
    fn is_plain(&self) -> bool {
        self.segment_size.is_none() && self.tos.is_none() && self.source.is_none()
    }

    /// Writes the control messages of the datagram; how many bytes they take.
    pub(super) fn write_control(&self, control: &mut [u8; CONTROL]) -> usize {
        if self.is_plain() {
            return 0;
        }
        let Self { segment_size, tos, source, v4, .. } = *self;
        let mut writer = ControlWriter::new(control, Direction::Sent);
        let class = |tos| if v4 { Control::Tos(tos) } else { Control::TrafficClass(tos) };
        let controls = [
            segment_size.map(Control::SegmentSize),
            tos.map(class),
            source.map(|local| Control::PacketInfo { local, interface: 0 }),
        ];
        let fit = controls.into_iter().flatten().all(|control| writer.push(control));
        debug_assert!(fit, "there is space for one of each");
        writer.len()
    }

    /// The address of a datagram that goes to the peer of a connected socket.
    pub(crate) fn connected(v4: bool) -> Self {
        Self { v4, ..Self::default() }
    }

    #[inline]
    pub(crate) fn to_inet(to: SocketAddr) -> Self {
        let v4 = match to.ip() {
            IpAddr::V4(_) => true,
            IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some(),
        };
        Self { to: to.into(), v4, ..Self::default() }
    }

    pub(crate) fn to(to: Address) -> Self {
        Self { to: to.into(), ..Self::default() }
    }
}
