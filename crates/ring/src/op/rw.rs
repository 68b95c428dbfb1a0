//! Reads and writes: the calls of files, which streams take as well.

use super::recv::selecting;
use crate::entry::{Entry, SafeEntry};
use crate::opcode;
use annulus_kernel::{Fd, IoVec};

/// Where a stream is read or written: it has no places.
const STREAM: u64 = u64::MAX;

/// `RWF_*` flags.
pub mod rwf {
    /// Do not wait. On sockets from 6.4; before, it may be refused.
    pub const NOWAIT: u32 = 0x8;
}

/// Reads a file at an offset, or a stream where the offset is `u64::MAX`.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The file.
    pub fd: Fd,
    /// Where to.
    pub buffer: *mut u8,
    /// At most this many bytes.
    pub len: u32,
    /// From where in the file.
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

/// Reads a stream once into a buffer that the kernel picks from a group.
#[derive(Clone, Copy, Debug)]
pub struct ReadSelect {
    /// The stream.
    pub fd: Fd,
    /// The buffer group.
    pub group: u16,
}

impl ReadSelect {
    /// The entry.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        SafeEntry::new(Entry { off: STREAM, ..selecting(opcode::READ, self.fd, self.group) })
    }
}

/// As [`ReadSelect`], by the call that takes vectors.
#[derive(Clone, Copy, Debug)]
pub struct ReadvSelect {
    /// The stream.
    pub fd: Fd,
    /// The buffer group.
    pub group: u16,
}

impl ReadvSelect {
    /// The entry.
    #[inline]
    pub fn entry(self) -> SafeEntry {
        let addr = std::ptr::from_ref(&ANY_LENGTH) as u64;
        let base = selecting(opcode::READV, self.fd, self.group);
        SafeEntry::new(Entry { addr, len: 1, off: STREAM, ..base })
    }
}

/// The vector that such a read wants: its length bounds what is read, and zero is no bound but the buffer's; its base counts for
/// nothing. Two words of zeroes, since a vector has an address, which no thread may share.
static ANY_LENGTH: [usize; 2] = [0; 2];

const _: () = assert!(size_of::<IoVec>() == size_of::<[usize; 2]>());

/// Writes bytes to a stream: as many as there is room for, so that the count can be short.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// The stream.
    pub fd: Fd,
    /// From where.
    pub buffer: *const u8,
    /// How many.
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
        Entry { addr, len, off: STREAM, op_flags: self.flags, ..base }
    }
}

/// As [`Write`], from vectors. They must outlive the *submission* only (`SUBMIT_STABLE`), the bytes they name the
/// operation.
#[derive(Clone, Copy, Debug)]
pub struct Writev {
    /// The stream.
    pub fd: Fd,
    /// The first vector.
    pub vectors: *const IoVec,
    /// How many.
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
        Entry { addr, len, off: STREAM, op_flags: self.flags, ..base }
    }
}
