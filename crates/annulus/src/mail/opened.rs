//! A received datagram, read: who sent it, what came beside it, its bytes.
#![allow(unsafe_code)]

use super::Name;
use crate::lease::Lease;
use annulus_ring::{Control, Controls, Credentials, Layout, Message, descriptors};
use std::net::IpAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

/// A datagram, or several of one flow that the kernel put together.
#[derive(Debug)]
pub(crate) struct Mail {
    pub(crate) bytes: Lease,
    pub(crate) source: Name,
    /// Bytes as sent: more than there are where it was cut.
    pub(crate) whole_len: usize,
    pub(crate) local: Option<(IpAddr, u32)>,
    pub(crate) tos: Option<u8>,
    pub(crate) segment_size: Option<usize>,
    pub(crate) timestamp: Option<Duration>,
    pub(crate) credentials: Option<Credentials>,
    /// How many the socket has dropped so far, where the kernel tells.
    pub(crate) drops: Option<u32>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Mail {
    /// Opens a letter: the whole of a buffer, filled as `layout` tells. Descriptors in it are this mail's from here on,
    /// so a letter is opened once.
    pub(crate) fn open(letter: Lease, layout: Layout) -> Self {
        let head = Message::read(&letter).unwrap_or_default();
        let name = (head.name_len as usize).min(layout.name);
        let mut mail = Self {
            source: Name::from_bytes(&letter[Layout::HEAD..Layout::HEAD + name]),
            whole_len: head.payload_len as usize,
            bytes: letter,
            local: None,
            tos: None,
            segment_size: None,
            timestamp: None,
            credentials: None,
            drops: None,
            descriptors: Vec::new(),
        };
        if head.control_len > 0 {
            mail.read_controls(layout, head.control_len as usize);
        }
        mail.bytes.advance(layout.payload_at());
        mail
    }

    fn read_controls(&mut self, layout: Layout, len: usize) {
        let start = layout.control_at();
        for control in Controls::new(&self.bytes[start..start + len.min(layout.control)]) {
            match control {
                Control::PacketInfo { local, interface } => self.local = Some((local, interface)),
                Control::Tos(tos) | Control::TrafficClass(tos) => self.tos = Some(tos),
                Control::SegmentSize(size) => self.segment_size = Some(size.into()),
                Control::Timestamp(at) => self.timestamp = Some(at),
                Control::Drops(count) => self.drops = Some(count),
                Control::Credentials(who) => self.credentials = Some(who),
                Control::Descriptors(bytes) => {
                    // SAFETY: the kernel opened them for whoever reads this message, which happens once.
                    let owned = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
                    self.descriptors.extend(descriptors(bytes).map(owned));
                }
                Control::Unknown { .. } => {}
            }
        }
    }

    /// Whether some of the bytes are missing.
    pub(crate) fn is_cut(&self) -> bool {
        self.whole_len > self.bytes.len()
    }

    /// Takes the first datagram off, where several were put together. What is left stays; nothing, where this was the
    /// last one.
    pub(crate) fn split_first(&mut self) -> Option<Self> {
        let size = self.segment_size.filter(|size| (1..self.bytes.len()).contains(size))?;
        let bytes = self.bytes.split_to(size);
        self.whole_len -= size;
        Some(Self {
            whole_len: size,
            bytes,
            source: self.source.clone(),
            local: self.local,
            tos: self.tos,
            segment_size: None,
            timestamp: self.timestamp,
            credentials: self.credentials,
            drops: self.drops,
            descriptors: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_ring::{Address, ControlWriter, Direction};

    const LAYOUT: Layout = Layout { name: 32, control: 80 };

    fn letter(payload: &[u8], whole: usize, controls: &[Control<'_>]) -> Lease {
        let mut bytes = vec![0; LAYOUT.payload_at()];
        let source = Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 9)));
        bytes[Layout::HEAD..][..source.as_bytes().len()].copy_from_slice(source.as_bytes());
        let room = &mut bytes[LAYOUT.control_at()..LAYOUT.payload_at()];
        let mut writer = ControlWriter::new(room, Direction::Received);
        assert!(controls.iter().all(|control| writer.push(*control)));
        let head = Message {
            name_len: source.as_bytes().len() as u32,
            control_len: writer.len() as u32,
            payload_len: whole as u32,
            flags: 0,
        };
        bytes[..Layout::HEAD].copy_from_slice(&head.bytes());
        bytes.extend_from_slice(payload);
        let len = bytes.len();
        Lease::heap(bytes.into_boxed_slice(), len)
    }

    #[test]
    fn what_came_beside_the_bytes_is_read() {
        let mail = Mail::open(letter(b"abc", 3, &[Control::Tos(2), Control::Drops(7)]), LAYOUT);
        assert_eq!(mail.source.address().to_inet().unwrap().to_string(), "127.0.0.1:9");
        assert_eq!((&*mail.bytes, mail.tos, mail.drops), (&b"abc"[..], Some(2), Some(7)));
        assert!(!mail.is_cut() && mail.local.is_none());
        assert!(Mail::open(letter(b"abc", 4, &[]), LAYOUT).is_cut());
    }

    #[test]
    fn datagrams_that_came_together_are_parted() {
        let mut rest = Mail::open(letter(b"onetwoth", 8, &[Control::SegmentSize(3)]), LAYOUT);
        let parts: Vec<Vec<u8>> =
            std::iter::from_fn(|| rest.split_first()).map(|mail| mail.bytes.to_vec()).collect();
        assert_eq!(parts, [b"one", b"two"]);
        assert_eq!((&*rest.bytes, rest.is_cut()), (&b"th"[..], false));
    }
}
