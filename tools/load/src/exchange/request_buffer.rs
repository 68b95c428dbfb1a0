//! Requests of codecs that are to be sent.

use super::{OutgoingBuffer, SendBytes};
use std::rc::Rc;

/// Most bytes in a buffer that stays with a connection when its requests are sent.
const MAX_IDLE_BUFFER_BYTES: usize = 1 << 10;

impl OutgoingBuffer for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn bytes_from(&self, at: usize) -> SendBytes<'_> {
        SendBytes::Borrowed(&self[at..])
    }

    fn clear(&mut self) {
        self.clear();
        self.shrink_to(MAX_IDLE_BUFFER_BYTES);
    }
}

/// Requests of a codec whose clients may all send the same.
#[derive(Debug)]
pub(crate) enum RequestBuffer {
    Bytes(Vec<u8>),
    /// One request, which all clients share, and how many times it is sent.
    Same(Rc<[u8]>, usize),
}

impl RequestBuffer {
    /// Appends the request that is always the same.
    #[inline]
    pub(crate) fn push_same(&mut self, request: &Rc<[u8]>) {
        match self {
            RequestBuffer::Same(_, count) => *count += 1,
            RequestBuffer::Bytes(_) => *self = RequestBuffer::Same(Rc::clone(request), 1),
        }
    }

    /// Memory to append a request to that differs from others.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        if let RequestBuffer::Same(request, count) = self {
            *self = RequestBuffer::Bytes(request.repeat(*count));
        }
        match self {
            RequestBuffer::Bytes(bytes) => bytes,
            RequestBuffer::Same(..) => unreachable!("it was just made bytes"),
        }
    }
}

impl Default for RequestBuffer {
    fn default() -> RequestBuffer {
        RequestBuffer::Bytes(Vec::new())
    }
}

impl OutgoingBuffer for RequestBuffer {
    fn len(&self) -> usize {
        match self {
            RequestBuffer::Bytes(bytes) => bytes.len(),
            RequestBuffer::Same(request, count) => request.len() * count,
        }
    }

    /// Several requests are copied one behind the other, and so leave in one piece.
    fn bytes_from(&self, at: usize) -> SendBytes<'_> {
        match self {
            RequestBuffer::Bytes(bytes) => bytes.bytes_from(at),
            RequestBuffer::Same(request, 1) if at == 0 => SendBytes::Shared(request),
            RequestBuffer::Same(request, _) => SendBytes::Borrowed(&request[at % request.len()..]),
        }
    }

    fn clear(&mut self) {
        match self {
            RequestBuffer::Bytes(bytes) => OutgoingBuffer::clear(bytes),
            RequestBuffer::Same(_, count) => *count = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that leave if the connection accepts `most` bytes at a time.
    fn sent(written: &RequestBuffer, most: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        while sent.len() < written.len() {
            let bytes_from = written.bytes_from(sent.len());
            sent.extend(bytes_from.bytes().iter().take(most));
        }
        sent
    }

    #[test]
    fn identical_requests_are_sent_whole_in_any_pieces() {
        let request: Rc<[u8]> = Rc::from(*b"abc");
        let mut written = RequestBuffer::default();
        for round in 0..3 {
            written.push_same(&request);
            assert!(matches!(written.bytes_from(0), SendBytes::Shared(_)), "in round {round}");
            written.push_same(&request);
            (1..8).for_each(|most| assert_eq!(sent(&written, most), b"abcabc"));
            OutgoingBuffer::clear(&mut written);
            assert_eq!(written.len(), 0);
        }
        written.push_same(&request);
        written.bytes().push(b'!');
        assert_eq!(sent(&written, 2), b"abc!", "one that differs goes behind them");
    }
}
