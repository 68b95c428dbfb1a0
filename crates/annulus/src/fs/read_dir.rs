//! The entries of a directory.
#![allow(unsafe_code)]

use super::call::CallArgs;
use super::dir::Dir;
use super::inline_policy::{CallKind, Class, DeviceId};
use super::metadata::Metadata;
use super::path::about;
use crate::task::consume_budget;
use annulus_kernel::file::FileCall;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Bytes of entries that a call reads.
const CALL_BYTES: usize = 32 * 1024;

/// The entries of a directory; see [`Dir::read_dir`]. The directory stays open as long as this.
pub struct ReadDir {
    dir: Dir,
    path: PathBuf,
    /// Entries as the kernel wrote them, from `next` to `end`.
    entries: Vec<u8>,
    next: usize,
    end: usize,
}

/// One entry of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    dir: Dir,
    parent: PathBuf,
    name: OsString,
    inode: u64,
    kind: u8,
}

/// What an entry is, according to the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// An ordinary file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A device, a socket or a pipe; or the file system does not record it: ask [`DirEntry::metadata`].
    Other,
}

/// A call that fills memory with entries.
struct ReadEntries(Vec<u8>);

// SAFETY: the call writes to the vector's memory, within its length.
unsafe impl CallArgs for ReadEntries {
    fn call(&mut self, fd: RawFd) -> FileCall {
        FileCall::ReadDir { fd, buffer: self.0.as_mut_ptr(), len: self.0.len() as u32 }
    }
}

impl ReadDir {
    pub(super) fn new(dir: Dir, path: PathBuf) -> Self {
        Self { dir, path, entries: Vec::new(), next: 0, end: 0 }
    }

    /// The next entry; `None` after the last. `.` and `..` are left out.
    ///
    /// Cancel-safe, except that entries of a call in flight are lost.
    ///
    /// # Errors
    /// The system's.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        // One call reads many entries, whose budget is not that of file calls.
        consume_budget().await;
        loop {
            while let Some(entry) = self.parse() {
                if entry.name != "." && entry.name != ".." {
                    return Ok(Some(entry));
                }
            }
            if !self.fetch().await? {
                return Ok(None);
            }
        }
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Reads more entries; false at the end.
    async fn fetch(&mut self) -> io::Result<bool> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.resize(CALL_BYTES, 0);
        (self.next, self.end) = (0, 0);
        let device = DeviceId::default();
        let kind = CallKind { device, class: Class::Query, bytes: CALL_BYTES };
        let (answer, ReadEntries(entries)) =
            self.dir.site(Some(kind)).make(ReadEntries(entries)).await;
        self.entries = entries;
        self.end = answer.map_err(|e| about("reading the directory", &self.path, e))? as usize;
        Ok(self.end > 0)
    }

    /// The next of the entries that were read: `struct linux_dirent64`.
    fn parse(&mut self) -> Option<DirEntry> {
        let bytes = self.entries.get(self.next..self.end)?;
        let inode = u64::from_ne_bytes(*bytes.first_chunk()?);
        let len = usize::from(u16::from_ne_bytes(*bytes.get(16..)?.first_chunk()?));
        let kind = *bytes.get(18)?;
        let name = bytes.get(19..len)?;
        let name = &name[..name.iter().position(|byte| *byte == 0)?];
        self.next += len;
        let name = OsString::from_vec(name.to_vec());
        Some(DirEntry { dir: self.dir.clone(), parent: self.path.clone(), name, inode, kind })
    }
}

impl DirEntry {
    /// The name, without the directory's path.
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// The directory's path, as it was given, and the name.
    pub fn path(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    /// What it is, without a call on the file.
    pub fn kind(&self) -> EntryKind {
        match self.kind {
            8 => EntryKind::File,
            4 => EntryKind::Dir,
            10 => EntryKind::Symlink,
            _ => EntryKind::Other,
        }
    }

    /// The file's number on its device.
    pub fn ino(&self) -> u64 {
        self.inode
    }

    /// What is known about it; of a symbolic link itself.
    ///
    /// # Errors
    /// `NotFound` if it was removed meanwhile, ….
    pub async fn metadata(&self) -> io::Result<Metadata> {
        self.dir.symlink_metadata(&self.name).await
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("path", &self.path).finish_non_exhaustive()
    }
}
