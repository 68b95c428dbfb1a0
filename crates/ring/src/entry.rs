//! A submission queue entry (SQE), as the kernel reads it.

use annulus_kernel::Fd;
use bitflags::bitflags;

/// `IORING_RECVSEND_POLL_FIRST`
const POLL_FIRST: u16 = 1 << 0;

bitflags! {
    /// `IOSQE_*`: flags of an entry.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EntryFlags: u8 {
        /// Start the next entry only after this one has succeeded.
        const LINK = 1 << 2;
        /// Let a kernel worker run it.
        const ASYNC = 1 << 4;
        /// The kernel takes a buffer from the group in `buf_group`.
        const BUFFER_SELECT = 1 << 5;
        /// Post no completion when it succeeds (5.17).
        const SKIP_SUCCESS = 1 << 6;
    }
}

/// One submission queue entry: 64 bytes, plain data, integer opcode.
///
/// The field names are the kernel's; a union has the name of its commonest use. Entries are made in one place, [`op`](crate::op).
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Which operation: see [`opcode`](crate::opcode).
    pub opcode: u8,
    /// [`EntryFlags`], as bits.
    pub flags: u8,
    /// Flags of the operation (receive, send, accept), or a priority.
    pub ioprio: u16,
    /// Descriptor.
    pub fd: i32,
    /// Offset in a file, or a second address.
    pub off: u64,
    /// Address of memory.
    pub addr: u64,
    /// Length in bytes, or a count.
    pub len: u32,
    /// Flags of the system call that corresponds to the operation.
    pub op_flags: u32,
    /// Returned in the completion.
    pub user_data: u64,
    /// Buffer group to select from.
    pub buf_group: u16,
    /// Registered credentials.
    pub personality: u16,
    /// Direct-descriptor slot; for a multishot receive, the total limit in bytes (6.17).
    pub file_index: u32,
    /// A third address.
    pub addr3: u64,
    /// Must be zero.
    pub reserved: u64,
}

impl Entry {
    /// An entry of `opcode` on `fd`, everything else zero.
    #[inline]
    pub fn new(opcode: u8, fd: Fd) -> Self {
        Self { opcode, fd: fd.raw(), ..Self::default() }
    }

    /// The same entry with `user_data`, which its completions return.
    #[inline]
    pub fn user_data(self, user_data: u64) -> Self {
        Self { user_data, ..self }
    }

    /// The same receive or send, which waits for readiness before its first try (5.19).
    #[inline]
    pub fn poll_first(self) -> Self {
        Self { ioprio: self.ioprio | POLL_FIRST, ..self }
    }

    /// The same entry with more flags.
    #[inline]
    pub fn with(self, flags: EntryFlags) -> Self {
        Self { flags: self.flags | flags.bits(), ..self }
    }
}

const _: () = assert!(size_of::<Entry>() == 64);

/// An entry that names no memory of the submitter, and descriptors only as [`Fd`]: safe code may submit it.
///
/// Some of these operations fill buffers of a group. [`BufferRing::add`](crate::BufferRing::add) is unsafe for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SafeEntry(Entry);

impl SafeEntry {
    /// For the operations of this crate, which know that the entry names no memory.
    #[inline]
    pub(crate) fn new(entry: Entry) -> Self {
        Self(entry)
    }

    /// The same entry with `user_data`, which its completions return.
    #[inline]
    pub fn user_data(self, user_data: u64) -> Self {
        Self(self.0.user_data(user_data))
    }

    /// The same entry without a completion if it succeeds (5.17).
    #[inline]
    pub fn skip_success(self) -> Self {
        Self(self.0.with(EntryFlags::SKIP_SUCCESS))
    }

    /// The same receive, which waits for readiness before its first try (5.19).
    #[inline]
    pub fn poll_first(self) -> Self {
        Self(self.0.poll_first())
    }
}

impl From<SafeEntry> for Entry {
    #[inline]
    fn from(entry: SafeEntry) -> Self {
        entry.0
    }
}
