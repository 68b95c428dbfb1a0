//! Reads and writes, which work on files and on streams.

use crate::entry::Entry;
use crate::opcode;
use annulus_kernel::file::CURSOR_OFFSET;
use annulus_kernel::{Fd, IoVec};

/// `RWF_*` flags.
pub mod rwf {
    /// Do not block. Sockets support the flag since 6.4; older kernels may refuse it.
    pub const NOWAIT: u32 = 0x8;
    /// Complete once the device has the bytes.
    pub const DSYNC: u32 = crate::opcode::RWF_DSYNC;
}

/// Reads a file at an offset, or a stream if the offset is `u64::MAX`.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The file or stream to read.
    pub fd: Fd,
    /// The memory that the bytes are written to.
    pub buffer: *mut u8,
    /// The maximum number of bytes to read.
    pub len: u32,
    /// The offset in the file, or `u64::MAX` for a stream.
    pub offset: u64,
}

impl Read {
    /// Returns the entry, which is unsafe to submit because it refers to memory.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::READ, self.fd);
        Entry { addr: self.buffer as u64, len: self.len, off: self.offset, ..base }
    }
}

/// Writes as many bytes to a stream as there is space for, which may be less than `len`.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// The stream to write to.
    pub fd: Fd,
    /// The bytes to write.
    pub buffer: *const u8,
    /// Number of bytes at `buffer`.
    pub len: u32,
    /// [`rwf`] flags.
    pub flags: u32,
}

impl Write {
    /// Returns the entry, which is unsafe to submit because it refers to memory.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::WRITE, self.fd);
        let (addr, len) = (self.buffer as u64, self.len);
        Entry { addr, len, off: CURSOR_OFFSET, op_flags: self.flags, ..base }
    }
}

/// Like [`Write`], but from vectors. The vectors need to stay valid only until *submission*
/// (`SUBMIT_STABLE`), their bytes until the end of the operation.
#[derive(Clone, Copy, Debug)]
pub struct Writev {
    /// The stream to write to.
    pub fd: Fd,
    /// The address of the first vector.
    pub vectors: *const IoVec,
    /// Number of vectors.
    pub count: u32,
    /// [`rwf`] flags.
    pub flags: u32,
}

impl Writev {
    /// Returns the entry, which is unsafe to submit because it refers to memory.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::WRITEV, self.fd);
        let (addr, len) = (self.vectors as u64, self.count);
        Entry { addr, len, off: CURSOR_OFFSET, op_flags: self.flags, ..base }
    }
}
