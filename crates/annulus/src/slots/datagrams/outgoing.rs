//! A datagram on its way out, with everything that the kernel reads of it, at a place that does not move.

use super::Name;
use crate::chunk::Chunk;
use annulus_kernel::{Address, Control, ControlWriter, Direction, IoVec, MsgHeader, space};
use std::net::{IpAddr, SocketAddr};
use std::ptr;

/// Where a datagram goes, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Envelope {
    /// Empty on a connected socket.
    pub(crate) to: Name,
    /// Cut into datagrams of this size.
    pub(crate) segment_size: Option<u16>,
    pub(crate) tos: Option<u8>,
    /// The local address to leave from.
    pub(crate) source: Option<IpAddr>,
    /// It goes to an IPv4 peer, be it through an IPv6 socket.
    pub(crate) v4: bool,
}

/// Segment size, service class, packet information: nothing more goes out beside the bytes, but descriptors.
const CONTROL: usize = space(2) + space(4) + space(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Queued,
    /// Submitted, not to wait.
    Now,
    /// It went, and an event has told.
    Done,
    /// It found no room.
    Refused,
    /// It is to be tried again at once.
    Again,
    /// It is to be cut into datagrams here, and tried again at once.
    Cut,
    /// It failed, which has been told.
    Failed,
}

/// A datagram's slot.
pub(crate) struct Parcel {
    pub(super) mailbox: u32,
    pub(super) state: State,
    /// It found no room before.
    pub(super) waited: bool,
    /// It was sent again after an error that an earlier datagram may have caused.
    pub(super) retried: bool,
    pub(super) chunk: Chunk,
    pub(super) envelope: Envelope,
    header: MsgHeader,
    vector: IoVec,
    control: [u8; CONTROL],
}

impl Parcel {
    #[inline]
    pub(super) fn new(mailbox: u32, chunk: Chunk, envelope: Envelope) -> Self {
        Self {
            mailbox,
            state: State::Queued,
            waited: false,
            retried: false,
            chunk,
            envelope,
            header: MsgHeader {
                name: ptr::null(),
                name_len: 0,
                vectors: ptr::null(),
                vector_count: 1,
                control: ptr::null(),
                control_len: 0,
                flags: 0,
            },
            vector: IoVec { base: ptr::null(), len: 0 },
            control: [0; CONTROL],
        }
    }

    /// Bytes it counts for.
    #[inline]
    pub(super) fn weight(&self) -> usize {
        Self::weight_of(&self.chunk)
    }

    /// What a payload will count for: a parcel is more than that.
    #[inline]
    pub(super) fn weight_of(chunk: &Chunk) -> usize {
        chunk.len() + size_of::<Self>()
    }

    /// Writes the header, which points into the parcel itself: called where it stays.
    pub(super) fn seal(&mut self) -> *const u8 {
        let bytes = self.chunk.as_ref();
        self.vector = IoVec { base: bytes.as_ptr(), len: bytes.len() };
        self.header.vectors = &raw const self.vector;
        let to = self.envelope.to.as_bytes();
        let start = if to.is_empty() { ptr::null() } else { to.as_ptr() };
        (self.header.name, self.header.name_len) = (start, to.len() as u32);
        if self.chunk.control().is_empty() {
            self.header.control_len = self.write_control();
            self.header.control = self.control.as_ptr();
        } else {
            self.header.control_len = self.chunk.control().len();
            self.header.control = self.chunk.control().as_ptr();
        }
        ptr::from_ref(&self.header).cast()
    }

    fn write_control(&mut self) -> usize {
        let Envelope { segment_size, tos, source, v4, .. } = self.envelope;
        if segment_size.is_none() && tos.is_none() && source.is_none() {
            return 0;
        }
        let mut writer = ControlWriter::new(&mut self.control, Direction::Sent);
        let class = |tos| if v4 { Control::Tos(tos) } else { Control::TrafficClass(tos) };
        let controls = [
            segment_size.map(Control::SegmentSize),
            tos.map(class),
            source.map(|local| Control::PacketInfo { local, interface: 0 }),
        ];
        let fit = controls.into_iter().flatten().all(|control| writer.push(control));
        debug_assert!(fit, "there is room for one of each");
        writer.len()
    }

    /// Who it was for, in words.
    pub(super) fn addressee(&self) -> Option<String> {
        let to = &self.envelope.to;
        (!to.is_empty()).then(|| format!("{to:?}"))
    }
}

impl Envelope {
    /// To nobody in particular: the peer of a connected socket.
    pub(crate) fn connected(v4: bool) -> Self {
        Self { v4, ..Self::default() }
    }

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
