//! The entries of a directory.
#![allow(unsafe_code)]

use super::call::CallArgs;
use super::dir::Dir;
use super::metadata::Metadata;
use super::path::about;
use crate::file_policy::{CallKind, Class, DeviceId};
use crate::tasks::consume_budget;
use annulus_kernel::file::FileCall;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Size of the buffer that one call fills with entries, in bytes.
const CALL_BYTES: usize = 32 * 1024;

/// The entries of a directory; see [`Dir::read_dir`]. The directory stays open until this value and
/// all of its entries have been dropped.
///
/// ```
/// use annulus::fs::{self, EntryKind};
///
/// # annulus::run(async {
/// # let root = std::env::temp_dir().join(format!("annulus-read-dir-{}", std::process::id()));
/// # fs::create_dir_all(root.join("sub")).await?;
/// # fs::write(root.join("text"), "12345").await?;
/// let mut entries = fs::read_dir(&root).await?;
/// let mut bytes = 0;
/// while let Some(entry) = entries.next_entry().await? {
///     if entry.kind() == EntryKind::File {
///         bytes += entry.metadata().await?.len();
///     }
/// }
/// assert_eq!(bytes, 5);
/// # fs::remove_dir_all(&root).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct ReadDir {
    dir: Dir,
    path: PathBuf,
    /// Entries as the kernel wrote them, from `next` to `end`.
    entries: Vec<u8>,
    next: usize,
    end: usize,
}

/// One entry of a directory.
///
/// It can be kept after the [`ReadDir`], for example to sort:
///
/// ```
/// use annulus::fs;
///
/// # annulus::run(async {
/// # let root = std::env::temp_dir().join(format!("annulus-entries-{}", std::process::id()));
/// # fs::create_dir(&root).await?;
/// # fs::write(root.join("b"), "").await?;
/// # fs::write(root.join("a"), "").await?;
/// let mut entries = fs::read_dir(&root).await?;
/// let mut found = Vec::new();
/// while let Some(entry) = entries.next_entry().await? {
///     found.push(entry);
/// }
/// found.sort_by_key(|entry| entry.file_name());
/// assert_eq!(found[0].path(), root.join("a"));
/// # fs::remove_dir_all(&root).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct DirEntry {
    dir: Dir,
    parent: PathBuf,
    name: OsString,
    inode: u64,
    kind: u8,
}

/// The kind of an entry, according to the directory.
///
/// ```
/// use annulus::fs::{self, DirEntry, EntryKind};
///
/// /// Whether an entry is a directory, even if the file system does not record kinds in directories.
/// async fn is_dir(entry: &DirEntry) -> std::io::Result<bool> {
///     match entry.kind() {
///         EntryKind::Dir => Ok(true),
///         EntryKind::File | EntryKind::Symlink => Ok(false),
///         _ => Ok(entry.metadata().await?.is_dir()),
///     }
/// }
///
/// # annulus::run(async {
/// let mut entries = fs::read_dir("/proc/self/task").await?;
/// let thread = entries.next_entry().await?.expect("a process has a thread");
/// assert!(is_dir(&thread).await?);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// An ordinary file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A device, a socket, a pipe, or a kind that the file system does not record. For the actual
    /// kind, see [`DirEntry::metadata`].
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

    /// Returns the next entry, or `None` after the last one or once the directory has been removed.
    /// Skips `.` and `..`.
    ///
    /// Cancel-safe, except that entries of a call in flight are lost.
    ///
    /// # Errors
    /// The system's error.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        // One call reads many entries, so each entry uses the task's budget rather than the budget
        // of file calls.
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

    pub(super) fn into_path(self) -> PathBuf {
        self.path
    }

    /// Reads more entries. Returns false at the end.
    async fn fetch(&mut self) -> io::Result<bool> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.resize(CALL_BYTES, 0);
        (self.next, self.end) = (0, 0);
        let device = DeviceId::default();
        let kind = CallKind { device, class: Class::Query, bytes: CALL_BYTES };
        let (answer, ReadEntries(entries)) =
            self.dir.site(Some(kind)).make(ReadEntries(entries)).await;
        self.entries = entries;
        self.end = match answer {
            Ok(len) => len as usize,
            // The directory has been removed. POSIX requires `readdir` to report the end of the
            // directory in this case.
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => 0,
            Err(error) => return Err(about("reading the directory", &self.path, error)),
        };
        Ok(self.end > 0)
    }

    /// Parses the next entry that has been read (`struct linux_dirent64`).
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
    /// Returns the name, without the directory's path.
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// Returns the directory's path, as it was given, joined with the name.
    pub fn path(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    /// Returns the kind of the entry without a call on the file.
    pub fn kind(&self) -> EntryKind {
        match self.kind {
            8 => EntryKind::File,
            4 => EntryKind::Dir,
            10 => EntryKind::Symlink,
            _ => EntryKind::Other,
        }
    }

    /// Returns the inode number, which identifies the file on its device.
    pub fn ino(&self) -> u64 {
        self.inode
    }

    /// Returns the metadata of the entry. For a symbolic link, this is the metadata of the link
    /// itself.
    ///
    /// # Errors
    /// `NotFound` if the entry has been removed in the meantime, ….
    pub async fn metadata(&self) -> io::Result<Metadata> {
        self.dir.symlink_metadata(&self.name).await
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("path", &self.path).finish_non_exhaustive()
    }
}
