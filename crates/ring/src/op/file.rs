//! File calls as submission entries.

use crate::entry::Entry;
use crate::opcode;
use annulus_kernel::Fd;
use annulus_kernel::file::{FileCall, FileStat, OpenHow, PathAt};

const FSYNC_DATASYNC: u32 = 1;
const AT_REMOVEDIR: u32 = 0x200;

/// The entry of a call; `None` if io_uring has no such operation.
pub fn entry(call: &FileCall) -> Option<Entry> {
    let base = |code, fd| Entry { fd, ..Entry::new(code, Fd::NONE) };
    Some(match *call {
        FileCall::Open { at, how } => Entry {
            addr: at.path as u64,
            len: size_of::<OpenHow>() as u32,
            off: how as u64,
            ..base(opcode::OPENAT2, at.dir)
        },
        FileCall::Read { fd, buffer, len, offset, .. } => {
            Entry { addr: buffer as u64, len, off: offset, ..base(opcode::READ, fd) }
        }
        FileCall::Write { fd, buffer, len, offset } => {
            Entry { addr: buffer as u64, len, off: offset, ..base(opcode::WRITE, fd) }
        }
        FileCall::ReadVector { fd, vectors, count, offset, .. } => {
            Entry { addr: vectors as u64, len: count, off: offset, ..base(opcode::READV, fd) }
        }
        FileCall::WriteVector { fd, vectors, count, offset } => {
            Entry { addr: vectors as u64, len: count, off: offset, ..base(opcode::WRITEV, fd) }
        }
        FileCall::Sync { fd, data_only } => {
            let op_flags = if data_only { FSYNC_DATASYNC } else { 0 };
            Entry { op_flags, ..base(opcode::FSYNC, fd) }
        }
        FileCall::SetLen { fd, len } => Entry { off: len, ..base(opcode::FTRUNCATE, fd) },
        FileCall::Allocate { fd, mode, offset, len } => {
            Entry { addr: len, len: mode, off: offset, ..base(opcode::FALLOCATE, fd) }
        }
        FileCall::Advise { fd, offset, len, advice } => {
            Entry { off: offset, len, op_flags: advice, ..base(opcode::FADVISE, fd) }
        }
        FileCall::Stat { at, flags, stat } => Entry {
            off: stat as u64,
            len: FileStat::WANTED,
            op_flags: flags,
            ..on_path(opcode::STATX, at)
        },
        FileCall::Remove { at, directory } => {
            let op_flags = if directory { AT_REMOVEDIR } else { 0 };
            Entry { op_flags, ..on_path(opcode::UNLINKAT, at) }
        }
        FileCall::Rename { from, to, flags } => on_paths(opcode::RENAMEAT, from, to, flags),
        FileCall::Link { from, to, flags } => on_paths(opcode::LINKAT, from, to, flags),
        FileCall::MakeDir { at, mode } => Entry { len: mode, ..on_path(opcode::MKDIRAT, at) },
        FileCall::Symlink { target, at } => {
            Entry { addr: target as u64, off: at.path as u64, ..base(opcode::SYMLINKAT, at.dir) }
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

/// The entry of an operation on a path.
fn on_path(code: u8, at: PathAt) -> Entry {
    Entry { fd: at.dir, addr: at.path as u64, ..Entry::new(code, Fd::NONE) }
}

/// The entry of an operation on two paths.
fn on_paths(code: u8, from: PathAt, to: PathAt, op_flags: u32) -> Entry {
    Entry { off: to.path as u64, len: to.dir as u32, op_flags, ..on_path(code, from) }
}
