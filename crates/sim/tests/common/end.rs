//! One end of a connection: the stream it sends, and the one it checks.

use super::*;

/// One end of a connection.
pub struct End {
    pub fd: Fd,
    /// The stream that this end sends: its number, its bytes, and how many of them were sent.
    pub stream: usize,
    pub bytes: Vec<u8>,
    pub sent: usize,
    /// How many bytes are in flight, and whether a success is skipped.
    pub in_flight: usize,
    pub quiet: bool,
    /// The memory of a message in flight.
    pub vectors: Vec<IoVec>,
    pub header: Box<MsgHeader>,
    pub shut: bool,
    /// The number of the stream that this end receives, once its first bytes have arrived.
    pub from: Option<usize>,
    pub received: usize,
    pub receiving: bool,
    pub memory: Vec<u8>,
    pub over: bool,
    pub closed: bool,
}

/// The byte of a stream at an offset.
fn byte(stream: usize, at: usize) -> u8 {
    (stream * 31 + at * 7 + (at >> 8) * 13) as u8
}

/// A stream as it is sent: its number in eight bytes, then its bytes.
fn first(stream: usize, at: usize) -> u8 {
    if at < 8 { (stream as u64).to_le_bytes()[at] } else { byte(stream, at) }
}

fn no_header() -> MsgHeader {
    MsgHeader {
        name: std::ptr::null(),
        name_len: 0,
        vectors: std::ptr::null(),
        vector_count: 0,
        control: std::ptr::null(),
        control_len: 0,
        flags: 0,
    }
}

impl End {
    pub fn new(fd: Fd, stream: usize, len: usize) -> Self {
        Self {
            fd,
            stream,
            // The number of the stream comes first, so that the other end knows what to expect.
            bytes: (0..len + 8).map(|at| first(stream, at)).collect(),
            sent: 0,
            in_flight: 0,
            quiet: false,
            vectors: Vec::new(),
            header: Box::new(no_header()),
            shut: false,
            from: None,
            received: 0,
            receiving: false,
            memory: vec![0; 300],
            over: false,
            closed: false,
        }
    }

    /// A message of several parts, the last of which is the largest.
    pub fn message(&mut self, parts: usize, flags: u32) -> Entry {
        let mut rest = &self.bytes[self.sent..self.sent + self.in_flight];
        self.vectors.clear();
        for left in (1..=parts).rev() {
            let (part, behind) = rest.split_at(rest.len() / left);
            self.vectors.push(IoVec { base: part.as_ptr(), len: part.len() });
            rest = behind;
        }
        self.header.vectors = self.vectors.as_ptr();
        self.header.vector_count = parts;
        let header = std::ptr::from_ref(&*self.header).cast();
        op::SendMsg { fd: self.fd, header, flags }.entry()
    }

    /// Checks that bytes are the next ones of their stream.
    pub fn check(&mut self, bytes: &[u8]) {
        for &got in bytes {
            let at = self.received;
            if at < 8 {
                let number = self.from.get_or_insert(0);
                *number |= usize::from(got) << (8 * at);
            } else {
                let stream = self.from.expect("the header comes first");
                assert_eq!(got, byte(stream, at), "byte {at} of stream {stream}");
            }
            self.received += 1;
        }
    }
}
