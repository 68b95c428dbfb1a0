//! Receiving messages: datagrams, and what travels beside bytes.

use super::RECV_MULTISHOT;
use crate::entry::{Entry, EntryFlags};
use crate::opcode;
use annulus_kernel::Fd;

/// Receives one message into the vectors that a `struct msghdr` names; sender and control messages go where it says.
///
/// The result is the count of bytes. The kernel writes the header's `name_len`, `control_len` and `flags` as
/// `recvmsg(2)` does, so header, vectors, name and control must all last until the terminal completion.
#[derive(Clone, Copy, Debug)]
pub struct RecvMsg {
    /// The socket.
    pub fd: Fd,
    /// Address of a [`MsgHeader`](annulus_kernel::MsgHeader).
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
    /// Address of a [`MsgHeader`](annulus_kernel::MsgHeader).
    pub header: *const u8,
    /// [`msg`](annulus_kernel::msg) flags. With `TRUNC`, [`Message::payload_len`](annulus_kernel::Message::payload_len) tells the length before it was cut.
    pub flags: u32,
}

impl RecvMsgMulti {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        let flags = self.flags;
        let base = RecvMsg { fd: self.fd, header: self.header.cast_mut(), flags }
            .entry()
            .with(EntryFlags::BUFFER_SELECT);
        Entry { ioprio: RECV_MULTISHOT, buf_group: self.group, ..base }
    }
}
