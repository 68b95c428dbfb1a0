//! Calls on files, read from where they lie.
#![allow(unsafe_code)]

use super::header::pieces;
use super::{Piece, Submitted};
use crate::fs::{Call, OpenId, Pieces, Place};
use annulus_kernel::IoVec;
use annulus_kernel::file::{FileCall, FileStat, OpenHow, PathAt};
use annulus_ring::op::rwf;
use annulus_ring::opcode;
use rustix::io::Errno;
use std::ffi::{CStr, c_char};
use std::os::fd::RawFd;

/// `AT_FDCWD`: the root here.
const CURRENT: RawFd = -100;
const AT_EMPTY_PATH: u32 = 0x1000;
const AT_REMOVEDIR: u32 = 0x200;
const FSYNC_DATASYNC: u32 = 1;
const FALLOCATE_KEEP_SIZE: u32 = 1;
const RENAME_NOREPLACE: u32 = 1;
/// Most bytes of a path, its zero included.
const MOST_PATH: usize = 4096;
const CURSOR: u64 = u64::MAX;

/// Looks descriptors up.
type Find<'a> = &'a dyn Fn(RawFd) -> Result<OpenId, Errno>;

/// A call whose caller vouches for what it points to.
pub(crate) struct FileRequest(FileCall);

impl FileRequest {
    /// # Safety
    /// The promise of [`FileCall::call`], until the call is done.
    pub(crate) unsafe fn new(call: &FileCall) -> Self {
        Self(*call)
    }

    /// The call with what it points to read, but for the bytes that it is about.
    pub(crate) fn read(&self, find: Find<'_>) -> Result<Call, Errno> {
        let at = |place: PathAt| place_of(place, find);
        Ok(match self.0 {
            FileCall::Open { at: place, how } => {
                // SAFETY: the promise covers how to open.
                let OpenHow { flags, mode, .. } = unsafe { how.read() };
                Call::Open { at: at(place)?, flags: flags as u32, mode: mode as u32 }
            }
            FileCall::Stat { at: place, flags, stat } => Call::Stat {
                at: at(place)?,
                itself: flags & AT_EMPTY_PATH != 0,
                into: piece(stat.cast(), size_of::<FileStat>()),
            },
            FileCall::Remove { at: place, directory } => Call::Remove { at: at(place)?, directory },
            FileCall::Rename { from, to, flags } if flags & !RENAME_NOREPLACE == 0 => {
                Call::Rename { from: at(from)?, to: at(to)?, replace: flags == 0 }
            }
            FileCall::Link { from, to, .. } => Call::Link { from: at(from)?, to: at(to)? },
            FileCall::MakeDir { at: place, mode } => Call::MakeDir { at: at(place)?, mode },
            FileCall::SetMode { at: place, mode } => Call::SetMode { at: at(place)?, mode },
            FileCall::SetModeOf { fd, mode } => Call::SetModeOf { file: find(fd)?, mode },
            _ => return self.read_file(find),
        })
    }

    /// Of the calls on an open file.
    fn read_file(&self, find: Find<'_>) -> Result<Call, Errno> {
        let offset = |at: u64| (at != CURSOR).then_some(at);
        Ok(match self.0 {
            FileCall::Read { fd, buffer, len, offset: at, nowait } => {
                let into = Box::new([piece(buffer, len as usize)]);
                Call::Read { file: find(fd)?, into, offset: offset(at), nowait }
            }
            FileCall::Write { fd, buffer, len, offset: at } => {
                let from = Box::new([piece(buffer.cast_mut(), len as usize)]);
                Call::Write { file: find(fd)?, from, offset: offset(at) }
            }
            FileCall::ReadVector { fd, vectors, count, offset: at, nowait } => {
                let into = vectors_of(vectors, count);
                Call::Read { file: find(fd)?, into, offset: offset(at), nowait }
            }
            FileCall::WriteVector { fd, vectors, count, offset: at } => {
                let from = vectors_of(vectors, count);
                Call::Write { file: find(fd)?, from, offset: offset(at) }
            }
            FileCall::Sync { fd, .. } => Call::Sync { file: find(fd)? },
            FileCall::SetLen { fd, len } => Call::SetLen { file: find(fd)?, len },
            FileCall::Allocate { fd, mode, offset, len } if mode <= FALLOCATE_KEEP_SIZE => {
                Call::Allocate { file: find(fd)?, keep_len: mode != 0, offset, len }
            }
            // There are no pipes: status flags that may change mean nothing here.
            FileCall::Advise { fd, .. } | FileCall::SetFlags { fd, .. } => {
                find(fd)?;
                Call::Nothing
            }
            FileCall::ReadDir { fd, buffer, len } => {
                Call::ReadDir { file: find(fd)?, into: piece(buffer, len as usize) }
            }
            FileCall::Copy { from, from_offset, to, to_offset, len } => Call::Copy {
                from: find(from)?,
                from_offset: offset(from_offset),
                to: find(to)?,
                to_offset: offset(to_offset),
                len,
            },
            _ => return Err(Errno::OPNOTSUPP),
        })
    }
}

