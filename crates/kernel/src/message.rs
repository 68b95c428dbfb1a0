//! What a multishot `recvmsg` leaves in a buffer: sender, control messages and payload, one behind the other.

/// How a buffer of a multishot `recvmsg` is laid out: `struct io_uring_recvmsg_out` (16 bytes), room for the sender's
/// address, room for control messages, payload. The rooms are as large as the header said when the operation began,
/// used or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Room for the sender's address.
    pub name: usize,
    /// Room for control messages.
    pub control: usize,
}

impl Layout {
    /// `struct io_uring_recvmsg_out`: four 32-bit numbers: `namelen`, `controllen`, `payloadlen`, `flags`.
    pub const HEAD: usize = 16;

    /// Where the control messages start.
    #[inline]
    pub const fn control_at(self) -> usize {
        Self::HEAD + self.name
    }

    /// Where the payload starts.
    #[inline]
    pub const fn payload_at(self) -> usize {
        self.control_at() + self.control
    }
}

/// `struct io_uring_recvmsg_out`: what stands at the beginning of a filled buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Length of the sender's address: more than its room where it was cut.
    pub name_len: u32,
    /// Bytes of control messages.
    pub control_len: u32,
    /// Bytes of payload; with `MSG_TRUNC` among the operation's flags, as many as were sent, though not all are there.
    pub payload_len: u32,
    /// `MSG_TRUNC` where payload was cut, `MSG_CTRUNC` where control messages were.
    pub flags: u32,
}

impl Message {
    /// Reads the head of a buffer; `None` where that is too short.
    #[inline]
    pub fn read(buffer: &[u8]) -> Option<Self> {
        let head = buffer.get(..Layout::HEAD)?;
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Some(Self {
            name_len: word(0),
            control_len: word(4),
            payload_len: word(8),
            flags: word(12),
        })
    }

    /// Its bytes, as the kernel writes them.
    #[inline]
    pub fn bytes(self) -> [u8; Layout::HEAD] {
        let words = [self.name_len, self.control_len, self.payload_len, self.flags];
        let mut bytes = [0; Layout::HEAD];
        bytes.copy_from_slice(words.map(u32::to_ne_bytes).as_flattened());
        bytes
    }

    /// Whether payload was cut.
    #[inline]
    pub fn is_cut(self) -> bool {
        self.flags & crate::msg::TRUNC != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_survives_the_round_trip() {
        let head = Message { name_len: 16, control_len: 24, payload_len: 65_507, flags: 0x20 };
        assert_eq!(Message::read(&head.bytes()), Some(head));
        assert!(head.is_cut());
        assert_eq!(Message::read(&head.bytes()[1..]), None);
    }
}
