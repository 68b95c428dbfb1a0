//! What a datagram socket keeps: letters that wait to be read, and what it has under way itself.

use super::socket::SocketId;
use crate::descriptors::FileId;
use crate::timeline::Nanos;
use annulus_kernel::Address;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// What a datagram takes of a socket's buffer beside its bytes: as Linux for a small one.
const OVERHEAD: usize = 768;
/// Letters that a Unix socket keeps, and one more: `net.unix.max_dgram_qlen`.
const MOST_UNIX: usize = 10;
/// Most bytes that are put together, and most datagrams: the limits of an IP packet, and of Linux.
const MOST_COALESCED: usize = 65_507;
const MOST_SEGMENTS: usize = 64;

/// A datagram, and what travels beside its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Letter {
    pub(crate) bytes: Vec<u8>,
    /// Its sender's address; none where that had no name.
    pub(crate) from: Option<Address>,
    /// The internet addresses it is from and for.
    pub(crate) route: Option<(SocketAddr, SocketAddr)>,
    pub(crate) tos: u8,
    /// It is several datagrams of this size, put together.
    pub(crate) segment: Option<u16>,
    pub(crate) rights: Vec<FileId>,
    /// When it was received, and how many the socket had dropped by then.
    pub(crate) at: Nanos,
    pub(crate) drops: u32,
    /// Whose send buffer it counts against.
    pub(crate) sender: Option<SocketId>,
}

/// Whom a Unix datagram socket is connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Partner {
    #[default]
    None,
    Living(SocketId),
    /// It was closed; the next send learns it.
    Gone,
}

/// A datagram socket's own part.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    letters: VecDeque<Letter>,
    /// What the letters take of the receive buffer.
    held: usize,
    pub(crate) drops: u32,
    /// What letters of its own, not yet arrived, take of its send buffer.
    pub(crate) charged: usize,
    pub(crate) groups: Vec<IpAddr>,
    pub(crate) partner: Partner,
    /// Senders that wait for a place here.
    pub(crate) blocked: Vec<SocketId>,
}

impl Letter {
    /// What it takes of a buffer.
    #[inline]
    pub(crate) fn cost(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }

    /// Whether `next` may be put behind it: the same way, the same marks, and no datagram so far was a short one.
    fn continues(&self, next: &Self) -> bool {
        let size = self.segment_size();
        self.route == next.route
            && self.tos == next.tos
            && !self.bytes.is_empty()
            && self.bytes.len().is_multiple_of(size)
            && (1..=size).contains(&next.bytes.len())
            && self.bytes.len() + next.bytes.len() <= MOST_COALESCED
            && self.bytes.len() / size < MOST_SEGMENTS
    }

    fn segment_size(&self) -> usize {
        self.segment.map_or(self.bytes.len(), usize::from).max(1)
    }
}

impl Mailbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// A Unix socket with no place left: its senders wait.
    pub(crate) fn is_full(&self) -> bool {
        self.letters.len() > MOST_UNIX
    }

    /// Takes a letter in, or counts it as dropped where `room` is used up; as Linux, the last one may exceed it.
    pub(crate) fn receive(&mut self, letter: Letter, room: usize, coalesce: bool) -> bool {
        if self.held > 0 && self.held + OVERHEAD > room {
            self.drops = self.drops.wrapping_add(1);
            return false;
        }
        self.keep(Letter { drops: self.drops, ..letter }, coalesce);
        true
    }

    fn keep(&mut self, letter: Letter, coalesce: bool) {
        self.held += letter.cost();
        match self.letters.back_mut().filter(|last| coalesce && last.continues(&letter)) {
            Some(last) => {
                last.segment = Some(last.segment_size() as u16);
                last.bytes.extend_from_slice(&letter.bytes);
                self.held -= OVERHEAD;
            }
            None => self.letters.push_back(letter),
        }
    }

    /// Takes the oldest letter out.
    pub(crate) fn take(&mut self) -> Option<Letter> {
        let letter = self.letters.pop_front()?;
        self.held -= letter.cost();
        Some(letter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(len: usize) -> Letter {
        Letter { bytes: vec![7; len], ..Letter::default() }
    }

    #[test]
    fn a_full_box_drops_and_counts_and_the_next_letter_tells() {
        let mut mail = Mailbox::default();
        let taken = (0..5).filter(|_| mail.receive(letter(100), 2304, false)).count();
        assert_eq!((taken, mail.drops), (2, 3));
        assert_eq!(mail.take().map(|letter| letter.drops), Some(0));
        assert!(mail.receive(letter(100_000), 2304, false), "an empty place takes any size");
        assert_eq!(mail.take().map(|letter| letter.bytes.len()), Some(100));
        assert_eq!(mail.take().map(|letter| letter.drops), Some(3));
        assert_eq!((mail.held, mail.take().is_none()), (0, true));
    }

    #[test]
    fn equal_letters_are_put_together_until_a_short_one() {
        let mut mail = Mailbox::default();
        for len in [100, 100, 40, 100, 200, 0, 1] {
            assert!(mail.receive(letter(len), 1 << 20, true));
        }
        let got: Vec<_> = std::iter::from_fn(|| mail.take())
            .map(|letter| (letter.bytes.len(), letter.segment))
            .collect();
        assert_eq!(got, [(240, Some(100)), (100, None), (200, None), (0, None), (1, None)]);
        assert_eq!(mail.held, 0);
    }

    #[test]
    fn what_is_put_together_stays_a_packet() {
        let mut mail = Mailbox::default();
        (0..200).for_each(|_| assert!(mail.receive(letter(1000), 1 << 20, true)));
        (0..100).for_each(|_| assert!(mail.receive(letter(1), 1 << 20, true)));
        let lens: Vec<_> =
            std::iter::from_fn(|| mail.take()).map(|letter| letter.bytes.len()).collect();
        assert_eq!(lens, [64_000, 64_000, 64_000, 8_001, 64, 35]);
    }
}
