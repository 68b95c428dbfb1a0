//! A received message, parsed only as far as needed: its sender, control messages and bytes.
#![allow(unsafe_code)]

use super::MessageFormat;
use crate::bytes::lease::Lease;
use annulus_kernel::{Address, Control, Controls, MessageHead, MessageLayout, descriptors, msg};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};

/// The message of one `recvmsg`: a datagram, or several datagrams of one flow that the kernel
/// coalesced.
///
/// It is small, because each call on the way to the task moves it.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    /// The buffer, up to the payload's end: head, sender, control messages, payload.
    buffer: Lease,
    format: &'static MessageFormat,
    /// Offset of the payload in the buffer.
    start: u32,
    /// Length of the payload as sent, which is more than was received if the datagram was cut.
    whole_len: u32,
    /// The size of each datagram if the kernel coalesced several; the last one may be shorter.
    segment_size: Option<u16>,
    descriptors: Vec<OwnedFd>,
}

impl ReceivedMessage {
    /// Parses a whole buffer with the layout of `format`. The message then owns the descriptors in
    /// the buffer, so a buffer must be parsed only once.
    #[inline]
    pub(crate) fn parse(buffer: Lease, format: &'static MessageFormat) -> Self {
        let start = format.layout.payload_at() as u32;
        let (segment_size, descriptors) = (None, Vec::new());
        let mut message = Self { buffer, format, start, whole_len: 0, segment_size, descriptors };
        let head = message.head();
        message.whole_len = head.payload_len.max(message.len() as u32);
        if head.control_len > 0 {
            message.read_controls();
        }
        message
    }

    /// Reads the segment size and takes ownership of the descriptors.
    fn read_controls(&mut self) {
        let (mut size, mut owned) = (None, Vec::new());
        for control in self.controls() {
            match control {
                Control::SegmentSize(bytes) => size = Some(bytes),
                Control::Descriptors(bytes) => {
                    // SAFETY: the kernel opened the descriptors for this message alone, and its
                    // buffer is parsed only once.
                    let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
                    owned.extend(descriptors(bytes).map(own));
                }
                // The program has asked for it through the descriptor (`SO_PASSPIDFD`), but no call
                // returns it.
                // SAFETY: as for the other descriptors.
                Control::ProcessDescriptor(fd) => drop(unsafe { OwnedFd::from_raw_fd(fd) }),
                _ => {}
            }
        }
        (self.segment_size, self.descriptors) = (size, owned);
    }

    /// Returns the control messages. Descriptors in them are plain numbers without ownership.
    pub(crate) fn controls(&self) -> Controls<'_> {
        let layout = self.format.layout;
        let len = (self.head().control_len as usize).min(layout.control);
        let start = layout.control_at();
        Controls::new(self.buffer.part(start..start + len))
    }

    #[inline]
    fn head(&self) -> MessageHead {
        MessageHead::read(self.buffer.part(0..MessageLayout::HEAD_BYTES)).unwrap_or_default()
    }

    /// Returns the sender's address as the bytes that the kernel wrote.
    #[inline]
    fn name(&self) -> &[u8] {
        name(self.head(), self.buffer.part(0..self.format.layout.payload_at()), self.format.layout)
    }

    #[inline]
    pub(crate) fn source(&self) -> Address {
        Address::from_bytes(self.name())
    }

    /// Returns the sender's address on an internet socket.
    ///
    /// # Errors
    /// `InvalidData` if it is not an internet address.
    #[inline]
    pub(crate) fn inet_source(&self) -> io::Result<SocketAddr> {
        Address::read_inet(self.name())
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.buffer.len() - self.start as usize
    }

    pub(crate) fn whole_len(&self) -> usize {
        self.whole_len as usize
    }

    pub(crate) fn segment_size(&self) -> Option<usize> {
        self.segment_size.map(usize::from)
    }

    /// Returns true if some of the bytes are missing.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.whole_len() > self.len()
    }

    /// Checks that the datagram was not cut.
    ///
    /// # Errors
    /// `InvalidData` if some of the bytes are missing.
    pub(crate) fn check_whole(&self) -> io::Result<()> {
        if !self.is_cut() {
            return Ok(());
        }
        let (whole, len) = (self.whole_len(), self.len());
        let text = format!(
            "a datagram of {whole} bytes was cut to {len}; ask for larger ones with max_datagram"
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }

    /// Returns the bytes and the sender of a datagram on an internet socket.
    ///
    /// # Errors
    /// `InvalidData` if the datagram was cut, or if the sender's address is not an internet
    /// address.
    pub(crate) fn into_inet(self) -> io::Result<(Lease, SocketAddr)> {
        self.check_whole()?;
        let source = self.inet_source()?;
        Ok((self.into_bytes(), source))
    }

    /// Returns true if the sender passed descriptors that could not be opened here.
    pub(crate) fn lost_descriptors(&self) -> bool {
        self.format.has_descriptors() && self.head().flags & msg::CTRUNC != 0
    }

    /// Returns the bytes of the first datagram.
    pub(crate) fn first_datagram(&self) -> &[u8] {
        let bytes = self.buffer.part(self.start as usize..self.buffer.len());
        let size =
            self.segment_size.map(usize::from).filter(|size| (1..bytes.len()).contains(size));
        &bytes[..size.unwrap_or(bytes.len())]
    }

    /// Returns the bytes of the payload. Descriptors that were not taken are closed.
    #[inline]
    pub(crate) fn into_bytes(mut self) -> Lease {
        self.buffer.advance(self.start as usize);
        self.buffer
    }

    /// Takes the descriptors that arrived with the datagram.
    pub(crate) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// Splits off the first datagram if there are several. Returns `None` if only one is left.
    #[inline]
    pub(crate) fn split_first(&mut self) -> Option<Self> {
        let size =
            self.segment_size.filter(|size| (1..self.len()).contains(&usize::from(*size)))?;
        let end = self.start + u32::from(size);
        // Both messages include the head, but each has its own part of the payload: no byte of the
        // payload is handed out twice.
        let mut buffer = self.buffer.share();
        buffer.truncate(end as usize);
        let first = Self {
            buffer,
            format: self.format,
            start: self.start,
            whole_len: u32::from(size),
            segment_size: None,
            descriptors: Vec::new(),
        };
        self.start = end;
        self.whole_len -= u32::from(size);
        Some(first)
    }
}

