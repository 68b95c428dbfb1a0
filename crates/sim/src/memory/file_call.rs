//! File calls, with the arguments that they point to.
#![allow(unsafe_code)]

use super::SubmittedEntry;
use super::header::ranges;
use crate::fs::{AnchoredPath, DeviceUse, Disk, Lock, MemoryRanges, OpenId};
use crate::memory_range::MemoryRange;
use annulus_kernel::IoVec;
use annulus_kernel::file::{CURSOR_OFFSET, FileCall, FileStat, OpenHow, PathAt};
use annulus_ring::op::rwf;
use annulus_ring::opcode;
use rustix::io::Errno;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::os::fd::RawFd;

type EntryDecoder = fn(&SubmittedEntry) -> FileCall;

/// The opcodes that are file calls, and how to decode them. The first four also work on sockets.
const ENTRY_DECODERS: [(u8, EntryDecoder); 14] = [
    (opcode::READ, |entry| {
        let (buffer, nowait) = (pointer(entry.addr), entry.op_flags & rwf::NOWAIT != 0);
        FileCall::Read { fd: entry.fd, buffer, len: entry.len, offset: entry.off, nowait }
    }),
    (opcode::WRITE, |entry| {
        let (fd, buffer) = (entry.fd, pointer(entry.addr));
        match entry.op_flags & rwf::DSYNC {
            0 => FileCall::Write { fd, buffer, len: entry.len, offset: entry.off },
            _ => FileCall::WriteDurable { fd, buffer, len: entry.len, offset: entry.off },
        }
    }),
    (opcode::READV, |entry| {
        let (vectors, nowait) = (pointer(entry.addr), entry.op_flags & rwf::NOWAIT != 0);
        FileCall::ReadVector { fd: entry.fd, vectors, count: entry.len, offset: entry.off, nowait }
    }),
    (opcode::WRITEV, |entry| {
        let vectors = pointer(entry.addr);
        FileCall::WriteVector { fd: entry.fd, vectors, count: entry.len, offset: entry.off }
    }),
    (opcode::FSYNC, |entry| FileCall::Sync {
        fd: entry.fd,
        data_only: entry.op_flags & FSYNC_DATASYNC != 0,
    }),
    (opcode::FTRUNCATE, |entry| FileCall::SetLen { fd: entry.fd, len: entry.off }),
    (opcode::FALLOCATE, |entry| FileCall::Allocate {
        fd: entry.fd,
        mode: entry.len,
        offset: entry.off,
        len: entry.addr,
    }),
    (opcode::FADVISE, |entry| {
        let advice = entry.op_flags;
        FileCall::Advise { fd: entry.fd, offset: entry.off, len: entry.len, advice }
    }),
    (opcode::OPENAT2, |entry| FileCall::Open { at: source_path(entry), how: pointer(entry.off) }),
    (opcode::STATX, |entry| FileCall::Stat {
        at: source_path(entry),
        flags: entry.op_flags,
        stat: pointer(entry.off),
    }),
    (opcode::UNLINKAT, |entry| FileCall::Remove {
        at: source_path(entry),
        directory: entry.op_flags & AT_REMOVEDIR != 0,
    }),
    (opcode::RENAMEAT, |entry| FileCall::Rename {
        from: source_path(entry),
        to: target_path(entry),
        flags: entry.op_flags,
    }),
    (opcode::LINKAT, |entry| FileCall::Link {
        from: source_path(entry),
        to: target_path(entry),
        flags: entry.op_flags,
    }),
    (opcode::MKDIRAT, |entry| FileCall::MakeDir { at: source_path(entry), mode: entry.len }),
];

/// Opcodes of file calls that Linux has but the simulated kernel rejects, because the simulated
/// disk has no symbolic links.
pub(crate) const REFUSED_FILE_OPCODES: [u8; 1] = [opcode::SYMLINKAT];

