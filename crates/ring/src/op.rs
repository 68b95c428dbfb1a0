//! Every operation the project uses, as plain data, encoded in one place.
//!
//! `Once` and `Multi` operations are different types. A type that holds an address makes its submission unsafe: the
//! memory must stay valid and untouched until the operation's terminal completion (see [`Ring::push`](crate::Ring::push)).

pub mod file;
mod message;
mod rw;

use crate::entry::{Entry, EntryFlags};
use crate::opcode;
use annulus_kernel::Fd;

pub use message::{RecvMsg, RecvMsgMulti};
pub use rw::{Read, ReadSelect, ReadvSelect, Write, Writev, rwf};

const POLL_FIRST: u16 = 1 << 0;
const RECV_MULTISHOT: u16 = 1 << 1;
/// `IORING_SEND_ZC_REPORT_USAGE`
const ZERO_COPY_REPORT: u16 = 1 << 3;
const ACCEPT_MULTISHOT: u16 = 1 << 0;
const POLL_ADD_MULTI: u32 = 1 << 0;
const SOCK_CLOEXEC: u32 = 0o2000000;

/// `POLL*` bits for [`PollMulti`].
pub mod poll {
    /// There is something to read.
    pub const IN: u32 = 0x1;
    /// There is room to write.
    pub const OUT: u32 = 0x4;
}

/// Nothing: costs a round trip through the ring.
#[derive(Clone, Copy, Debug)]
pub struct Nop;

impl Nop {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        Entry::new(opcode::NOP, Fd::NONE)
    }
}

/// Accepts one connection; the result is its descriptor. The peer's address is not asked for.
#[derive(Clone, Copy, Debug)]
pub struct Accept {
    /// The listening socket.
    pub fd: Fd,
}

impl Accept {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        Entry { op_flags: SOCK_CLOEXEC, ..Entry::new(opcode::ACCEPT, self.fd) }
    }
}

/// Accepts connections until it ends (5.19): a completion each.
#[derive(Clone, Copy, Debug)]
pub struct AcceptMulti {
    /// The listening socket.
    pub fd: Fd,
}

impl AcceptMulti {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        Entry { ioprio: ACCEPT_MULTISHOT, ..Accept { fd: self.fd }.entry() }
    }
}

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
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::RECV, self.fd).with(EntryFlags::BUFFER_SELECT);
        Entry { ioprio: RECV_MULTISHOT, buf_group: self.group, file_index: self.limit, ..base }
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
    pub fn entry(self) -> Entry {
        Entry {
            buf_group: self.group,
            ..Entry::new(opcode::RECV, self.fd).with(EntryFlags::BUFFER_SELECT)
        }
    }
}

/// Receives a message once into a buffer that the kernel picks from a group. Who sent it is not asked for.
#[derive(Clone, Copy, Debug)]
pub struct RecvMsgSelect {
    /// The socket.
    pub fd: Fd,
    /// Address of a `struct msghdr` without vectors, name and control, which the kernel writes to as the operation ends.
    pub header: *mut u8,
    /// The buffer group.
    pub group: u16,
}

impl RecvMsgSelect {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::RECVMSG, self.fd).with(EntryFlags::BUFFER_SELECT);
        Entry { addr: self.header as u64, len: 1, buf_group: self.group, ..base }
    }
}

/// Has a receive or a send wait until its socket is ready, before its first try (5.19).
#[inline]
pub fn poll_first(entry: Entry) -> Entry {
    Entry { ioprio: entry.ioprio | POLL_FIRST, ..entry }
}

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

/// Sends what a `struct msghdr` describes: its vectors' bytes, to its name where it has one, with its control messages.
/// Header, vectors and name must outlive the *submission* only (`SUBMIT_STABLE`); the bytes and the control messages,
/// which are read with each try, the operation. A datagram goes whole or not at all; an empty one goes too.
#[derive(Clone, Copy, Debug)]
pub struct SendMsg {
    /// The socket.
    pub fd: Fd,
    /// Address of a `struct msghdr`.
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
/// is free. Where the first promises nothing, there is no second. With `reports` (6.2) the notification tells whether the
/// kernel copied all the same. Sockets of other families than IP answer EOPNOTSUPP. It can't skip its completion.
#[inline]
pub fn zero_copy(send: Entry, reports: bool) -> Entry {
    let opcode = if send.opcode == opcode::SEND { opcode::SEND_ZC } else { opcode::SENDMSG_ZC };
    let report = if reports { ZERO_COPY_REPORT } else { 0 };
    Entry { opcode, ioprio: send.ioprio | report, ..send }
}

/// Connects a socket.
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// The socket.
    pub fd: Fd,
    /// Address of a socket address.
    pub address: *const u8,
    /// Its length.
    pub len: u32,
}

impl Connect {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::CONNECT, self.fd);
        Entry { addr: self.address as u64, off: u64::from(self.len), ..base }
    }
}

/// Readiness of a descriptor, told once.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    /// The descriptor.
    pub fd: Fd,
    /// [`poll`] bits.
    pub events: u32,
}

impl Poll {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        // The kernel reads the events as two little-endian half words, whatever the machine's order.
        let events =
            if cfg!(target_endian = "big") { self.events.rotate_left(16) } else { self.events };
        Entry { op_flags: events, ..Entry::new(opcode::POLL_ADD, self.fd) }
    }
}

/// Readiness of a descriptor, told until it ends, edge by edge (5.13).
#[derive(Clone, Copy, Debug)]
pub struct PollMulti {
    /// The descriptor.
    pub fd: Fd,
    /// [`poll`] bits.
    pub events: u32,
}

impl PollMulti {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        Entry { len: POLL_ADD_MULTI, ..Poll { fd: self.fd, events: self.events }.entry() }
    }
}

/// `struct __kernel_timespec`: a length of time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TimeSpec {
    /// Whole seconds.
    pub seconds: i64,
    /// The rest, in nanoseconds.
    pub nanoseconds: i64,
}

/// Completes with ETIME after a length of time. The time is read as the entry is consumed.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    /// How long.
    pub after: *const TimeSpec,
}

impl Timeout {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::TIMEOUT, Fd::NONE);
        Entry { addr: self.after as u64, len: 1, ..base }
    }
}

/// Cancels the operation whose `user_data` is given. Answers 0, ENOENT (no such) or EALREADY (too late); the target
/// still has its own terminal completion.
#[derive(Clone, Copy, Debug)]
pub struct Cancel {
    /// The target's `user_data`.
    pub user_data: u64,
}

impl Cancel {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        Entry { addr: self.user_data, ..Entry::new(opcode::ASYNC_CANCEL, Fd::NONE) }
    }
}

/// Closes a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Close {
    /// The descriptor.
    pub fd: Fd,
}

impl Close {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        Entry::new(opcode::CLOSE, self.fd)
    }
}