/// Returns the sender of a plain datagram: one that is whole, has no control messages, and comes
/// from an internet address. Coalesced datagrams have a control message, so they are not plain.
#[inline]
pub(super) fn plain_source(buffer: &Lease, layout: MessageLayout) -> Option<SocketAddr> {
    let front = buffer.part(0..layout.payload_at());
    let head = MessageHead::read(front)?;
    let is_whole = head.payload_len as usize <= buffer.len() - front.len();
    let is_plain = head.control_len == 0 && is_whole;
    if is_plain { Address::read_inet(name(head, front, layout)).ok() } else { None }
}

/// Returns the sender's address from the bytes before the payload.
#[inline]
fn name(head: MessageHead, front: &[u8], layout: MessageLayout) -> &[u8] {
    &front[MessageLayout::HEAD_BYTES..][..(head.name_len as usize).min(layout.name)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_kernel::{ControlWriter, Direction};

    fn received(payload: &[u8], whole: usize, controls: &[Control<'_>]) -> ReceivedMessage {
        ReceivedMessage::parse(buffer(payload, whole, controls), MessageFormat::INET)
    }

    fn buffer(payload: &[u8], whole: usize, controls: &[Control<'_>]) -> Lease {
        let layout = MessageFormat::INET.layout;
        let mut bytes = vec![0; layout.payload_at()];
        let source = Address::from(SocketAddr::from(([127, 0, 0, 1], 9)));
        bytes[MessageLayout::HEAD_BYTES..][..source.as_bytes().len()]
            .copy_from_slice(source.as_bytes());
        let controls_at = &mut bytes[layout.control_at()..];
        let mut writer = ControlWriter::new(controls_at, Direction::Received);
        assert!(controls.iter().all(|control| writer.push(*control)));
        let head = MessageHead {
            name_len: source.as_bytes().len() as u32,
            control_len: writer.len() as u32,
            payload_len: whole as u32,
            flags: 0,
        };
        bytes[..MessageLayout::HEAD_BYTES].copy_from_slice(&head.bytes());
        bytes.extend_from_slice(payload);
        let len = bytes.len();
        Lease::heap(bytes.into_boxed_slice(), len)
    }

    #[test]
    fn only_a_whole_datagram_without_control_messages_is_plain() {
        let source =
            |buffer| plain_source(&buffer, MessageFormat::INET.layout).map(|from| from.port());
        assert_eq!(source(buffer(b"abc", 3, &[])), Some(9));
        assert_eq!(source(buffer(b"", 0, &[])), Some(9));
        assert_eq!(source(buffer(b"abc", 4, &[])), None, "it was cut");
        assert_eq!(source(buffer(b"abcdef", 6, &[Control::SegmentSize(3)])), None);
        let mut unnamed = buffer(b"abc", 3, &[]);
        unnamed[..4].fill(0);
        assert_eq!(source(unnamed), None, "it has no address");
    }

    #[test]
    fn control_messages_are_read() {
        let message = received(b"abc", 3, &[Control::Tos(2), Control::TrafficClass(7)]);
        assert_eq!(message.inet_source().unwrap().to_string(), "127.0.0.1:9");
        let controls: Vec<_> = message.controls().collect();
        assert!(
            matches!(controls[..], [Control::Tos(2), Control::TrafficClass(7)]),
            "{controls:?}"
        );
        assert!(!message.is_cut());
        assert_eq!(&*message.into_bytes(), b"abc");
        assert!(received(b"abc", 4, &[]).is_cut());
    }

    #[test]
    fn a_length_in_the_head_below_the_bytes_received_is_ignored() {
        let mut rest = received(b"onetwoth", 0, &[Control::SegmentSize(3)]);
        assert_eq!((rest.whole_len(), rest.is_cut()), (8, false));
        let parts: Vec<_> = std::iter::from_fn(|| rest.split_first()).collect();
        assert_eq!((parts.len(), rest.whole_len()), (2, 2));
    }

    #[test]
    fn splitting_reads_no_byte_of_a_part_handed_out() {
        let mut rest = received(b"onetwoth", 8, &[Control::SegmentSize(3)]);
        let mut one = rest.split_first().expect("no first datagram").into_bytes();
        let held = &mut *one;
        held[0] = b'O';
        let two = rest.split_first().expect("no second datagram");
        held[1] = b'N';
        assert_eq!((&*one, &*two.into_bytes()), (&b"ONe"[..], &b"two"[..]));
    }

    #[test]
    fn coalesced_datagrams_are_split() {
        let mut rest = received(b"onetwoth", 8, &[Control::SegmentSize(3)]);
        let parts: Vec<_> = std::iter::from_fn(|| rest.split_first()).collect();
        assert!(parts.iter().all(|part| !part.is_cut() && part.inet_source().is_ok()));
        let parts: Vec<_> = parts.into_iter().map(|part| part.into_bytes().to_vec()).collect();
        assert_eq!(parts, [b"one", b"two"]);
        assert!(!rest.is_cut());
        assert_eq!(&*rest.into_bytes(), b"th");
    }
}
