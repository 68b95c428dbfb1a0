//! Sends of bytes and messages, with and without a copy.

use crate::entry::Entry;
use crate::opcode;
use annulus_kernel::Fd;

/// `IORING_SEND_ZC_REPORT_USAGE`
const ZERO_COPY_REPORT: u16 = 1 << 3;

/// Sends bytes.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// The socket to send on.
    pub fd: Fd,
    /// The bytes to send.
    pub buffer: *const u8,
    /// Number of bytes at `buffer`.
    pub len: u32,
    /// [`msg`](annulus_kernel::msg) flags.
    pub flags: u32,
}

impl Send {
    /// Returns the entry, which is unsafe to submit because it refers to memory.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::SEND, self.fd);
        Entry { addr: self.buffer as u64, len: self.len, op_flags: self.flags, ..base }
    }
}

/// Sends one datagram to an address (6.1), without a `struct msghdr`, which the kernel would copy.
/// The bytes and the address must stay valid until the end of the operation. A datagram, even an
/// empty one, is sent whole or not at all.
#[derive(Clone, Copy, Debug)]
pub struct SendTo {
    /// The socket to send on.
    pub fd: Fd,
    /// The bytes to send.
    pub buffer: *const u8,
    /// Number of bytes at `buffer`.
    pub len: u32,
    /// The destination's address, or null for the peer of a connected socket.
    pub name: *const u8,
    /// Number of bytes at `name`.
    pub name_len: u16,
    /// [`msg`](annulus_kernel::msg) flags.
    pub flags: u32,
}

impl SendTo {
    /// Returns the entry, which is unsafe to submit because it refers to memory.
    #[inline]
    pub fn entry(self) -> Entry {
        let Self { fd, buffer, len, name, name_len, flags } = self;
        // The first half of the field is the length; the second half must be zero.
        let [first, second] = name_len.to_ne_bytes();
        let file_index = u32::from_ne_bytes([first, second, 0, 0]);
        Entry { off: name as u64, file_index, ..Send { fd, buffer, len, flags }.entry() }
    }
}

/// Sends the vectors of a `struct msghdr`, to its name if it has one, with its control messages.
/// The header, the vectors and the name need to stay valid only until *submission*
/// (`SUBMIT_STABLE`). The bytes and the control messages, which each attempt reads, must stay valid
/// until the end of the operation. A datagram, even an empty one, is sent whole or not at all.
#[derive(Clone, Copy, Debug)]
pub struct SendMsg {
    /// The socket to send on.
    pub fd: Fd,
    /// The address of a [`MsgHeader`](annulus_kernel::MsgHeader).
    pub header: *const u8,
    /// [`msg`](annulus_kernel::msg) flags.
    pub flags: u32,
}

impl SendMsg {
    /// Returns the entry, which is unsafe to submit because it refers to memory.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::SENDMSG, self.fd);
        Entry { addr: self.header as u64, len: 1, op_flags: self.flags, ..base }
    }
}

/// Turns a SEND or SENDMSG into a zero-copy send (6.0, 6.1): the kernel sends from the submitter's
/// memory.
///
/// It posts two completions. The first has the result and MORE. The second, the notification, says
/// that the memory may be reused. If the first has no MORE, there is no second. With `reports`
/// (6.2, and late stable versions of 6.1) the notification reports whether the kernel copied the
/// bytes. Sockets of families other than IP fail with EOPNOTSUPP. The completion cannot be skipped.
#[inline]
pub fn zero_copy(send: Entry, reports: bool) -> Entry {
    let opcode = if send.opcode == opcode::SEND { opcode::SEND_ZC } else { opcode::SENDMSG_ZC };
    let report = if reports { ZERO_COPY_REPORT } else { 0 };
    Entry { opcode, ioprio: send.ioprio | report, ..send }
}