pub(crate) const FILE_OPCODES: [u8; ENTRY_DECODERS.len()] = {
    let (mut opcodes, mut at) = ([0; ENTRY_DECODERS.len()], 0);
    while at < ENTRY_DECODERS.len() {
        opcodes[at] = ENTRY_DECODERS[at].0;
        at += 1;
    }
    opcodes
};

fn source_path(entry: &SubmittedEntry) -> PathAt {
    PathAt { dir: entry.fd, path: pointer(entry.addr) }
}

fn target_path(entry: &SubmittedEntry) -> PathAt {
    PathAt { dir: entry.len as RawFd, path: pointer(entry.off) }
}

/// `AT_FDCWD`, which means the root here.
const AT_FDCWD: RawFd = -100;
const AT_EMPTY_PATH: u32 = 0x1000;
const AT_REMOVEDIR: u32 = 0x200;
const FSYNC_DATASYNC: u32 = 1;
const FALLOCATE_KEEP_SIZE: u32 = 1;
/// The flags of a call that punches a hole: Linux requires both.
const FALLOCATE_PUNCH_HOLE: u32 = 2 | FALLOCATE_KEEP_SIZE;
const RENAME_NOREPLACE: u32 = 1;
/// The operations of `flock`: `LOCK_SH | LOCK_NB`, `LOCK_EX | LOCK_NB` and `LOCK_UN`.
const LOCK_SHARED_NONBLOCKING: u32 = 1 | 4;
const LOCK_EXCLUSIVE_NONBLOCKING: u32 = 2 | 4;
const LOCK_UNLOCK: u32 = 8;
/// Maximum length of a path, including the final zero.
const PATH_MAX: usize = 4096;

type FindOpenFile<'a> = &'a dyn Fn(RawFd) -> Result<OpenId, Errno>;

/// A file call whose caller keeps the contract of [`FileCall::call`].
pub(crate) struct FileRequest(FileCall);

impl FileRequest {
    /// # Safety
    /// The contract of [`FileCall::call`] must hold until the call is done.
    pub(crate) unsafe fn new(call: &FileCall) -> Self {
        Self(*call)
    }

    /// Reads everything the call points to, except the bytes that it transfers, and returns the
    /// call to perform on the disk. Fails if the call is not simulated.
    pub(crate) fn read(&self, disk: &Disk, find: FindOpenFile<'_>) -> Result<DiskCall, Errno> {
        use FileCall as F;
        let path = |at: PathAt| read_path(at, find);
        Ok(match self.0 {
            F::Open { at, how } => self.open(path(at)?, how)?,
            F::Stat { at, flags, stat } => {
                let into = range(stat.cast(), size_of::<FileStat>());
                let itself = flags & AT_EMPTY_PATH != 0;
                DiskCall::immediate(path(at)?, move |disk, at| disk.stat(at, itself, into))
            }
            F::Remove { at, directory } => {
                DiskCall::immediate(path(at)?, move |disk, at| disk.remove(at, directory))
            }
            F::Rename { from, to, flags } if flags & !RENAME_NOREPLACE == 0 => {
                let replaces = flags == 0;
                DiskCall::immediate((path(from)?, path(to)?), move |disk, (from, to)| {
                    disk.rename(from, to, replaces)
                })
            }
            F::Link { from, to, .. } => {
                DiskCall::immediate((path(from)?, path(to)?), |disk, (from, to)| {
                    disk.link(from, to)
                })
            }
            F::MakeDir { at, mode } => {
                DiskCall::immediate(path(at)?, move |disk, at| disk.make_dir(at, mode))
            }
            F::SetMode { at, mode } => {
                DiskCall::immediate(path(at)?, move |disk, at| disk.set_mode(at, mode))
            }
            _ => return self.read_transfer(disk, find),
        })
    }

