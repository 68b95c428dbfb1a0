//! Socket messages: the structures that system calls take, the flags of sends and receives, and the
//! buffer that a multishot `recvmsg` fills with sender, control messages and payload, in this
//! order.

use std::ptr;

/// `struct iovec`: a range of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IoVec {
    /// Address of the first byte.
    pub base: *const u8,
    /// Length in bytes.
    pub len: usize,
}

/// `struct msghdr`: the memory that `sendmsg` sends, or that `recvmsg` writes to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct MsgHeader {
    pub name: *const u8,
    pub name_len: u32,
    pub vectors: *const IoVec,
    pub vector_count: usize,
    pub control: *const u8,
    pub control_len: usize,
    pub flags: i32,
}

impl MsgHeader {
    /// A header without address, vectors and control messages.
    pub const EMPTY: Self = Self {
        name: ptr::null(),
        name_len: 0,
        vectors: ptr::null(),
        vector_count: 0,
        control: ptr::null(),
        control_len: 0,
        flags: 0,
    };
}

/// `struct mmsghdr`: one of several messages to receive.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MessageSlot {
    /// The header, with the memory to receive into.
    pub header: MsgHeader,
    /// The length of the message, once it has been received.
    pub len: u32,
}

/// `MSG_*` flags of sends and receives.
pub mod msg {
    /// Returned: control messages were truncated.
    pub const CTRUNC: u32 = 0x8;
    /// In a receive: return the whole length of a datagram. Returned: the datagram was truncated.
    pub const TRUNC: u32 = 0x20;
    /// Do not block, even on a blocking descriptor.
    pub const DONTWAIT: u32 = 0x40;
    /// Return only when all bytes have been transferred.
    pub const WAITALL: u32 = 0x100;
    /// Raise no SIGPIPE if the peer has closed.
    pub const NOSIGNAL: u32 = 0x4000;
    /// Received descriptors close on exec.
    pub const CMSG_CLOEXEC: u32 = 0x4000_0000;
}

/// The layout of a buffer of a multishot `recvmsg`: `struct io_uring_recvmsg_out` (16 bytes), space
/// for the sender's address, space for control messages, payload. The spaces have the sizes given
/// in the header of the operation, even if they are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLayout {
    /// Space for the sender's address.
    pub name: usize,
    /// Space for control messages.
    pub control: usize,
}

impl MessageLayout {
    /// `struct io_uring_recvmsg_out`: four 32-bit numbers: `namelen`, `controllen`, `payloadlen`,
    /// `flags`.
    pub const HEAD_BYTES: usize = 16;

    /// Returns the offset of the control messages.
    #[inline]
    pub const fn control_at(self) -> usize {
        Self::HEAD_BYTES + self.name
    }

    /// Returns the offset of the payload.
    #[inline]
    pub const fn payload_at(self) -> usize {
        self.control_at() + self.control
    }
}

/// `struct io_uring_recvmsg_out`: the beginning of a filled buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageHead {
    /// Length of the sender's address; more than its space if it was truncated.
    pub name_len: u32,
    /// Bytes of control messages.
    pub control_len: u32,
    /// Bytes of payload. If the operation has the flag `MSG_TRUNC`, the number of bytes sent, even
    /// if the payload was truncated.
    pub payload_len: u32,
    /// `MSG_TRUNC` if the payload was truncated, `MSG_CTRUNC` if control messages were.
    pub flags: u32,
}

impl MessageHead {
    /// Reads the head of a buffer. Returns `None` if the buffer is too short.
    #[inline]
    pub fn read(buffer: &[u8]) -> Option<Self> {
        let head = buffer.get(..MessageLayout::HEAD_BYTES)?;
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Some(Self {
            name_len: word(0),
            control_len: word(4),
            payload_len: word(8),
            flags: word(12),
        })
    }

    /// Returns the bytes of the head, as the kernel writes them.
    #[inline]
    pub fn bytes(self) -> [u8; MessageLayout::HEAD_BYTES] {
        let words = [self.name_len, self.control_len, self.payload_len, self.flags];
        let mut bytes = [0; MessageLayout::HEAD_BYTES];
        bytes.copy_from_slice(words.map(u32::to_ne_bytes).as_flattened());
        bytes
    }

    /// Returns true if the payload was truncated.
    #[inline]
    pub fn is_cut(self) -> bool {
        self.flags & msg::TRUNC != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_written() {
        let head = MessageHead { name_len: 16, control_len: 24, payload_len: 65_507, flags: 0x20 };
        assert_eq!(MessageHead::read(&head.bytes()), Some(head));
        assert!(head.is_cut());
        assert_eq!(MessageHead::read(&head.bytes()[1..]), None);
    }
}
