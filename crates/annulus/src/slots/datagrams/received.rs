//! A received datagram, read as far as one asks: who sent it, what came beside it, its bytes.
#![allow(unsafe_code)]

use super::Format;
use crate::lease::Lease;
use annulus_kernel::{Address, Control, Controls, Layout, Message, descriptors};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};

/// A datagram, or several of one flow that the kernel put together.
///
/// It is a few words around its buffer, since every datagram moves through the hands that lead to who receives it.
#[derive(Debug)]
pub(crate) struct Mail {
    /// The buffer, up to the payload's end: head, sender, controls, payload.
    letter: Lease,
    format: &'static Format,
    /// Where the payload starts.
    start: u32,
    /// Bytes as sent: as many as there are, or more if it was cut.
    whole_len: u32,
    /// Several datagrams came together, each of so many bytes, but for the last one.
    segment_size: Option<u16>,
    descriptors: Vec<OwnedFd>,
}

impl Mail {
    /// Opens a letter: the whole of a buffer, filled as `format` tells. Descriptors in it are this mail's from here on,
    /// so a letter is opened once.
    #[inline]
    pub(crate) fn open(letter: Lease, format: &'static Format) -> Self {
        let start = format.layout.payload_at() as u32;
        let (segment_size, descriptors) = (None, Vec::new());
        let mut mail = Self { letter, format, start, whole_len: 0, segment_size, descriptors };
        let head = mail.head();
        mail.whole_len = head.payload_len.max(mail.len() as u32);
        if head.control_len > 0 {
            mail.read_controls();
        }
        mail
    }

    /// What changes hands, or what the letter is.
    fn read_controls(&mut self) {
        let (mut size, mut owned) = (None, Vec::new());
        for control in self.controls() {
            match control {
                Control::SegmentSize(bytes) => size = Some(bytes),
                Control::Descriptors(bytes) => {
                    // SAFETY: the kernel opened them for whoever reads this message, which happens once.
                    let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
                    owned.extend(descriptors(bytes).map(own));
                }
                _ => {}
            }
        }
        (self.segment_size, self.descriptors) = (size, owned);
    }

    /// What came beside the bytes. Descriptors among it are numbers only.
    pub(crate) fn controls(&self) -> Controls<'_> {
        let layout = self.format.layout;
        let len = (self.head().control_len as usize).min(layout.control);
        let start = layout.control_at();
        Controls::new(self.letter.part(start..start + len))
    }

    #[inline]
    fn head(&self) -> Message {
        Message::read(self.letter.part(0..Layout::HEAD)).unwrap_or_default()
    }

    /// The sender's address, in the kernel's bytes.
    #[inline]
    fn name(&self) -> &[u8] {
        let len = (self.head().name_len as usize).min(self.format.layout.name);
        self.letter.part(Layout::HEAD..Layout::HEAD + len)
    }

    /// Who sent it.
    #[inline]
    pub(crate) fn source(&self) -> Address {
        Address::from_bytes(self.name())
    }

    /// Who sent it, over the internet protocols.
    ///
    /// # Errors
    /// `InvalidData` where that is no internet address.
    #[inline]
    pub(crate) fn inet_source(&self) -> io::Result<SocketAddr> {
        Address::read_inet(self.name())
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.letter.len() - self.start as usize
    }

    pub(crate) fn whole_len(&self) -> usize {
        self.whole_len as usize
    }

    pub(crate) fn segment_size(&self) -> Option<usize> {
        self.segment_size.map(usize::from)
    }

    /// Whether some of the bytes are missing.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.whole_len() > self.len()
    }

    /// Its bytes alone. What came along and was not taken goes.
    #[inline]
    pub(crate) fn into_bytes(mut self) -> Lease {
        self.letter.advance(self.start as usize);
        self.letter
    }

    /// Descriptors that came along.
    pub(crate) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// Takes the first datagram off, where several were put together. What is left stays; nothing, where this was the
    /// last one.
    pub(crate) fn split_first(&mut self) -> Option<Self> {
        let size =
            self.segment_size.filter(|size| (1..self.len()).contains(&usize::from(*size)))?;
        let end = self.start + u32::from(size);
        // Both show what stands before the payload, and their own part of that: no byte is handed out twice.
        let mut letter = self.letter.share();
        letter.truncate(end as usize);
        let first = Self {
            letter,
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

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_kernel::{ControlWriter, Direction};

    fn letter(payload: &[u8], whole: usize, controls: &[Control<'_>]) -> Mail {
        let layout = Format::INET.layout;
        let mut bytes = vec![0; layout.payload_at()];
        let source = Address::from(SocketAddr::from(([127, 0, 0, 1], 9)));
        bytes[Layout::HEAD..][..source.as_bytes().len()].copy_from_slice(source.as_bytes());
        let room = &mut bytes[layout.control_at()..];
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
        Mail::open(Lease::heap(bytes.into_boxed_slice(), len), Format::INET)
    }

    #[test]
    fn what_came_beside_the_bytes_is_read() {
        let mail = letter(b"abc", 3, &[Control::Tos(2), Control::TrafficClass(7)]);
        assert_eq!(mail.inet_source().unwrap().to_string(), "127.0.0.1:9");
        let controls: Vec<_> = mail.controls().collect();
        assert!(
            matches!(controls[..], [Control::Tos(2), Control::TrafficClass(7)]),
            "{controls:?}"
        );
        assert!(!mail.is_cut());
        assert_eq!(&*mail.into_bytes(), b"abc");
        assert!(letter(b"abc", 4, &[]).is_cut());
    }

    #[test]
    fn a_head_that_tells_less_than_there_is_counts_for_what_there_is() {
        let mut rest = letter(b"onetwoth", 0, &[Control::SegmentSize(3)]);
        assert_eq!((rest.whole_len(), rest.is_cut()), (8, false));
        let parts: Vec<_> = std::iter::from_fn(|| rest.split_first()).collect();
        assert_eq!((parts.len(), rest.whole_len()), (2, 2));
    }

    #[test]
    fn a_part_that_is_being_written_is_not_looked_at() {
        let mut rest = letter(b"onetwoth", 8, &[Control::SegmentSize(3)]);
        let mut one = rest.split_first().expect("a first one").into_bytes();
        let held = &mut *one;
        held[0] = b'O';
        let two = rest.split_first().expect("a second one");
        held[1] = b'N';
        assert_eq!((&*one, &*two.into_bytes()), (&b"ONe"[..], &b"two"[..]));
    }

    #[test]
    fn datagrams_that_came_together_are_parted() {
        let mut rest = letter(b"onetwoth", 8, &[Control::SegmentSize(3)]);
        let parts: Vec<_> = std::iter::from_fn(|| rest.split_first()).collect();
        assert!(parts.iter().all(|part| !part.is_cut() && part.inet_source().is_ok()));
        let parts: Vec<_> = parts.into_iter().map(|part| part.into_bytes().to_vec()).collect();
        assert_eq!(parts, [b"one", b"two"]);
        assert!(!rest.is_cut());
        assert_eq!(&*rest.into_bytes(), b"th");
    }
}
