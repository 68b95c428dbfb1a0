//! Receives: bytes and messages, once or many times, into memory of the submitter or into buffers of a group.

use crate::entry::{Entry, EntryFlags, SafeEntry};
use crate::opcode;
use annulus_kernel::{Fd, MsgHeader};
use std::cell::UnsafeCell;
use std::ptr;

/// `IORING_RECV_MULTISHOT`
const RECV_MULTISHOT: u16 = 1 << 1;

/// Receives once into memory of the submitter.
#[derive(Clone, Copy, Debug)]
pub struct Recv {
    /// The socket.
    pub fd: Fd,
    /// Where to.
    pub buffer: *mut u8,
    /// At most this many bytes.
    pub len: u32,
}

impl Recv {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        Entry { addr: self.buffer as u64, len: self.len, ..Entry::new(opcode::RECV, self.fd) }
    }
}

/// Receives into buffers that the kernel picks from a group, many times (6.0).
#[derive(Clone, Copy, Debug)]
pub struct RecvMulti {
    /// The socket.
    pub fd: Fd,
    /// The buffer group.
    pub group: u16,
    /// Ends after this many bytes in all; zero is no limit. Needs 6.17, refused with EINVAL before.
    pub limit: u32,
}

impl RecvMulti {
    /// The entry.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        let base = selecting(opcode::RECV, self.fd, self.group);
        SafeEntry::new(Entry { ioprio: RECV_MULTISHOT, file_index: self.limit, ..base })
    }
}

/// Receives once into a buffer that the kernel picks from a group.
#[derive(Clone, Copy, Debug)]
pub struct RecvSelect {
    /// The socket.
    pub fd: Fd,
    /// The buffer group.
    pub group: u16,
}

impl RecvSelect {
    /// The entry.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        SafeEntry::new(selecting(opcode::RECV, self.fd, self.group))
    }
}

/// Receives a message once into a buffer that the kernel picks from a group. The sender and control messages are not asked for.
#[derive(Clone, Copy, Debug)]
pub struct RecvMsgSelect {
    /// The socket.
    pub fd: Fd,
    /// The buffer group.
    pub group: u16,
}

impl RecvMsgSelect {
    /// The entry.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        let base = selecting(opcode::RECVMSG, self.fd, self.group);
        SafeEntry::new(Entry { addr: EMPTY_HEADER.0.get() as u64, len: 1, ..base })
    }
}

/// A header without vectors, name and control. The kernel writes lengths and flags into it as an operation ends; no code reads
/// them.
struct EmptyHeader(UnsafeCell<MsgHeader>);

// SAFETY: no code of this process looks inside; kernels get the address.
#[allow(unsafe_code)]
unsafe impl Sync for EmptyHeader {}

static EMPTY_HEADER: EmptyHeader = EmptyHeader(UnsafeCell::new(MsgHeader {
    name: ptr::null(),
    name_len: 0,
    vectors: ptr::null(),
    vector_count: 0,
    control: ptr::null(),
    control_len: 0,
    flags: 0,
}));

/// An operation whose buffer the kernel picks from a group.
#[inline]
pub(super) fn selecting(opcode: u8, fd: Fd, group: u16) -> Entry {
    Entry { buf_group: group, ..Entry::new(opcode, fd).with(EntryFlags::BUFFER_SELECT) }
}

/// Receives one message into the vectors that a `struct msghdr` names; sender and control messages go where it says.
///
/// The result is the count of bytes. The kernel writes the header's `name_len`, `control_len` and `flags` as
/// `recvmsg(2)` does, so header, vectors, name and control must all last until the terminal completion.
#[derive(Clone, Copy, Debug)]
pub struct RecvMsg {
    /// The socket.
    pub fd: Fd,
    /// Address of a [`MsgHeader`].
    pub header: *mut u8,
    /// [`msg`](annulus_kernel::msg) flags.
    pub flags: u32,
}

impl RecvMsg {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::RECVMSG, self.fd);
        Entry { addr: self.header as u64, len: 1, op_flags: self.flags, ..base }
    }
}

/// Receives messages into buffers that the kernel picks from a group, one each, many times (6.0). How a buffer is filled
/// is told at [`Message`](annulus_kernel::Message); the result counts from the buffer's beginning to the end of its payload.
///
/// Of the header only `name_len` and `control_len` are read, as the entry is consumed: the room that every buffer keeps.
/// It names no vectors. A message with an empty payload ends the operation (no MORE), though its result is not zero.
/// There is no total limit as for `RECV`.
#[derive(Clone, Copy, Debug)]
pub struct RecvMsgMulti {
    /// The socket.
    pub fd: Fd,
    /// The buffer group.
    pub group: u16,
    /// Address of a [`MsgHeader`].
    pub header: *const u8,
    /// [`msg`](annulus_kernel::msg) flags. With `TRUNC`, [`Message::payload_len`](annulus_kernel::Message::payload_len) tells
    /// the length before it was cut.
    pub flags: u32,
}

impl RecvMsgMulti {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        let (addr, op_flags) = (self.header as u64, self.flags);
        let base = selecting(opcode::RECVMSG, self.fd, self.group);
        Entry { addr, len: 1, op_flags, ioprio: RECV_MULTISHOT, ..base }
    }
}