    /// Like [`read`](Self::read), for reads and writes.
    fn read_transfer(&self, disk: &Disk, find: FindOpenFile<'_>) -> Result<DiskCall, Errno> {
        use FileCall as F;
        let offset = |at: u64| (at != CURSOR_OFFSET).then_some(at);
        Ok(match self.0 {
            F::Read { fd, buffer, len, offset: at, nowait } => {
                DiskCall::read(disk, find(fd)?, single_range(buffer, len), offset(at), nowait)
            }
            F::ReadVector { fd, vectors, count, offset: at, nowait } => {
                DiskCall::read(disk, find(fd)?, vectors_of(vectors, count), offset(at), nowait)
            }
            F::Write { fd, buffer, len, offset: at } => {
                DiskCall::write(disk, find(fd)?, single_range(buffer.cast_mut(), len), offset(at))
            }
            F::WriteDurable { fd, buffer, len, offset: at } => {
                let from = single_range(buffer.cast_mut(), len);
                DiskCall::write_durable(disk, find(fd)?, from, offset(at))
            }
            F::WriteVector { fd, vectors, count, offset: at } => {
                DiskCall::write(disk, find(fd)?, vectors_of(vectors, count), offset(at))
            }
            _ => return self.read_on_file(find),
        })
    }

    /// Like [`read`](Self::read), for calls on descriptors other than reads and writes.
    fn read_on_file(&self, find: FindOpenFile<'_>) -> Result<DiskCall, Errno> {
        use FileCall as F;
        let offset = |at: u64| (at != CURSOR_OFFSET).then_some(at);
        Ok(match self.0 {
            F::Sync { fd, .. } => {
                // The world performs the sync, because it decides whether the sync fails.
                let device_use = DeviceUse::Sync(find(fd)?);
                DiskCall { device_use, ..DiskCall::immediate((), |_, ()| Ok(0)) }
            }
            F::SetLen { fd, len } => {
                DiskCall::immediate(find(fd)?, move |disk, file| disk.set_len(*file, len))
            }
            F::Allocate { fd, mode, offset, len } if mode <= FALLOCATE_KEEP_SIZE => {
                DiskCall::immediate(find(fd)?, move |disk, file| {
                    disk.allocate(*file, mode != 0, offset, len)
                })
            }
            F::Allocate { fd, mode: FALLOCATE_PUNCH_HOLE, offset, len } => {
                DiskCall::immediate(find(fd)?, move |disk, file| disk.punch(*file, offset, len))
            }
            // Neither advice nor status flags have an effect on a simulated file.
            F::Advise { fd, .. } | F::SetFlags { fd, .. } => {
                DiskCall::immediate(find(fd)?, |_, _| Ok(0))
            }
            F::ReadDir { fd, buffer, len } => {
                let into = range(buffer, len as usize);
                DiskCall::immediate(find(fd)?, move |disk, file| disk.read_dir(*file, into))
            }
            F::Seek { fd, offset, origin, position } => {
                let into = range(position.cast(), size_of::<u64>());
                DiskCall::immediate(find(fd)?, move |disk, file| {
                    disk.seek(*file, offset, origin, into)
                })
            }
            F::Copy { from, from_offset, to, to_offset, len } => {
                let ends = ((find(from)?, offset(from_offset)), (find(to)?, offset(to_offset)));
                DiskCall::immediate(ends, move |disk, (from, to)| {
                    disk.copy(*from, *to, len as usize)
                })
            }
            F::SetModeOf { fd, mode } => DiskCall::immediate(find(fd)?, move |disk, file| {
                disk.set_mode_of(disk.ino(*file), mode)
            }),
            F::Lock { fd, operation } if lock_of(operation).is_some() => {
                let lock = lock_of(operation).flatten();
                DiskCall::immediate(find(fd)?, move |disk, file| disk.lock(*file, lock))
            }
            // Not simulated: symbolic links, waiting for a lock, sending a file to a socket, and
            // calls with unsupported flags. `read` and `read_transfer` have returned for all other calls
            // listed here.
            F::Symlink { .. }
            | F::ReadLink { .. }
            | F::Lock { .. }
            | F::Send { .. }
            | F::Allocate { .. }
            | F::Rename { .. }
            | F::Open { .. }
            | F::Stat { .. }
            | F::Remove { .. }
            | F::Link { .. }
            | F::MakeDir { .. }
            | F::SetMode { .. }
            | F::Read { .. }
            | F::ReadVector { .. }
            | F::Write { .. }
            | F::WriteDurable { .. }
            | F::WriteVector { .. } => return Err(Errno::OPNOTSUPP),
        })
    }

