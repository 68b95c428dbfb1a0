//! The calls on paths that only a [`Dir`](super::Dir) makes.
#![allow(unsafe_code)]

use super::call::CallArgs;
use super::open_file::OpenFile;
use super::path::CWD;
use annulus_kernel::file::{FileCall, PathAt};
use std::ffi::CString;
use std::os::fd::RawFd;
use std::rc::Rc;

/// A change at a path.
pub(super) struct Change {
    pub(super) path: CString,
    pub(super) what: PathChange,
}

#[derive(Clone, Copy)]
pub(super) enum PathChange {
    Remove { directory: bool },
    MakeDir { mode: u32 },
    SetMode { mode: u32 },
}

// SAFETY: the path is on the heap.
unsafe impl CallArgs for Change {
    fn call(&mut self, dir: RawFd) -> FileCall {
        let at = PathAt { dir, path: self.path.as_ptr() };
        match self.what {
            PathChange::Remove { directory } => FileCall::Remove { at, directory },
            PathChange::MakeDir { mode } => FileCall::MakeDir { at, mode },
            PathChange::SetMode { mode } => FileCall::SetMode { at, mode },
        }
    }
}

/// A change between two paths. The second path starts from a separate directory.
pub(super) struct ChangeTwo {
    pub(super) from: CString,
    pub(super) dir: Option<Rc<OpenFile>>,
    pub(super) to: CString,
    pub(super) what: TwoPathChange,
}

#[derive(Clone, Copy)]
pub(super) enum TwoPathChange {
    Rename,
    Link,
    Symlink,
}

impl TwoPathChange {
    /// Returns the words of an error before the first path and between the two.
    pub(super) fn words(self) -> [&'static str; 2] {
        match self {
            Self::Rename => ["renaming", "to"],
            Self::Link => ["creating a hard link to", "at"],
            Self::Symlink => ["creating a symbolic link to", "at"],
        }
    }
}

// SAFETY: the paths are on the heap, and the second directory is kept open here.
unsafe impl CallArgs for ChangeTwo {
    fn call(&mut self, dir: RawFd) -> FileCall {
        let from = PathAt { dir, path: self.from.as_ptr() };
        let to =
            PathAt { dir: self.dir.as_ref().map_or(CWD, |dir| dir.fd()), path: self.to.as_ptr() };
        match self.what {
            TwoPathChange::Rename => FileCall::Rename { from, to, flags: 0 },
            TwoPathChange::Link => FileCall::Link { from, to, flags: 0 },
            TwoPathChange::Symlink => FileCall::Symlink { target: from.path, at: to },
        }
    }
}

/// Reads a symbolic link's target into memory.
pub(super) struct ReadLink {
    pub(super) path: CString,
    pub(super) target: Vec<u8>,
}

// SAFETY: the path is on the heap, and the call writes to the vector's memory, within its length.
unsafe impl CallArgs for ReadLink {
    fn call(&mut self, dir: RawFd) -> FileCall {
        let at = PathAt { dir, path: self.path.as_ptr() };
        let (buffer, len) = (self.target.as_mut_ptr(), self.target.len() as u32);
        FileCall::ReadLink { at, buffer, len }
    }
}
