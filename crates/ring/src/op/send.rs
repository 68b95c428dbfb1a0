//! Sends: bytes and messages, copied or not.

use crate::entry::Entry;
use crate::opcode;
use annulus_kernel::Fd;

/// `IORING_SEND_ZC_REPORT_USAGE`
const ZERO_COPY_REPORT: u16 = 1 << 3;

/// Sends bytes.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// The socket.
    pub fd: Fd,
    /// From where.
    pub buffer: *const u8,
    /// How many.
    pub len: u32,
    /// [`msg`](annulus_kernel::msg) flags.
    pub flags: u32,
}

impl Send {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::SEND, self.fd);
        Entry { addr: self.buffer as u64, len: self.len, op_flags: self.flags, ..base }
    }
}

/// Sends what a `struct msghdr` describes: its vectors' bytes, to its name if it has one, with its control messages.
/// Header, vectors and name must outlive the *submission* only (`SUBMIT_STABLE`); the bytes and the control messages,
/// which are read with each try, the operation. A datagram goes whole or not at all; an empty one goes too.
#[derive(Clone, Copy, Debug)]
pub struct SendMsg {
    /// The socket.
    pub fd: Fd,
    /// Address of a [`MsgHeader`](annulus_kernel::MsgHeader).
    pub header: *const u8,
    /// [`msg`](annulus_kernel::msg) flags.
    pub flags: u32,
}

impl SendMsg {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::SENDMSG, self.fd);
        Entry { addr: self.header as u64, len: 1, op_flags: self.flags, ..base }
    }
}

/// Makes a SEND or SENDMSG one that does not copy (6.0, 6.1): the kernel sends from the submitter's memory.
///
/// It has two completions. The first tells what went and promises more; the second, the notification, tells that the memory
/// is free. If the first promises nothing, there is no second. With `reports` (6.2) the notification tells whether the
/// kernel copied all the same. Sockets of other families than IP answer EOPNOTSUPP. It can't skip its completion.
#[inline]
pub fn zero_copy(send: Entry, reports: bool) -> Entry {
    let opcode = if send.opcode == opcode::SEND { opcode::SEND_ZC } else { opcode::SENDMSG_ZC };
    let report = if reports { ZERO_COPY_REPORT } else { 0 };
    Entry { opcode, ioprio: send.ioprio | report, ..send }
}
