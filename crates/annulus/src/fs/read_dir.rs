//! What is in a folder.
#![allow(unsafe_code)]

use super::dir::Dir;
use super::file::OpenFile;
use super::latency::{Class, Habitual};
use super::metadata::Metadata;
use super::path::about;
use super::perform::{Job, perform};
use annulus_kernel::file::FileCall;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::rc::Rc;

/// Room for the entries that one call brings.
const ROOM: usize = 32 * 1024;

/// The entries of a folder; see [`Dir::read_dir`]. The folder stays open as long as this.
pub struct ReadDir {
    dir: Dir,
    path: PathBuf,
    /// Entries as the kernel wrote them, from `next` to `end`.
    room: Vec<u8>,
    next: usize,
    end: usize,
}

/// One entry of a folder.
#[derive(Clone, Debug)]
pub struct DirEntry {
    dir: Dir,
    folder: PathBuf,
    name: OsString,
    inode: u64,
    kind: u8,
}

/// What an entry is, as the folder itself knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// An ordinary file.
    File,
    /// A folder.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A device, a socket, a pipe; or the file system does not tell: ask [`DirEntry::metadata`].
    Other,
}

impl ReadDir {
    pub(super) fn new(dir: Dir, path: PathBuf) -> Self {
        Self { dir, path, room: Vec::new(), next: 0, end: 0 }
    }

    /// The next entry; `None` after the last. `.` and `..` are left out.
    ///
    /// Cancel-safe, but for entries that were on their way: those are lost.
    ///
    /// # Errors
    /// The system's.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
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

    /// Has the kernel bring more; false at the end.
    async fn fetch(&mut self) -> io::Result<bool> {
        let mut room = std::mem::take(&mut self.room);
        room.resize(ROOM, 0);
        (self.next, self.end) = (0, 0);
        let call =
            FileCall::ReadDir { fd: self.dir.fd(), buffer: room.as_mut_ptr(), len: ROOM as u32 };
        let habit = Some(Habitual { device: Default::default(), class: Class::Look, bytes: ROOM });
        let core = self.dir.core();
        let job = Job { call, policy: core.files.policy, habit };
        let kept: (Vec<u8>, Option<Rc<OpenFile>>) = (room, self.dir.keep());
        // SAFETY: the call writes to the vector's own memory, which is kept.
        let (answer, (room, _)) = unsafe { perform(core, job, kept).await };
        self.room = room;
        self.end = answer.map_err(|e| about("reading the folder", &self.path, e))? as usize;
        Ok(self.end > 0)
    }

    /// The next of the entries at hand: `struct linux_dirent64`.
    fn parse(&mut self) -> Option<DirEntry> {
        let bytes = self.room.get(self.next..self.end)?;
        let inode = u64::from_ne_bytes(*bytes.first_chunk()?);
        let len = usize::from(u16::from_ne_bytes(*bytes.get(16..)?.first_chunk()?));
        let kind = *bytes.get(18)?;
        let name = bytes.get(19..len)?;
        let name = &name[..name.iter().position(|byte| *byte == 0)?];
        self.next += len;
        let name = OsString::from_vec(name.to_vec());
        Some(DirEntry { dir: self.dir.clone(), folder: self.path.clone(), name, inode, kind })
    }
}

impl DirEntry {
    /// The name, without the folder.
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// The folder's path, as it was given, and the name.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// What it is, without asking the file.
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
    /// `NotFound` where it has gone meanwhile, ….
    pub async fn metadata(&self) -> io::Result<Metadata> {
        self.dir.symlink_metadata(&self.name).await
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("path", &self.path).finish_non_exhaustive()
    }
}
