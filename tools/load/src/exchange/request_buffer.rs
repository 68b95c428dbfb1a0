//! Buffers for the requests that a codec has written.

use super::{OutgoingBuffer, SendBytes};
use std::rc::Rc;

/// The capacity that a buffer may keep after its requests have been sent.
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

/// Written requests of a codec whose clients may all send the same request.
#[derive(Debug)]
pub(crate) enum RequestBuffer {
    Bytes(Vec<u8>),
    /// One request that all clients share, and how many times to send it.
    Same(Rc<[u8]>, usize),
}

impl RequestBuffer {
    /// Appends the request that all clients share.
    #[inline]
    pub(crate) fn push_same(&mut self, request: &Rc<[u8]>) {
        match self {
            RequestBuffer::Same(_, count) => *count += 1,
            RequestBuffer::Bytes(_) => *self = RequestBuffer::Same(Rc::clone(request), 1),
        }
    }

    /// Returns a buffer to which a different request can be appended.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        if let RequestBuffer::Same(request, count) = self {
            *self = RequestBuffer::Bytes(request.repeat(*count));
        }
        match self {
            RequestBuffer::Bytes(bytes) => bytes,
            RequestBuffer::Same(..) => unreachable!("it has just been converted to bytes"),
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

    /// Several requests are copied into the connection's queue, so that they are sent together.
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

    /// Returns the bytes that are sent if the connection accepts `most` bytes at a time.
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
        assert_eq!(sent(&written, 2), b"abc!", "the different request was not appended");
    }
}
