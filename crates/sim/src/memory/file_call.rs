//! File calls, with the arguments that they point to.
#![allow(unsafe_code)]

use super::Submitted;
use super::header::pieces;
use crate::fs::{Disk, OpenId, Pieces, StartedPath};
use crate::piece::Piece;
use crate::timeline::Nanos;
use annulus_kernel::IoVec;
use annulus_kernel::file::{CURSOR, FileCall, FileStat, OpenHow, PathAt};
use annulus_ring::op::rwf;
use annulus_ring::opcode;
use rustix::io::Errno;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::os::fd::RawFd;

/// The operations of a ring that are file calls: those that `as_call` reads. Sockets have the first four too.
pub(crate) const FILE_CALLS: [u8; 15] = [
    opcode::READ,
    opcode::WRITE,
    opcode::READV,
    opcode::WRITEV,
    opcode::FSYNC,
    opcode::FTRUNCATE,
    opcode::FALLOCATE,
    opcode::FADVISE,
    opcode::OPENAT,
    opcode::OPENAT2,
    opcode::STATX,
    opcode::UNLINKAT,
    opcode::RENAMEAT,
    opcode::LINKAT,
    opcode::MKDIRAT,
];

/// `AT_FDCWD`: the root here.
const CURRENT: RawFd = -100;
const AT_EMPTY_PATH: u32 = 0x1000;
const AT_REMOVEDIR: u32 = 0x200;
const FSYNC_DATASYNC: u32 = 1;
const FALLOCATE_KEEP_SIZE: u32 = 1;
const RENAME_NOREPLACE: u32 = 1;
/// Most bytes of a path, including its zero.
const MOST_PATH: usize = 4096;

/// Looks descriptors up.
type Find<'a> = &'a dyn Fn(RawFd) -> Result<OpenId, Errno>;

/// A call under the contract of [`FileCall::call`].
pub(crate) struct FileRequest(FileCall);

impl FileRequest {
    /// # Safety
    /// The contract of [`FileCall::call`], until the call is done.
    pub(crate) unsafe fn new(call: &FileCall) -> Self {
        Self(*call)
    }

    /// Reads what the call points to, except the bytes that it transfers: what it does to a disk. A call that is not simulated is refused.
    pub(crate) fn read(&self, disk: &Disk, find: Find<'_>) -> Result<Call, Errno> {
        let offset = |at: u64| (at != CURSOR).then_some(at);
        Ok(match self.0 {
            FileCall::Read { fd, buffer, len, offset: at, nowait } => {
                let into = Box::new([piece(buffer, len as usize)]);
                Call::read(disk, find(fd)?, into, offset(at), nowait)
            }
            FileCall::ReadVector { fd, vectors, count, offset: at, nowait } => {
                Call::read(disk, find(fd)?, vectors_of(vectors, count), offset(at), nowait)
            }
            FileCall::Write { fd, buffer, len, offset: at } => {
                let from = Box::new([piece(buffer.cast_mut(), len as usize)]);
                Call::write(disk, find(fd)?, from, offset(at))
            }
            FileCall::WriteVector { fd, vectors, count, offset: at } => {
                Call::write(disk, find(fd)?, vectors_of(vectors, count), offset(at))
            }
            FileCall::Sync { fd, .. } => {
                let file = find(fd)?;
                Call { takes: disk.sync_time(file), ..Call::new(move |disk| disk.sync(file)) }
            }
            FileCall::SetLen { fd, len } => {
                let file = find(fd)?;
                Call::new(move |disk| disk.set_len(file, len))
            }
            FileCall::Allocate { fd, mode, offset, len } if mode <= FALLOCATE_KEEP_SIZE => {
                let file = find(fd)?;
                Call::new(move |disk| disk.allocate(file, mode != 0, offset, len))
            }
            // There are no pipes: status flags do not matter here.
            FileCall::Advise { fd, .. } | FileCall::SetFlags { fd, .. } => {
                find(fd)?;
                Call::new(|_| Ok(0))
            }
            FileCall::ReadDir { fd, buffer, len } => {
                let (file, into) = (find(fd)?, piece(buffer, len as usize));
                Call::new(move |disk| disk.read_dir(file, into))
            }
            FileCall::Seek { fd, offset, origin, position } => {
                let (file, into) = (find(fd)?, piece(position.cast(), size_of::<u64>()));
                Call::new(move |disk| disk.seek(file, offset, origin, into))
            }
            FileCall::Copy { from, from_offset, to, to_offset, len } => {
                let from = (find(from)?, offset(from_offset));
                let to = (find(to)?, offset(to_offset));
                Call::new(move |disk| disk.copy(from, to, len as usize))
            }
            FileCall::Open { .. }
            | FileCall::Stat { .. }
            | FileCall::Remove { .. }
            | FileCall::Rename { .. }
            | FileCall::Link { .. }
            | FileCall::MakeDir { .. }
            | FileCall::SetMode { .. }
            | FileCall::SetModeOf { .. } => return self.read_names(find),
            // There are no links of paths, no flags besides those above, and no sockets to send files to.
            FileCall::Symlink { .. }
            | FileCall::ReadLink { .. }
            | FileCall::Lock { .. }
            | FileCall::Send { .. }
            | FileCall::Allocate { .. } => return Err(Errno::OPNOTSUPP),
        })
    }

