//! Requests of codecs that are to be sent.

use super::{Outgoing, Piece};
use std::rc::Rc;

/// Most bytes in a buffer that stays with a connection when its requests are sent.
const KEPT: usize = 1 << 10;

impl Outgoing for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn piece(&self, at: usize) -> Piece<'_> {
        Piece::Borrowed(&self[at..])
    }

    fn clear(&mut self) {
        self.clear();
        self.shrink_to(KEPT);
    }
}

/// Requests of a codec whose clients may all send the same.
#[derive(Debug)]
pub(crate) enum Written {
    Bytes(Vec<u8>),
    /// One request, which all clients share, and how many times it is sent.
    Same(Rc<[u8]>, usize),
}

impl Written {
    /// Appends the request that is always the same.
    #[inline]
    pub(crate) fn push_same(&mut self, request: &Rc<[u8]>) {
        match self {
            Written::Same(_, count) => *count += 1,
            Written::Bytes(_) => *self = Written::Same(Rc::clone(request), 1),
        }
    }

    /// Memory to append a request to that differs from others.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        if let Written::Same(request, count) = self {
            *self = Written::Bytes(request.repeat(*count));
        }
        match self {
            Written::Bytes(bytes) => bytes,
            Written::Same(..) => unreachable!("it was just made bytes"),
        }
    }
}

impl Default for Written {
    fn default() -> Written {
        Written::Bytes(Vec::new())
    }
}

impl Outgoing for Written {
    fn len(&self) -> usize {
        match self {
            Written::Bytes(bytes) => bytes.len(),
            Written::Same(request, count) => request.len() * count,
        }
    }

    /// Several requests are copied one behind the other, and so leave in one piece.
    fn piece(&self, at: usize) -> Piece<'_> {
        match self {
            Written::Bytes(bytes) => bytes.piece(at),
            Written::Same(request, 1) if at == 0 => Piece::Shared(request),
            Written::Same(request, _) => Piece::Borrowed(&request[at % request.len()..]),
        }
    }

    fn clear(&mut self) {
        match self {
            Written::Bytes(bytes) => Outgoing::clear(bytes),
            Written::Same(_, count) => *count = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that leave if the connection accepts `most` bytes at a time.
    fn sent(written: &Written, most: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        while sent.len() < written.len() {
            let piece = written.piece(sent.len());
            sent.extend(piece.bytes().iter().take(most));
        }
        sent
    }

    #[test]
    fn equal_requests_leave_whole_however_they_are_cut() {
        let request: Rc<[u8]> = Rc::from(*b"abc");
        let mut written = Written::default();
        for round in 0..3 {
            written.push_same(&request);
            assert!(matches!(written.piece(0), Piece::Shared(_)), "in round {round}");
            written.push_same(&request);
            (1..8).for_each(|most| assert_eq!(sent(&written, most), b"abcabc"));
            Outgoing::clear(&mut written);
            assert_eq!(written.len(), 0);
        }
        written.push_same(&request);
        written.bytes().push(b'!');
        assert_eq!(sent(&written, 2), b"abc!", "one that differs goes behind them");
    }
}
