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
        /// Run the entry on a kernel worker.
        const ASYNC = 1 << 4;
        /// The kernel takes a buffer from the group in `buf_group`.
        const BUFFER_SELECT = 1 << 5;
        /// Post no completion if the operation succeeds (5.17).
        const SKIP_SUCCESS = 1 << 6;
    }
}

/// A submission queue entry of 64 bytes, as plain data with an integer opcode.
///
/// The field names are the kernel's. A union has the name of its most common use. Entries are
/// created in one module, [`op`](crate::op).
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The operation; see [`opcode`](crate::opcode).
    pub opcode: u8,
    /// [`EntryFlags`], as bits.
    pub flags: u8,
    /// Flags of the operation (receive, send, accept), or a priority.
    pub ioprio: u16,
    /// The descriptor.
    pub fd: i32,
    /// An offset in a file, or a second address.
    pub off: u64,
    /// The address of the memory.
    pub addr: u64,
    /// The length in bytes, or a count.
    pub len: u32,
    /// Flags of the corresponding system call.
    pub op_flags: u32,
    /// A number that each completion of the entry returns.
    pub user_data: u64,
    /// The buffer group to select from, or the slot of a registered buffer.
    pub buf_group: u16,
    /// The id of registered credentials; zero for none.
    pub personality: u16,
    /// A direct-descriptor slot, or the total limit of a multishot receive in bytes (6.17).
    pub file_index: u32,
    /// A third address.
    pub addr3: u64,
    /// Must be zero.
    pub reserved: u64,
}

impl Entry {
    /// Creates an entry with `opcode` and `fd`; all other fields are zero.
    #[inline]
    pub fn new(opcode: u8, fd: Fd) -> Self {
        Self { opcode, fd: fd.raw(), ..Self::default() }
    }

    /// Sets `user_data`, which each completion of the entry contains.
    #[inline]
    pub fn user_data(self, user_data: u64) -> Self {
        Self { user_data, ..self }
    }

    /// Makes a receive or send wait for readiness before its first attempt (5.19).
    #[inline]
    pub fn poll_first(self) -> Self {
        Self { ioprio: self.ioprio | POLL_FIRST, ..self }
    }

    /// Adds flags to the entry.
    #[inline]
    pub fn with(self, flags: EntryFlags) -> Self {
        Self { flags: self.flags | flags.bits(), ..self }
    }
}

const _: () = assert!(size_of::<Entry>() == 64);

/// An entry that refers only to memory that is never freed, if to any, and to descriptors only as
/// [`Fd`]. Safe code may submit it.
///
/// Some of these operations fill buffers of a group, which is why
/// [`BufferRing::add`](crate::BufferRing::add) is unsafe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SafeEntry(Entry);

impl SafeEntry {
    /// Wraps an entry. Only the operations of this crate call this; they guarantee that the entry
    /// refers to no memory that can be freed.
    #[inline]
    pub(crate) fn new(entry: Entry) -> Self {
        Self(entry)
    }

    /// Sets `user_data`, which each completion of the entry contains.
    #[inline]
    pub fn user_data(self, user_data: u64) -> Self {
        Self(self.0.user_data(user_data))
    }

    /// Skips the completion if the operation succeeds (5.17).
    #[inline]
    pub fn skip_success(self) -> Self {
        Self(self.0.with(EntryFlags::SKIP_SUCCESS))
    }

    /// Makes a receive wait for readiness before its first attempt (5.19).
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
