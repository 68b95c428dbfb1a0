//! File calls as submission entries.

use crate::entry::Entry;
use crate::opcode;
use annulus_kernel::Fd;
use annulus_kernel::file::{FileCall, FileStat, OpenHow};

const FSYNC_DATASYNC: u32 = 1;
const AT_REMOVEDIR: u32 = 0x200;

/// The operation of a call; `None` if io_uring has none.
pub fn opcode(call: &FileCall) -> Option<u8> {
    Some(match call {
        FileCall::Open { .. } => opcode::OPENAT2,
        FileCall::Read { .. } => opcode::READ,
        FileCall::Write { .. } => opcode::WRITE,
        FileCall::ReadVector { .. } => opcode::READV,
        FileCall::WriteVector { .. } => opcode::WRITEV,
        FileCall::Sync { .. } => opcode::FSYNC,
        FileCall::Stat { .. } => opcode::STATX,
        FileCall::SetLen { .. } => opcode::FTRUNCATE,
        FileCall::Allocate { .. } => opcode::FALLOCATE,
        FileCall::Advise { .. } => opcode::FADVISE,
        FileCall::Remove { .. } => opcode::UNLINKAT,
        FileCall::Rename { .. } => opcode::RENAMEAT,
        FileCall::MakeDir { .. } => opcode::MKDIRAT,
        FileCall::Symlink { .. } => opcode::SYMLINKAT,
        FileCall::Link { .. } => opcode::LINKAT,
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

/// The entry of a call; `None` if io_uring has no such operation.
pub fn entry(call: &FileCall) -> Option<Entry> {
    let base = |fd| opcode(call).map(|code| Entry { fd, ..Entry::new(code, Fd::NONE) });
    Some(match *call {
        FileCall::Open { at, how } => Entry {
            addr: at.path as u64,
            len: size_of::<OpenHow>() as u32,
            off: how as u64,
            ..base(at.dir)?
        },
        FileCall::Read { fd, buffer, len, offset, .. } => {
            Entry { addr: buffer as u64, len, off: offset, ..base(fd)? }
        }
        FileCall::Write { fd, buffer, len, offset } => {
            Entry { addr: buffer as u64, len, off: offset, ..base(fd)? }
        }
        FileCall::ReadVector { fd, vectors, count, offset, .. }
        | FileCall::WriteVector { fd, vectors, count, offset } => {
            Entry { addr: vectors as u64, len: count, off: offset, ..base(fd)? }
        }
        FileCall::Sync { fd, data_only } => {
            Entry { op_flags: if data_only { FSYNC_DATASYNC } else { 0 }, ..base(fd)? }
        }
        FileCall::SetLen { fd, len } => Entry { off: len, ..base(fd)? },
        FileCall::Allocate { fd, mode, offset, len } => {
            Entry { addr: len, len: mode, off: offset, ..base(fd)? }
        }
        FileCall::Advise { fd, offset, len, advice } => {
            Entry { off: offset, len, op_flags: advice, ..base(fd)? }
        }
        _ => return path_entry(call),
    })
}

/// The entry of a call that names a path and opens nothing.
fn path_entry(call: &FileCall) -> Option<Entry> {
    let base = |fd| opcode(call).map(|code| Entry { fd, ..Entry::new(code, Fd::NONE) });
    Some(match *call {
        FileCall::Stat { at, flags, stat } => Entry {
            addr: at.path as u64,
            off: stat as u64,
            len: FileStat::WANTED,
            op_flags: flags,
            ..base(at.dir)?
        },
        FileCall::Remove { at, directory } => Entry {
            addr: at.path as u64,
            op_flags: if directory { AT_REMOVEDIR } else { 0 },
            ..base(at.dir)?
        },
        FileCall::Rename { from, to, flags } | FileCall::Link { from, to, flags } => Entry {
            addr: from.path as u64,
            off: to.path as u64,
            len: to.dir as u32,
            op_flags: flags,
            ..base(from.dir)?
        },
        FileCall::MakeDir { at, mode } => {
            Entry { addr: at.path as u64, len: mode, ..base(at.dir)? }
        }
        FileCall::Symlink { target, at } => {
            Entry { addr: target as u64, off: at.path as u64, ..base(at.dir)? }
        }
        _ => return None,
    })
}