    /// The calls on names, and on what they lead to.
    fn read_names(&self, find: Find<'_>) -> Result<Call, Errno> {
        let path = |at: PathAt| read_path(at, find);
        Ok(match self.0 {
            FileCall::Open { at, how } => {
                // SAFETY: `how` is valid until the call is done, as `new` demands.
                let OpenHow { flags, mode, resolve } = unsafe { how.read() };
                let at = path(at)?;
                if resolve & OpenHow::BENEATH != 0 && leads_out(&at.path) {
                    return Err(Errno::XDEV);
                }
                let open = move |disk: &mut Disk| disk.open(&at, flags as u32, mode as u32);
                Call { opens: true, ..Call::new(open) }
            }
            FileCall::Stat { at, flags, stat } => {
                let (at, into) = (path(at)?, piece(stat.cast(), size_of::<FileStat>()));
                Call::new(move |disk| disk.stat(&at, flags & AT_EMPTY_PATH != 0, into))
            }
            FileCall::Remove { at, directory } => {
                let at = path(at)?;
                Call::new(move |disk| disk.remove(&at, directory))
            }
            FileCall::Rename { from, to, flags } if flags & !RENAME_NOREPLACE == 0 => {
                let (from, to) = (path(from)?, path(to)?);
                Call::new(move |disk| disk.rename(&from, &to, flags == 0))
            }
            FileCall::Link { from, to, .. } => {
                let (from, to) = (path(from)?, path(to)?);
                Call::new(move |disk| disk.link(&from, &to))
            }
            FileCall::MakeDir { at, mode } => {
                let at = path(at)?;
                Call::new(move |disk| disk.make_dir(&at, mode))
            }
            FileCall::SetMode { at, mode } => {
                let at = path(at)?;
                Call::new(move |disk| disk.set_mode(&at, mode))
            }
            FileCall::SetModeOf { fd, mode } => {
                let file = find(fd)?;
                Call::new(move |disk| disk.set_mode_of(disk.ino(file), mode))
            }
            _ => return Err(Errno::OPNOTSUPP),
        })
    }
}

/// The answer of a call: a count, zero, or the number of a file that it has opened.
type Done = Result<usize, Errno>;

type Action = dyn FnOnce(&mut Disk, &Pieces) -> Done;

/// A file call on a disk, with its arguments copied.
pub(crate) struct Call {
    /// How long the device needs for it; zero if it waits for none, or fails at once.
    pub(crate) takes: Nanos,
    /// The memory of the bytes that it transfers.
    pub(crate) memory: Pieces,
    /// It fills that memory.
    pub(crate) fills: bool,
    /// It opens a file.
    pub(crate) opens: bool,
    action: Box<Action>,
}

impl Call {
    /// A call that waits for no device: it changes names and cached pages.
    fn new(action: impl FnOnce(&mut Disk) -> Done + 'static) -> Self {
        Self::transfer(Box::default(), move |disk, _| action(disk))
    }

    fn transfer(memory: Pieces, action: impl FnOnce(&mut Disk, &Pieces) -> Done + 'static) -> Self {
        Self { takes: 0, memory, fills: false, opens: false, action: Box::new(action) }
    }

    fn read(disk: &Disk, file: OpenId, into: Pieces, offset: Option<u64>, nowait: bool) -> Self {
        let takes = if nowait { 0 } else { disk.read_time(file, &into, offset) };
        let read = move |disk: &mut Disk, into: &Pieces| disk.read(file, into, offset, nowait);
        Self { takes, fills: true, ..Self::transfer(into, read) }
    }

    fn write(disk: &Disk, file: OpenId, from: Pieces, offset: Option<u64>) -> Self {
        let write = move |disk: &mut Disk, from: &Pieces| disk.write(file, from, offset);
        Self { takes: disk.write_time(file), ..Self::transfer(from, write) }
    }

    /// Makes the call.
    pub(crate) fn perform(self, disk: &mut Disk) -> Done {
        (self.action)(disk, &self.memory)
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("takes", &self.takes).finish_non_exhaustive()
    }
}

impl Submitted {
    /// The file call of an entry, if it is one.
    pub(crate) fn file_call(&self, disk: &Disk, find: Find<'_>) -> Result<Call, Errno> {
        let mut how = OpenHow::default();
        let call = self.as_call(&mut how).ok_or(Errno::INVAL)?;
        // SAFETY: the entry was published under the contract of `Kernel::enter`: names are valid until it is consumed,
        // which is now, and bytes until the terminal completion.
        unsafe { FileRequest::new(&call) }.read(disk, find)
    }

