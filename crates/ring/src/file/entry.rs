//! The calls as submission entries.

use super::{FileCall, FileStat, OpenHow};
use crate::entry::{Entry, Target};
use crate::opcode;

const FSYNC_DATASYNC: u32 = 1;
const AT_REMOVEDIR: u32 = 0x200;

impl FileCall {
    /// The operation that stands for it; `None` where io_uring has none.
    pub fn opcode(&self) -> Option<u8> {
        Some(match self {
            Self::Open { .. } => opcode::OPENAT2,
            Self::Read { .. } => opcode::READ,
            Self::Write { .. } => opcode::WRITE,
            Self::ReadVector { .. } => opcode::READV,
            Self::WriteVector { .. } => opcode::WRITEV,
            Self::Sync { .. } => opcode::FSYNC,
            Self::Stat { .. } => opcode::STATX,
            Self::SetLen { .. } => opcode::FTRUNCATE,
            Self::Allocate { .. } => opcode::FALLOCATE,
            Self::Advise { .. } => opcode::FADVISE,
            Self::Remove { .. } => opcode::UNLINKAT,
            Self::Rename { .. } => opcode::RENAMEAT,
            Self::MakeDir { .. } => opcode::MKDIRAT,
            Self::Symlink { .. } => opcode::SYMLINKAT,
            Self::Link { .. } => opcode::LINKAT,
            Self::ReadLink { .. }
            | Self::ReadDir { .. }
            | Self::SetMode { .. }
            | Self::SetModeOf { .. }
            | Self::Copy { .. }
            | Self::Send { .. }
            | Self::Seek { .. }
            | Self::Lock { .. } => return None,
        })
    }

    /// The entry; `None` where io_uring has no such operation.
    pub fn entry(&self) -> Option<Entry> {
        let base = |fd| self.opcode().map(|code| Entry::new(code, Target::Fd(fd)));
        Some(match *self {
            Self::Open { at, how } => Entry {
                addr: at.path as u64,
                len: size_of::<OpenHow>() as u32,
                off: how as u64,
                ..base(at.dir)?
            },
            Self::Read { fd, buffer, len, offset, .. } => {
                Entry { addr: buffer as u64, len, off: offset, ..base(fd)? }
            }
            Self::Write { fd, buffer, len, offset } => {
                Entry { addr: buffer as u64, len, off: offset, ..base(fd)? }
            }
            Self::ReadVector { fd, vectors, count, offset, .. }
            | Self::WriteVector { fd, vectors, count, offset } => {
                Entry { addr: vectors as u64, len: count, off: offset, ..base(fd)? }
            }
            Self::Sync { fd, data_only } => {
                Entry { op_flags: if data_only { FSYNC_DATASYNC } else { 0 }, ..base(fd)? }
            }
            Self::SetLen { fd, len } => Entry { off: len, ..base(fd)? },
            Self::Allocate { fd, mode, offset, len } => {
                Entry { addr: len, len: mode, off: offset, ..base(fd)? }
            }
            Self::Advise { fd, offset, len, advice } => {
                Entry { off: offset, len, op_flags: advice, ..base(fd)? }
            }
            _ => return self.path_entry(),
        })
    }

    /// Of the calls that name a path and open nothing.
    fn path_entry(&self) -> Option<Entry> {
        let base = |fd| self.opcode().map(|code| Entry::new(code, Target::Fd(fd)));
        Some(match *self {
            Self::Stat { at, flags, stat } => Entry {
                addr: at.path as u64,
                off: stat as u64,
                len: FileStat::WANTED,
                op_flags: flags,
                ..base(at.dir)?
            },
            Self::Remove { at, directory } => Entry {
                addr: at.path as u64,
                op_flags: if directory { AT_REMOVEDIR } else { 0 },
                ..base(at.dir)?
            },
            Self::Rename { from, to, flags } | Self::Link { from, to, flags } => Entry {
                addr: from.path as u64,
                off: to.path as u64,
                len: to.dir as u32,
                op_flags: flags,
                ..base(from.dir)?
            },
            Self::MakeDir { at, mode } => {
                Entry { addr: at.path as u64, len: mode, ..base(at.dir)? }
            }
            Self::Symlink { target, at } => {
                Entry { addr: target as u64, off: at.path as u64, ..base(at.dir)? }
            }
            _ => return None,
        })
    }
}