    fn open(&self, at: AnchoredPath, how: *const OpenHow) -> Result<DiskCall, Errno> {
        // SAFETY: `new` guarantees that `how` is valid until the call is done.
        let OpenHow { flags, mode, resolve } = unsafe { how.read() };
        if resolve & OpenHow::BENEATH != 0 && escapes_start(&at.path) {
            return Err(Errno::XDEV);
        }
        let open = move |disk: &mut Disk, at: &_| disk.open(at, flags as u32, mode as u32);
        Ok(DiskCall { opens: true, ..DiskCall::immediate(at, open) })
    }
}

/// Returns the lock that a call asks for, `Some(None)` if it releases the lock, or `None` if it may
/// wait.
fn lock_of(operation: u32) -> Option<Option<Lock>> {
    match operation {
        LOCK_SHARED_NONBLOCKING => Some(Some(Lock::Shared)),
        LOCK_EXCLUSIVE_NONBLOCKING => Some(Some(Lock::Exclusive)),
        LOCK_UNLOCK => Some(None),
        _ => None,
    }
}

/// The result of a call: a count, zero, or the number of the file it has opened.
type CallResult = Result<usize, Errno>;

type DiskAction = dyn FnOnce(&mut Disk, &MemoryRanges) -> CallResult;

/// A file call on a disk, with its arguments copied.
pub(crate) struct DiskCall {
    pub(crate) device_use: DeviceUse,
    /// The memory of the bytes to transfer.
    pub(crate) memory: MemoryRanges,
    /// Whether the call writes to that memory.
    pub(crate) fills: bool,
    pub(crate) opens: bool,
    action: Box<DiskAction>,
}

impl DiskCall {
    /// Creates a call on files or paths that does not wait for the device.
    fn immediate<T: 'static>(
        subject: T,
        action: impl FnOnce(&mut Disk, &T) -> CallResult + 'static,
    ) -> Self {
        Self::transfer(Box::default(), move |disk, _| action(disk, &subject))
    }

    fn transfer(
        memory: MemoryRanges,
        action: impl FnOnce(&mut Disk, &MemoryRanges) -> CallResult + 'static,
    ) -> Self {
        let device_use = DeviceUse::None;
        Self { device_use, memory, fills: false, opens: false, action: Box::new(action) }
    }

    fn read(
        disk: &Disk,
        file: OpenId,
        into: MemoryRanges,
        offset: Option<u64>,
        nowait: bool,
    ) -> Self {
        let waits = !nowait && disk.read_needs_device(file, &into, offset);
        let device_use = if waits { DeviceUse::Read } else { DeviceUse::None };
        let read =
            move |disk: &mut Disk, into: &MemoryRanges| disk.read(file, into, offset, nowait);
        Self { device_use, fills: true, ..Self::transfer(into, read) }
    }

    fn write(disk: &Disk, file: OpenId, from: MemoryRanges, offset: Option<u64>) -> Self {
        let write = move |disk: &mut Disk, from: &MemoryRanges| disk.write(file, from, offset);
        Self { device_use: disk.device_use_of_write(file), ..Self::transfer(from, write) }
    }

    /// A write of bytes that are durable once it has ended.
    fn write_durable(disk: &Disk, file: OpenId, from: MemoryRanges, offset: Option<u64>) -> Self {
        let device_use = DeviceUse::SyncedWrite(file);
        Self { device_use, ..Self::write(disk, file, from, offset) }
    }

    /// Returns true for a write, whether durable or not, that uses the device. A sync is not a
    /// write.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.device_use, DeviceUse::Write | DeviceUse::SyncedWrite(_))
    }

    /// Performs the call, except its syncs, which the world performs afterwards.
    pub(crate) fn perform(self, disk: &mut Disk) -> CallResult {
        (self.action)(disk, &self.memory)
    }
}

