//! Reads and writes: file operations, which work on streams as well.

use crate::entry::Entry;
use crate::opcode;
use annulus_kernel::file::CURSOR;
use annulus_kernel::{Fd, IoVec};

/// `RWF_*` flags.
pub mod rwf {
    /// Do not block. On sockets from 6.4 on; before, it may be refused.
    pub const NOWAIT: u32 = 0x8;
}

/// Reads a file at an offset, or a stream if the offset is `u64::MAX`.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The file.
    pub fd: Fd,
    /// Where the bytes go.
    pub buffer: *mut u8,
    /// Most bytes to read.
    pub len: u32,
    /// The offset in the file.
    pub offset: u64,
}

impl Read {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::READ, self.fd);
        Entry { addr: self.buffer as u64, len: self.len, off: self.offset, ..base }
    }
}

/// Writes bytes to a stream, as many as there is space for: the count can be short.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// The stream.
    pub fd: Fd,
    /// The bytes.
    pub buffer: *const u8,
    /// The count.
    pub len: u32,
    /// [`rwf`] flags.
    pub flags: u32,
}

impl Write {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::WRITE, self.fd);
        let (addr, len) = (self.buffer as u64, self.len);
        Entry { addr, len, off: CURSOR, op_flags: self.flags, ..base }
    }
}

/// As [`Write`], from vectors. The vectors need outlive only the *submission* (`SUBMIT_STABLE`), their bytes the operation.
#[derive(Clone, Copy, Debug)]
pub struct Writev {
    /// The stream.
    pub fd: Fd,
    /// The first vector.
    pub vectors: *const IoVec,
    /// The count.
    pub count: u32,
    /// [`rwf`] flags.
    pub flags: u32,
}

impl Writev {
    /// The entry.
    #[inline]
    pub fn entry(self) -> Entry {
        let base = Entry::new(opcode::WRITEV, self.fd);
        let (addr, len) = (self.vectors as u64, self.count);
        Entry { addr, len, off: CURSOR, op_flags: self.flags, ..base }
    }
}