    fn as_call(&self, how: &mut OpenHow) -> Option<FileCall> {
        let (fd, len, offset, flags) = (self.fd, self.len, self.off, self.op_flags);
        let memory = pointer::<u8>(self.addr);
        let nowait = flags & rwf::NOWAIT != 0;
        Some(match self.opcode {
            opcode::READ => FileCall::Read { fd, buffer: memory, len, offset, nowait },
            opcode::WRITE => FileCall::Write { fd, buffer: memory, len, offset },
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

/// Whether a path leads out of the directory that it starts from. There are no symbolic links, so its text says it.
fn leads_out(path: &[u8]) -> bool {
    let mut depth = 0_u32;
    let leaves = |step: &[u8]| match step {
        b"" | b"." => false,
        b".." => {
            let top = depth == 0;
            depth = depth.saturating_sub(1);
            top
        }
        _ => {
            depth += 1;
            false
        }
    };
    path.starts_with(b"/") || path.split(|byte| *byte == b'/').any(leaves)
}

fn pointer<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn piece(start: *mut u8, len: usize) -> Piece {
    // SAFETY: the memory belongs to the call until it is done: the calls come from a `FileRequest` or a `Submitted`, which
    // demand that.
    unsafe { Piece::new(start.expose_provenance() as u64, len) }
}

fn vectors_of(first: *const IoVec, count: u32) -> Pieces {
    // SAFETY: vectors and memory belong to the call until it is done: the calls come from a `FileRequest` or a `Submitted`.
    unsafe { pieces(first, count as usize) }
}

/// The path, and the file where it starts.
fn read_path(at: PathAt, find: Find<'_>) -> Result<StartedPath, Errno> {
    if at.path.is_null() {
        return Err(Errno::FAULT);
    }
    let path = path_bytes(at.path);
    if path.len() >= MOST_PATH {
        return Err(Errno::NAMETOOLONG);
    }
    if let Some(fd) = descriptor_of(&path) {
        return Ok(StartedPath { dir: Some(find(fd)?), path: Vec::new() });
    }
    let absolute = path.starts_with(b"/") || at.dir == CURRENT;
    Ok(StartedPath { dir: if absolute { None } else { Some(find(at.dir)?) }, path })
}

/// The descriptor that a path of `/proc` names.
fn descriptor_of(path: &[u8]) -> Option<RawFd> {
    let number = path.strip_prefix(b"/proc/self/fd/")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn path_bytes(path: *const c_char) -> Vec<u8> {
    // SAFETY: the path is valid and ends with a zero: the calls come from a `FileRequest` or a `Submitted`.
    unsafe { CStr::from_ptr(path) }.to_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use annulus_ring::op::file;
    use std::ptr::null_mut;

    /// One of each call that has an entry, with arguments that differ.
    fn calls(how: &OpenHow, stat: &mut FileStat) -> [FileCall; 15] {
        let (fd, other, len, offset) = (3, 4, 5, 6);
        let at = PathAt { dir: fd, path: c"from".as_ptr() };
        let to = PathAt { dir: other, path: c"to".as_ptr() };
        let (buffer, vectors) = (null_mut(), std::ptr::null());
        [
            FileCall::Open { at, how },
            FileCall::Read { fd, buffer, len, offset, nowait: false },
            FileCall::Write { fd, buffer, len, offset },
            FileCall::ReadVector { fd, vectors, count: 7, offset, nowait: false },
            FileCall::WriteVector { fd, vectors, count: 7, offset },
            FileCall::Sync { fd, data_only: true },
            FileCall::Stat { at, flags: AT_EMPTY_PATH, stat },
            FileCall::SetLen { fd, len: 8 },
            FileCall::Allocate { fd, mode: FALLOCATE_KEEP_SIZE, offset, len: 8 },
            FileCall::Advise { fd, offset, len, advice: 2 },
            FileCall::Remove { at, directory: true },
            FileCall::Rename { from: at, to, flags: RENAME_NOREPLACE },
            FileCall::MakeDir { at, mode: 0o700 },
            FileCall::Symlink { target: to.path, at },
            FileCall::Link { from: at, to, flags: 0 },
        ]
    }

    #[test]
    fn an_entry_is_read_as_the_call_of_which_it_was_made() {
        let (how, mut stat) = (OpenHow::default(), FileStat::default());
        for call in calls(&how, &mut stat) {
            let entry = file::entry(&call).unwrap();
            // SAFETY: nothing is read of what the entry names.
            let read = unsafe { Submitted::new(entry) }.as_call(&mut OpenHow::default());
            let simulated = Profile::current().has(entry.opcode);
            assert_eq!(read.is_some(), simulated, "{call:?}");
            assert!(read.is_none_or(|read| format!("{read:?}") == format!("{call:?}")), "{call:?}");
        }
    }
}
