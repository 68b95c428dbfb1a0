//! Receives of bytes and messages, single-shot and multishot, into the submitter's memory or into
//! buffers of a group.

use crate::entry::{Entry, EntryFlags, SafeEntry};
use crate::opcode;
use annulus_kernel::Fd;

/// `IORING_RECV_MULTISHOT`
const RECV_MULTISHOT: u16 = 1 << 1;

/// Receives once into the submitter's memory.
#[derive(Clone, Copy, Debug)]
pub struct Recv {
    /// The socket to receive from.
    pub fd: Fd,
    /// The memory that the received bytes are written to.
    pub buffer: *mut u8,
    /// The maximum number of bytes to receive.
    pub len: u32,
}

impl Recv {
    /// Returns the entry, which is unsafe to submit because it refers to memory.
    #[inline]
    pub fn entry(self) -> Entry {
        Entry { addr: self.buffer as u64, len: self.len, ..Entry::new(opcode::RECV, self.fd) }
    }
}

/// Receives many times into buffers that the kernel takes from a group (6.0).
#[derive(Clone, Copy, Debug)]
pub struct RecvMulti {
    /// The socket to receive from.
    pub fd: Fd,
    /// The group from which the kernel takes buffers.
    pub group: u16,
    /// The total number of bytes after which the operation ends, and the most that any buffer
    /// receives. Zero means no limit. Other values fail with EINVAL before 6.17.
    pub limit: u32,
}

impl RecvMulti {
    /// Returns the entry, which safe code may submit.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        let base = with_buffer_group(opcode::RECV, self.fd, self.group);
        // The kernel checks the total only after each receive, so the length also limits each
        // single receive.
        let limits = Entry { len: self.limit, file_index: self.limit, ..base };
        SafeEntry::new(Entry { ioprio: RECV_MULTISHOT, ..limits })
    }
}

/// Receives many times into memory of a [`RefillRing`](crate::RefillRing) (6.15).
#[derive(Clone, Copy, Debug)]
pub struct RecvZeroCopy {
    /// The TCP socket to receive from. Other sockets fail with EPROTONOSUPPORT.
    pub fd: Fd,
    /// The [number](crate::RefillRing::id) of the refill ring.
    pub refill_ring: u32,
    /// The total number of bytes after which the operation ends, with a result of zero, as at the
    /// end of the stream. Zero means no limit.
    pub limit: u32,
}

impl RecvZeroCopy {
    /// Returns the entry, which safe code may submit.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        let base = Entry::new(opcode::RECV_ZC, self.fd);
        let file_index = self.refill_ring;
        SafeEntry::new(Entry { len: self.limit, file_index, ioprio: RECV_MULTISHOT, ..base })
    }
}

/// Receives once into a buffer that the kernel takes from a group.
#[derive(Clone, Copy, Debug)]
pub struct RecvSelect {
    /// The socket to receive from.
    pub fd: Fd,
    /// The group from which the kernel takes a buffer.
    pub group: u16,
}

impl RecvSelect {
    /// Returns the entry, which safe code may submit.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        SafeEntry::new(with_buffer_group(opcode::RECV, self.fd, self.group))
    }
}

/// Returns the entry of an operation whose buffer the kernel takes from a group.
#[inline]
fn with_buffer_group(opcode: u8, fd: Fd, group: u16) -> Entry {
    Entry { buf_group: group, ..Entry::new(opcode, fd).with(EntryFlags::BUFFER_SELECT) }
}

/// Receives one message into the buffers of a `struct msghdr`.
///
/// The result is the number of bytes. The kernel writes `name_len`, `control_len` and `flags` of
/// the header as `recvmsg(2)` does, so the header, the vectors, the name and the control buffer
/// must stay valid until the terminal completion.
#[derive(Clone, Copy, Debug)]
pub struct RecvMsg {
    /// The socket to receive from.
    pub fd: Fd,
    /// The address of a [`MsgHeader`](annulus_kernel::MsgHeader).
    pub header: *mut u8,
    /// [`msg`](annulus_kernel::msg) flags.
    pub flags: u32,
}

impl RecvMsg {
    /// Returns the entry, which is unsafe to submit because it refers to memory.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::RECVMSG, self.fd);
        Entry { addr: self.header as u64, len: 1, op_flags: self.flags, ..base }
    }
}

/// Receives many messages, each into a buffer that the kernel takes from a group (6.0).
/// [`MessageLayout`](annulus_kernel::MessageLayout) describes the layout of a buffer. The result
/// counts from the beginning of the buffer to the end of the payload.
///
/// When the kernel consumes the entry, it reads only `name_len` and `control_len` of the header:
/// the space that each buffer reserves for the name and the control messages. The header has no
/// vectors. A message with an empty payload ends the operation (no MORE), although its result is
/// not zero. Unlike `RECV`, this operation has no total limit.
#[derive(Clone, Copy, Debug)]
pub struct RecvMsgMulti {
    /// The socket to receive from.
    pub fd: Fd,
    /// The group from which the kernel takes buffers.
    pub group: u16,
    /// The address of a [`MsgHeader`](annulus_kernel::MsgHeader).
    pub header: *const u8,
    /// [`msg`](annulus_kernel::msg) flags. With `TRUNC`,
    /// [`MessageHead::payload_len`](annulus_kernel::MessageHead::payload_len) is the length before
    /// truncation.
    pub flags: u32,
}

impl RecvMsgMulti {
    /// Returns the entry, which is unsafe to submit because it refers to memory.
    #[inline]
    pub fn entry(self) -> Entry {
        let (addr, op_flags) = (self.header as u64, self.flags);
        let base = with_buffer_group(opcode::RECVMSG, self.fd, self.group);
        Entry { addr, len: 1, op_flags, ioprio: RECV_MULTISHOT, ..base }
    }
}
