//! The table of operations (`IORING_OP_*`), and the entries of file calls. A row has the
//! operation's number, the kernel that introduced it, the part of annulus that needs it, and the
//! memory that its entries refer to. The numbers are integers, because a newer kernel may report
//! numbers that an enum would not have.

use crate::entry::Entry;
use annulus_kernel::Fd;
use annulus_kernel::file::{FileCall, FileStat, OpenHow, PathAt};

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The name in the kernel's header, without the prefix.
    pub name: &'static str,
    /// The operation's number, as in `IORING_OP_*`.
    pub opcode: u8,
    /// The kernel version that introduced the operation, major and minor.
    pub since: (u16, u16),
    /// The part of annulus that needs the operation.
    pub need: Need,
    /// The memory that entries of the operation refer to.
    pub memory: MemoryUse,
}

/// The part of annulus that needs an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The annulus driver, which does not start without it.
    Always,
    /// The driver, which works differently without it.
    Optional,
    /// The driver, for zero-copy sends.
    ZeroCopy,
    /// The driver, for zero-copy receives.
    ZeroCopyReceive,
    /// File calls, which are system calls without it.
    File,
    /// None: the operation is only reported as a feature of the kernel.
    Never,
}

/// The submitter's memory that an entry refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryUse {
    /// None.
    None,
    /// Memory that the kernel reads when it consumes the entry.
    Submission,
    /// Memory that must stay valid until the terminal completion. An entry that selects buffers of
    /// a group refers to no memory.
    Completion,
}

macro_rules! operations {
    ($($name:ident = $opcode:literal, $since:expr, $need:ident, $memory:ident;)*) => {
        $(#[doc = concat!("`IORING_OP_", stringify!($name), "`")] pub const $name: u8 = $opcode;)*

        /// The operations that annulus knows, in the order of their numbers.
        pub const OPERATIONS: &[Operation] = &[$(Operation {
            name: stringify!($name),
            opcode: $opcode,
            since: $since,
            need: Need::$need,
            memory: MemoryUse::$memory,
        },)*];
    };
}

operations! {
    // name         number since   need       memory
    NOP            = 0,   (5, 1),   Always,    None;
    READV          = 1,   (5, 1),   File,      Completion;
    WRITEV         = 2,   (5, 1),   File,      Completion;
    FSYNC          = 3,   (5, 1),   File,      None;
    READ_FIXED     = 4,   (5, 1),   File,      Completion;
    WRITE_FIXED    = 5,   (5, 1),   File,      Completion;
    POLL_ADD       = 6,   (5, 1),   Always,    None;
    SENDMSG        = 9,   (5, 3),   Always,    Completion;
    RECVMSG        = 10,  (5, 3),   Optional,  Completion;
    TIMEOUT        = 11,  (5, 4),   Optional,  Submission;
    ACCEPT         = 13,  (5, 5),   Always,    None;
    ASYNC_CANCEL   = 14,  (5, 5),   Always,    None;
    CONNECT        = 16,  (5, 5),   Always,    Submission;
    FALLOCATE      = 17,  (5, 6),   File,      None;
    CLOSE          = 19,  (5, 6),   Optional,  None;
    STATX          = 21,  (5, 6),   File,      Completion;
    READ           = 22,  (5, 6),   File,      Completion;
    WRITE          = 23,  (5, 6),   File,      Completion;
    FADVISE        = 24,  (5, 6),   File,      None;
    SEND           = 26,  (5, 6),   Always,    Completion;
    RECV           = 27,  (5, 6),   Always,    Completion;
    OPENAT2        = 28,  (5, 6),   File,      Submission;
    RENAMEAT       = 35,  (5, 11),  File,      Submission;
    UNLINKAT       = 36,  (5, 11),  File,      Submission;
    MKDIRAT        = 37,  (5, 15),  File,      Submission;
    SYMLINKAT      = 38,  (5, 15),  File,      Submission;
    LINKAT         = 39,  (5, 15),  File,      Submission;
    MSG_RING       = 40,  (5, 18),  Never,     None;
    SEND_ZC        = 47,  (6, 0),   ZeroCopy,  Completion;
    SENDMSG_ZC     = 48,  (6, 1),   ZeroCopy,  Completion;
    READ_MULTISHOT = 49,  (6, 7),   Never,     None;
    FUTEX_WAIT     = 51,  (6, 7),   Never,     Completion;
    FTRUNCATE      = 55,  (6, 9),   File,      None;
    LISTEN         = 57,  (6, 11),  Never,     None;
    RECV_ZC        = 58,  (6, 15),  ZeroCopyReceive, None;
    PIPE           = 62,  (6, 16),  Never,     Completion;
}

/// Returns the row of an operation, or `None` if this crate does not know it.
pub const fn operation(opcode: u8) -> Option<&'static Operation> {
    let mut at = 0;
    while at < OPERATIONS.len() {
        if OPERATIONS[at].opcode == opcode {
            return Some(&OPERATIONS[at]);
        }
        at += 1;
    }
    None
}

