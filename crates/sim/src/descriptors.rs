//! Descriptors and their files. A file exists until its last reference is dropped: descriptors,
//! operations and messages hold references.

use crate::slab::Slab;
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::os::fd::RawFd;

/// The lowest descriptor. It is far above the descriptors of the process, so that code that
/// confuses the two fails.
pub(crate) const FIRST_DESCRIPTOR: RawFd = 10_000;

/// The object that a descriptor refers to: its kind, and its number among objects of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    Socket(u32),
    Ring(u32),
    /// A file on a disk: the number of the disk, and of the open file there.
    OnDisk(u32, u32),
    Epoll(u32),
    Timer(u32),
}

pub(crate) type FileId = u32;

/// A watched file and the descriptor under which it was registered: the key in an epoll instance.
pub(crate) type WatchKey = (RawFd, FileId);
/// A registration as the file sees it: the number of the epoll instance, and the key there.
pub(crate) type Watcher = (u32, WatchKey);

#[derive(Debug)]
struct CountedFile {
    file: File,
    holders: u32,
}

/// The descriptor table of the process.
#[derive(Debug)]
pub(crate) struct Descriptors {
    table: Vec<Option<FileId>>,
    free: BinaryHeap<Reverse<u32>>,
    files: Slab<CountedFile>,
    limit: usize,
}

impl Descriptors {
    pub(crate) fn new(limit: usize) -> Self {
        Self { table: Vec::new(), free: BinaryHeap::new(), files: Slab::new(), limit }
    }

    pub(crate) fn has_free(&self) -> bool {
        self.free() > 0
    }

    /// Returns how many more descriptors can be opened.
    pub(crate) fn free(&self) -> usize {
        self.limit.saturating_sub(self.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.free.len()
    }

    /// Opens the lowest free descriptor for a new file.
    pub(crate) fn open(&mut self, file: File) -> Result<RawFd, Errno> {
        if !self.has_free() {
            return Err(Errno::MFILE);
        }
        let id = self.files.insert(CountedFile { file, holders: 1 });
        Ok(self.slot(id))
    }

    /// Opens another descriptor for a file. If that succeeds, the descriptor takes over one of the
    /// caller's references.
    pub(crate) fn install(&mut self, id: FileId) -> Result<RawFd, Errno> {
        if self.has_free() { Ok(self.slot(id)) } else { Err(Errno::MFILE) }
    }

    fn slot(&mut self, id: FileId) -> RawFd {
        let slot = match self.free.pop() {
            Some(Reverse(slot)) => {
                self.table[slot as usize] = Some(id);
                slot as usize
            }
            None => {
                self.table.push(Some(id));
                self.table.len() - 1
            }
        };
        FIRST_DESCRIPTOR + slot as RawFd
    }

    #[inline]
    pub(crate) fn find(&self, fd: RawFd) -> Result<(FileId, File), Errno> {
        let slot = fd.checked_sub(FIRST_DESCRIPTOR).and_then(|slot| usize::try_from(slot).ok());
        let id = slot.and_then(|slot| *self.table.get(slot)?).ok_or(Errno::BADF)?;
        Ok((id, self.files.at(id).file))
    }

    /// Returns a file by its number, while it is open.
    #[inline]
    pub(crate) fn file(&self, id: FileId) -> Option<File> {
        self.files.find(id).map(|open| open.file)
    }

    /// Adds a reference to a file.
    #[inline]
    pub(crate) fn hold(&mut self, id: FileId) {
        self.files.at_mut(id).holders += 1;
    }

    /// Drops a reference. Returns a file that has no references left, so that the caller closes it.
    #[inline]
    pub(crate) fn release(&mut self, id: FileId) -> Option<File> {
        let open = self.files.at_mut(id);
        open.holders -= 1;
        (open.holders == 0).then(|| self.files.remove(id).file)
    }

    /// Closes a descriptor and drops its reference to the file, like [`release`](Self::release).
    pub(crate) fn close(&mut self, fd: RawFd) -> Result<Option<File>, Errno> {
        let (id, _) = self.find(fd)?;
        let slot = (fd - FIRST_DESCRIPTOR) as u32;
        self.table[slot as usize] = None;
        self.free.push(Reverse(slot));
        Ok(self.release(id))
    }

    /// Returns the files without a descriptor: an operation holds them, or a message passes them.
    pub(crate) fn without_descriptor(&self) -> impl Iterator<Item = File> {
        let with_descriptor: BTreeSet<FileId> = self.table.iter().flatten().copied().collect();
        let hidden = self.files.iter().filter(move |(id, _)| !with_descriptor.contains(id));
        hidden.map(|(_, open)| open.file)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RawFd, File)> {
        let open = (FIRST_DESCRIPTOR..).zip(&self.table);
        open.filter_map(|(fd, id)| Some((fd, self.files.at((*id)?).file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_takes_the_lowest_free_number_up_to_the_limit() {
        let mut table = Descriptors::new(3);
        let fds: Vec<_> = (0..3).map(|n| table.open(File::Socket(n)).unwrap()).collect();
        assert_eq!(fds, [FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + 1, FIRST_DESCRIPTOR + 2]);
        assert_eq!(table.open(File::Ring(0)), Err(Errno::MFILE));
        assert_eq!(table.close(fds[1]), Ok(Some(File::Socket(1))));
        assert_eq!(table.close(fds[0]), Ok(Some(File::Socket(0))));
        assert_eq!(table.close(fds[0]), Err(Errno::BADF));
        assert_eq!(table.open(File::Ring(0)), Ok(FIRST_DESCRIPTOR));
        assert_eq!(table.find(3), Err(Errno::BADF));
        assert_eq!(table.find(-1), Err(Errno::BADF));
    }

    #[test]
    fn held_file_outlives_its_descriptor() {
        let mut table = Descriptors::new(3);
        let fd = table.open(File::Socket(9)).unwrap();
        let (id, _) = table.find(fd).unwrap();
        table.hold(id);
        assert_eq!(table.close(fd), Ok(None));
        assert_eq!((table.find(fd), table.len()), (Err(Errno::BADF), 0));
        assert_eq!(table.without_descriptor().collect::<Vec<_>>(), [File::Socket(9)]);
        assert_eq!(table.release(id), Some(File::Socket(9)));
    }

    #[test]
    fn file_with_two_descriptors_closes_with_the_second() {
        let mut table = Descriptors::new(2);
        let fd = table.open(File::Socket(9)).unwrap();
        let (id, _) = table.find(fd).unwrap();
        table.hold(id);
        let other = table.install(id).unwrap();
        assert_eq!((table.find(other), table.install(id)), (table.find(fd), Err(Errno::MFILE)));
        assert_eq!(table.close(fd), Ok(None));
        assert_eq!(table.close(other), Ok(Some(File::Socket(9))));
    }
}
