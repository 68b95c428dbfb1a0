//! Descriptors and the files behind them. A file lives as long as its descriptor or an operation on it.

use crate::slab::Slab;
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::os::fd::RawFd;

/// The first descriptor: far above those that the process has from Linux, so that the two are not mixed up unnoticed.
pub(crate) const FIRST: RawFd = 10_000;

/// What a descriptor stands for, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    Socket(u32),
    Ring(u32),
    Open(u32),
}

/// A file's number.
pub(crate) type FileId = u32;

#[derive(Debug)]
struct Open {
    file: File,
    holders: u32,
}

/// The process's table of descriptors.
#[derive(Debug)]
pub(crate) struct Descriptors {
    table: Vec<Option<FileId>>,
    free: BinaryHeap<Reverse<u32>>,
    files: Slab<Open>,
    most: usize,
}

impl Descriptors {
    pub(crate) fn new(most: usize) -> Self {
        Self { table: Vec::new(), free: BinaryHeap::new(), files: Slab::new(), most }
    }

    /// Whether another one could be opened.
    pub(crate) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// How many more could be opened.
    pub(crate) fn room(&self) -> usize {
        self.most.saturating_sub(self.len())
    }

    /// Descriptors that are open.
    pub(crate) fn len(&self) -> usize {
        self.table.len() - self.free.len()
    }

    /// The lowest free descriptor, now open.
    pub(crate) fn open(&mut self, file: File) -> Result<RawFd, Errno> {
        if !self.has_room() {
            return Err(Errno::MFILE);
        }
        let id = self.files.insert(Open { file, holders: 1 });
        Ok(self.place(id))
    }

    /// Gives a file that is held a descriptor, to which the hold passes.
    pub(crate) fn install(&mut self, id: FileId) -> Result<RawFd, Errno> {
        if self.has_room() { Ok(self.place(id)) } else { Err(Errno::MFILE) }
    }

    fn place(&mut self, id: FileId) -> RawFd {
        let place = match self.free.pop() {
            Some(Reverse(place)) => {
                self.table[place as usize] = Some(id);
                place as usize
            }
            None => {
                self.table.push(Some(id));
                self.table.len() - 1
            }
        };
        FIRST + place as RawFd
    }

    #[inline]
    pub(crate) fn find(&self, fd: RawFd) -> Result<(FileId, File), Errno> {
        let place = fd.checked_sub(FIRST).and_then(|place| usize::try_from(place).ok());
        let id = place.and_then(|place| *self.table.get(place)?).ok_or(Errno::BADF)?;
        Ok((id, self.files.at(id).file))
    }

    /// Keeps a file alive beyond its descriptor.
    #[inline]
    pub(crate) fn hold(&mut self, id: FileId) {
        self.files.at_mut(id).holders += 1;
    }

    /// Ends a hold. What nobody holds any more is handed out, to be torn down.
    #[inline]
    pub(crate) fn release(&mut self, id: FileId) -> Option<File> {
        let open = self.files.at_mut(id);
        open.holders -= 1;
        (open.holders == 0).then(|| self.files.remove(id).file)
    }

    /// Frees a descriptor; as [`release`](Self::release).
    pub(crate) fn close(&mut self, fd: RawFd) -> Result<Option<File>, Errno> {
        let (id, _) = self.find(fd)?;
        let place = (fd - FIRST) as u32;
        self.table[place as usize] = None;
        self.free.push(Reverse(place));
        Ok(self.release(id))
    }

    /// Files that have no descriptor: operations hold them, or they are being passed along.
    pub(crate) fn without_descriptor(&self) -> impl Iterator<Item = File> {
        let placed: BTreeSet<FileId> = self.table.iter().flatten().copied().collect();
        let hidden = self.files.iter().filter(move |(id, _)| !placed.contains(id));
        hidden.map(|(_, open)| open.file)
    }

    /// Everything that is open: descriptor and file.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RawFd, File)> {
        let open = (FIRST..).zip(&self.table);
        open.filter_map(|(fd, id)| Some((fd, self.files.at((*id)?).file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_descriptor_is_next_and_the_limit_holds() {
        let mut table = Descriptors::new(3);
        let fds: Vec<_> = (0..3).map(|n| table.open(File::Socket(n)).unwrap()).collect();
        assert_eq!(fds, [FIRST, FIRST + 1, FIRST + 2]);
        assert_eq!(table.open(File::Ring(0)), Err(Errno::MFILE));
        assert_eq!(table.close(fds[1]), Ok(Some(File::Socket(1))));
        assert_eq!(table.close(fds[0]), Ok(Some(File::Socket(0))));
        assert_eq!(table.close(fds[0]), Err(Errno::BADF));
        assert_eq!(table.open(File::Ring(0)), Ok(FIRST));
        assert_eq!(table.find(3), Err(Errno::BADF));
        assert_eq!(table.find(-1), Err(Errno::BADF));
    }

    #[test]
    fn a_held_file_outlives_its_descriptor() {
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
    fn a_file_can_have_two_descriptors() {
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