const FSYNC_DATASYNC: u32 = 1;
pub(crate) const RWF_DSYNC: u32 = 2;
const AT_REMOVEDIR: u32 = 0x200;

/// See [`file_entry`](crate::op::file_entry).
pub(crate) fn file_entry(call: &FileCall) -> Option<Entry> {
    let base = |code, fd| Entry { fd, ..Entry::new(code, Fd::NONE) };
    Some(match *call {
        FileCall::Open { at, how } => Entry {
            addr: at.path as u64,
            len: size_of::<OpenHow>() as u32,
            off: how as u64,
            ..base(OPENAT2, at.dir)
        },
        FileCall::Read { fd, buffer, len, offset, .. } => {
            Entry { addr: buffer as u64, len, off: offset, ..base(READ, fd) }
        }
        FileCall::Write { fd, buffer, len, offset } => {
            Entry { addr: buffer as u64, len, off: offset, ..base(WRITE, fd) }
        }
        FileCall::WriteDurable { fd, buffer, len, offset } => {
            let op_flags = RWF_DSYNC;
            Entry { addr: buffer as u64, len, off: offset, op_flags, ..base(WRITE, fd) }
        }
        FileCall::ReadVector { fd, vectors, count, offset, .. } => {
            Entry { addr: vectors as u64, len: count, off: offset, ..base(READV, fd) }
        }
        FileCall::WriteVector { fd, vectors, count, offset } => {
            Entry { addr: vectors as u64, len: count, off: offset, ..base(WRITEV, fd) }
        }
        FileCall::Sync { fd, data_only } => {
            let op_flags = if data_only { FSYNC_DATASYNC } else { 0 };
            Entry { op_flags, ..base(FSYNC, fd) }
        }
        FileCall::SetLen { fd, len } => Entry { off: len, ..base(FTRUNCATE, fd) },
        FileCall::Allocate { fd, mode, offset, len } => {
            Entry { addr: len, len: mode, off: offset, ..base(FALLOCATE, fd) }
        }
        FileCall::Advise { fd, offset, len, advice } => {
            Entry { off: offset, len, op_flags: advice, ..base(FADVISE, fd) }
        }
        FileCall::Stat { at, flags, stat } => Entry {
            off: stat as u64,
            len: FileStat::WANTED_FIELDS,
            op_flags: flags,
            ..on_path(STATX, at)
        },
        FileCall::Remove { at, directory } => {
            let op_flags = if directory { AT_REMOVEDIR } else { 0 };
            Entry { op_flags, ..on_path(UNLINKAT, at) }
        }
        FileCall::Rename { from, to, flags } => on_paths(RENAMEAT, from, to, flags),
        FileCall::Link { from, to, flags } => on_paths(LINKAT, from, to, flags),
        FileCall::MakeDir { at, mode } => Entry { len: mode, ..on_path(MKDIRAT, at) },
        FileCall::Symlink { target, at } => {
            Entry { addr: target as u64, off: at.path as u64, ..base(SYMLINKAT, at.dir) }
        }
        FileCall::ReadLink { .. }
        | FileCall::ReadDir { .. }
        | FileCall::SetMode { .. }
        | FileCall::SetModeOf { .. }
        | FileCall::SetFlags { .. }
        | FileCall::Copy { .. }
        | FileCall::Send { .. }
        | FileCall::Seek { .. }
        | FileCall::Lock { .. } => return None,
    })
}

/// Returns the entry of an operation on one path.
fn on_path(code: u8, at: PathAt) -> Entry {
    Entry { fd: at.dir, addr: at.path as u64, ..Entry::new(code, Fd::NONE) }
}

/// Returns the entry of an operation on two paths.
fn on_paths(code: u8, from: PathAt, to: PathAt, op_flags: u32) -> Entry {
    Entry { off: to.path as u64, len: to.dir as u32, op_flags, ..on_path(code, from) }
}
