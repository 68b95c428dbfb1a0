//! The operations that annulus uses, as plain data, and their encoding.
//!
//! Single-shot and multishot operations are different types. An operation that refers to memory
//! that can be freed becomes an [`Entry`], which is unsafe to submit: the memory must stay valid
//! and unused until the terminal completion (see
//! [`Ring::push_unchecked`](crate::Ring::push_unchecked)). Any other operation becomes a
//! [`SafeEntry`], which safe code may submit.

mod recv;
mod rw;
mod send;

use crate::entry::{Entry, SafeEntry};
use crate::opcode;
use annulus_kernel::{Fd, file::FileCall};

pub use crate::buffer_table::with_registered_buffer;
pub use recv::{Recv, RecvMsg, RecvMsgMulti, RecvMulti, RecvSelect, RecvZeroCopy};
pub use rw::{Read, Write, Writev, rwf};
pub use send::{Send, SendMsg, SendTo, zero_copy};

/// Returns the entry of a file call, or `None` if io_uring has no such operation.
pub fn file_entry(call: &FileCall) -> Option<Entry> {
    opcode::file_entry(call)
}

const ACCEPT_MULTISHOT: u16 = 1 << 0;
const POLL_ADD_MULTI: u32 = 1 << 0;
const SOCK_NONBLOCK: u32 = 0o4000;
const SOCK_CLOEXEC: u32 = 0o2000000;

/// `POLL*` bits for [`Poll`] and [`PollMulti`].
pub mod poll {
    /// Readable.
    pub const IN: u32 = 0x1;
    /// Writable.
    pub const OUT: u32 = 0x4;
}

/// Does nothing, but costs a round trip through the ring.
#[derive(Clone, Copy, Debug)]
pub struct Nop;

impl Nop {
    /// Returns the entry, which safe code may submit.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        SafeEntry::new(Entry::new(opcode::NOP, Fd::NONE))
    }
}

/// Accepts one connection. The result is its descriptor, which is non-blocking and close-on-exec.
/// The peer's address is not returned.
#[derive(Clone, Copy, Debug)]
pub struct Accept {
    /// The listening socket.
    pub fd: Fd,
}

impl Accept {
    /// Returns the entry, which safe code may submit.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        let base = Entry::new(opcode::ACCEPT, self.fd);
        SafeEntry::new(Entry { op_flags: SOCK_NONBLOCK | SOCK_CLOEXEC, ..base })
    }
}

/// Accepts connections until the operation ends, with one completion per connection (5.19).
#[derive(Clone, Copy, Debug)]
pub struct AcceptMulti {
    /// The listening socket.
    pub fd: Fd,
}

impl AcceptMulti {
    /// Returns the entry, which safe code may submit.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        let base = Entry::from(Accept { fd: self.fd }.entry());
        SafeEntry::new(Entry { ioprio: ACCEPT_MULTISHOT, ..base })
    }
}

/// Connects a socket.
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// The socket to connect.
    pub fd: Fd,
    /// The peer's address, in the kernel's layout.
    pub address: *const u8,
    /// Number of bytes at `address`.
    pub len: u32,
}

impl Connect {
    /// Returns the entry, which is unsafe to submit because it refers to memory.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::CONNECT, self.fd);
        Entry { addr: self.address as u64, off: u64::from(self.len), ..base }
    }
}

/// Waits until a descriptor is ready.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    /// The descriptor to poll.
    pub fd: Fd,
    /// The events to wait for: [`poll`] bits.
    pub events: u32,
}

impl Poll {
    /// Returns the entry, which safe code may submit.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        // The kernel reads the events as two 16-bit words in little-endian order on every machine.
        let events =
            if cfg!(target_endian = "big") { self.events.rotate_left(16) } else { self.events };
        SafeEntry::new(Entry { op_flags: events, ..Entry::new(opcode::POLL_ADD, self.fd) })
    }
}

/// Reports each readiness edge of a descriptor with a completion, until the operation ends (5.13).
#[derive(Clone, Copy, Debug)]
pub struct PollMulti {
    /// The descriptor to poll.
    pub fd: Fd,
    /// The events to report: [`poll`] bits.
    pub events: u32,
}

impl PollMulti {
    /// Returns the entry, which safe code may submit.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        let base = Entry::from(Poll { fd: self.fd, events: self.events }.entry());
        SafeEntry::new(Entry { len: POLL_ADD_MULTI, ..base })
    }
}

/// `struct __kernel_timespec`: a duration.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TimeSpec {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds, in addition to the seconds.
    pub nanoseconds: i64,
}

/// Completes with ETIME after a duration, which the kernel reads when it consumes the entry.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    /// The duration until the completion.
    pub after: &'static TimeSpec,
}

impl Timeout {
    /// Returns the entry, which safe code may submit.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        let base = Entry::new(opcode::TIMEOUT, Fd::NONE);
        SafeEntry::new(Entry { addr: std::ptr::from_ref(self.after) as u64, len: 1, ..base })
    }
}

/// Cancels the operation with this `user_data`. The result is 0, ENOENT (no such operation) or
/// EALREADY (too late). The target still posts its terminal completion.
#[derive(Clone, Copy, Debug)]
pub struct Cancel {
    /// The target's `user_data`.
    pub user_data: u64,
}

impl Cancel {
    /// Returns the entry, which safe code may submit.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        let base = Entry::new(opcode::ASYNC_CANCEL, Fd::NONE);
        SafeEntry::new(Entry { addr: self.user_data, ..base })
    }
}

/// Closes a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Close {
    /// The descriptor to close.
    pub fd: Fd,
}

impl Close {
    /// Returns the entry, which safe code may submit.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        SafeEntry::new(Entry::new(opcode::CLOSE, self.fd))
    }
}