impl Submitted {
    /// The call on files that an entry stands for, if it is one.
    pub(crate) fn file_call(&self, find: Find<'_>) -> Result<Call, Errno> {
        let mut how = OpenHow::default();
        let call = self.as_call(&mut how).ok_or(Errno::INVAL)?;
        // SAFETY: the entry's promise covers what it points to: names until it is consumed, which is now; the bytes until
        // the terminal completion.
        unsafe { FileRequest::new(&call) }.read(find)
    }

    fn as_call(&self, how: &mut OpenHow) -> Option<FileCall> {
        let (fd, len, offset, flags) = (self.fd, self.len, self.off, self.op_flags);
        let memory = pointer::<u8>(self.addr);
        let nowait = flags & rwf::NOWAIT != 0;
        Some(match self.opcode {
            opcode::READ | opcode::READ_FIXED => {
                FileCall::Read { fd, buffer: memory, len, offset, nowait }
            }
            opcode::WRITE | opcode::WRITE_FIXED => {
                FileCall::Write { fd, buffer: memory, len, offset }
            }
            opcode::READV => {
                FileCall::ReadVector { fd, vectors: pointer(self.addr), count: len, offset, nowait }
            }
            opcode::WRITEV => {
                FileCall::WriteVector { fd, vectors: pointer(self.addr), count: len, offset }
            }
            opcode::FSYNC => FileCall::Sync { fd, data_only: flags & FSYNC_DATASYNC != 0 },
            opcode::FTRUNCATE => FileCall::SetLen { fd, len: offset },
            opcode::FALLOCATE => FileCall::Allocate { fd, mode: len, offset, len: self.addr },
            opcode::FADVISE => FileCall::Advise { fd, offset, len, advice: flags },
            _ => return self.as_path_call(how),
        })
    }

    fn as_path_call(&self, how: &mut OpenHow) -> Option<FileCall> {
        let at = PathAt { dir: self.fd, path: pointer(self.addr) };
        let to = PathAt { dir: self.len as RawFd, path: pointer(self.off) };
        let flags = self.op_flags;
        Some(match self.opcode {
            opcode::OPENAT => {
                *how = OpenHow { flags: flags.into(), mode: self.len.into(), resolve: 0 };
                FileCall::Open { at, how }
            }
            opcode::OPENAT2 => FileCall::Open { at, how: pointer(self.off) },
            opcode::STATX => FileCall::Stat { at, flags, stat: pointer(self.off) },
            opcode::UNLINKAT => FileCall::Remove { at, directory: flags & AT_REMOVEDIR != 0 },
            opcode::RENAMEAT => FileCall::Rename { from: at, to, flags },
            opcode::LINKAT => FileCall::Link { from: at, to, flags },
            opcode::MKDIRAT => FileCall::MakeDir { at, mode: self.len },
            _ => return None,
        })
    }
}

fn pointer<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn piece(start: *mut u8, len: usize) -> Piece {
    // SAFETY: `FileRequest` and `Submitted` exist under the promise that this memory is lent until the call is done.
    unsafe { Piece::new(start.expose_provenance() as u64, len) }
}

fn vectors_of(first: *const IoVec, count: u32) -> Pieces {
    // SAFETY: as above, for the vectors and the memory that they name.
    unsafe { pieces(first, count as usize) }
}

/// A path, read, and where it starts.
fn place_of(at: PathAt, find: Find<'_>) -> Result<Place, Errno> {
    if at.path.is_null() {
        return Err(Errno::FAULT);
    }
    let path = path_bytes(at.path);
    if path.len() >= MOST_PATH {
        return Err(Errno::NAMETOOLONG);
    }
    let absolute = path.starts_with(b"/") || at.dir == CURRENT;
    Ok(Place { dir: if absolute { None } else { Some(find(at.dir)?) }, path })
}

fn path_bytes(path: *const c_char) -> Vec<u8> {
    // SAFETY: as above: the path is there, with its zero.
    unsafe { CStr::from_ptr(path) }.to_bytes().to_vec()
}