impl fmt::Debug for DiskCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskCall").field("device_use", &self.device_use).finish_non_exhaustive()
    }
}

impl SubmittedEntry {
    pub(crate) fn file_call(&self, disk: &Disk, find: FindOpenFile<'_>) -> Result<DiskCall, Errno> {
        let (_, read) =
            ENTRY_DECODERS.iter().find(|(code, _)| *code == self.opcode).ok_or(Errno::INVAL)?;
        // SAFETY: the entry was published under the contract of `Kernel::enter`. Paths are valid
        // until the entry is consumed, which is now, and bytes until the terminal completion.
        unsafe { FileRequest::new(&read(self)) }.read(disk, find)
    }
}

/// Returns true if a path leads out of its starting directory. The text is enough to tell, because
/// there are no symbolic links.
fn escapes_start(path: &[u8]) -> bool {
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

fn range(start: *mut u8, len: usize) -> MemoryRange {
    // SAFETY: the memory belongs to the call until it is done: all calls come from a `FileRequest`
    // or a `SubmittedEntry`, whose constructors require that.
    unsafe { MemoryRange::new(start.expose_provenance() as u64, len) }
}

fn single_range(start: *mut u8, len: u32) -> MemoryRanges {
    Box::new([range(start, len as usize)])
}

fn vectors_of(first: *const IoVec, count: u32) -> MemoryRanges {
    // SAFETY: the vectors and their memory belong to the call until it is done; see `range`.
    unsafe { ranges(first, count as usize) }
}

/// Reads a path, and finds the file it starts from.
fn read_path(at: PathAt, find: FindOpenFile<'_>) -> Result<AnchoredPath, Errno> {
    if at.path.is_null() {
        return Err(Errno::FAULT);
    }
    let path = path_bytes(at.path);
    if path.len() >= PATH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    if let Some(fd) = descriptor_of(&path) {
        return Ok(AnchoredPath { dir: Some(find(fd)?), path: Vec::new() });
    }
    let absolute = path.starts_with(b"/") || at.dir == AT_FDCWD;
    Ok(AnchoredPath { dir: if absolute { None } else { Some(find(at.dir)?) }, path })
}

/// Returns the descriptor of a path below `/proc/self/fd`.
fn descriptor_of(path: &[u8]) -> Option<RawFd> {
    let number = path.strip_prefix(b"/proc/self/fd/")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn path_bytes(path: *const c_char) -> Vec<u8> {
    // SAFETY: the path is valid and ends with a zero; see `range`.
    unsafe { CStr::from_ptr(path) }.to_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_ring::Entry;
    use annulus_ring::op::file_entry;

    #[test]
    fn decoded_entry_equals_the_call_it_was_made_from() {
        for (opcode, read) in ENTRY_DECODERS {
            // Each field has its own value, which is also a valid flag.
            let (addr, off, len, op_flags) =
                (0x1001, 0x2002, 0x303, rwf::NOWAIT | AT_REMOVEDIR | 1);
            let entry = Entry { opcode, fd: 3, addr, off, len, op_flags, ..Entry::default() };
            // SAFETY: the test does not access the memory that the entries refer to.
            let read = |entry| read(&unsafe { SubmittedEntry::new(entry) });
            let made = file_entry(&read(entry)).expect("the call has an entry");
            assert_eq!(made.opcode, opcode);
            assert_eq!(without_nowait(read(made)), without_nowait(read(entry)));
        }
    }

    /// Formats a call without `nowait`, because the entries that the driver creates never set it.
    fn without_nowait(call: FileCall) -> String {
        format!("{call:?}").replace("nowait: true", "nowait: false")
    }
}
