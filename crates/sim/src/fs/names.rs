//! Calls on names: create, link, rename, remove and list.

use super::disk::{AnchoredPath, Disk, OpenId};
use super::pages::PAGE_SIZE;
use super::tree::{Ino, Node};
use crate::memory_range::MemoryRange;
use annulus_kernel::file::FileStat;
use rustix::io::Errno;

/// `d_type` of directory entries.
const DT_DIR: u8 = 4;
const DT_REG: u8 = 8;

impl Disk {
    fn is_directory(&self, ino: Ino) -> bool {
        matches!(self.tree.inode(ino).node, Node::Dir { .. })
    }

    pub(crate) fn remove(&mut self, at: &AnchoredPath, directory: bool) -> Result<usize, Errno> {
        let from = self.start_inode(at)?;
        let (dir, name) = match self.tree.parent_and_name(from, &at.path) {
            Err(Errno::INVAL) if !directory => return Err(Errno::ISDIR),
            Err(Errno::INVAL) if at.last_step() == Some(&b".."[..]) => return Err(Errno::NOTEMPTY),
            parent => parent?,
        };
        let ino = self.tree.find(from, &at.path)?;
        self.check_removal(ino, directory)?;
        self.tree.change(vec![(dir, name.to_vec(), None)]);
        self.remove_name(ino, dir);
        Ok(0)
    }

    fn check_removal(&self, ino: Ino, directory: bool) -> Result<(), Errno> {
        match (directory, self.is_directory(ino)) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            (true, true) if !self.tree.entries(ino)?.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Removes a link to an inode. For a directory, that also removes its own link `.` and the link
    /// `..` to its parent.
    fn remove_name(&mut self, ino: Ino, dir: Ino) {
        if self.is_directory(ino) {
            self.tree.inode_mut(ino).links = 0;
            self.tree.inode_mut(dir).links -= 1;
        } else {
            self.tree.inode_mut(ino).links -= 1;
        }
        self.tree.sweep();
    }

    pub(crate) fn rename(
        &mut self,
        from: &AnchoredPath,
        to: &AnchoredPath,
        replace: bool,
    ) -> Result<usize, Errno> {
        let (start, end) = (self.start_inode(from)?, self.start_inode(to)?);
        let old = self.tree.parent_and_name(start, &from.path);
        let new = self.tree.parent_and_name(end, &to.path);
        let ((old_dir, old_name), (new_dir, new_name)) = match (old, new) {
            (Err(errno), _) | (_, Err(errno)) if errno != Errno::INVAL => return Err(errno),
            // One of the names is `.` or `..`.
            (Err(_), _) => return Err(Errno::BUSY),
            (_, Err(_)) => return Err(if replace { Errno::BUSY } else { Errno::EXIST }),
            (Ok(old), Ok(new)) => (old, new),
        };
        let ino = self.tree.entries(old_dir)?.get(old_name).copied().ok_or(Errno::NOENT)?;
        let target = self.tree.entries(new_dir)?.get(new_name).copied();
        if target.is_some() && !replace {
            return Err(Errno::EXIST);
        }
        if (from.demands_directory() || to.demands_directory()) && !self.is_directory(ino) {
            return Err(Errno::NOTDIR);
        }
        if self.is_within(new_dir, ino) {
            return Err(Errno::INVAL);
        }
        if target.is_some_and(|target| self.is_within(old_dir, target)) {
            return Err(Errno::NOTEMPTY);
        }
        if target == Some(ino) {
            return Ok(0);
        }
        if let Some(target) = target {
            self.check_removal(target, self.is_directory(ino))?;
        }
        let gone = (old_dir, old_name.to_vec(), None);
        self.tree.change(vec![gone, (new_dir, new_name.to_vec(), Some(ino))]);
        self.move_directory(ino, old_dir, new_dir);
        if let Some(target) = target {
            self.remove_name(target, new_dir);
        }
        Ok(0)
    }

    /// Returns true if `dir` is `above` or is inside it.
    fn is_within(&self, mut dir: Ino, above: Ino) -> bool {
        while let Node::Dir { parent, .. } = self.tree.inode(dir).node {
            if dir == above || parent == dir {
                return dir == above;
            }
            dir = parent;
        }
        false
    }

    fn move_directory(&mut self, ino: Ino, old: Ino, new: Ino) {
        if let Node::Dir { parent, .. } = &mut self.tree.inode_mut(ino).node {
            *parent = new;
            self.tree.inode_mut(old).links -= 1;
            self.tree.inode_mut(new).links += 1;
        }
    }

    pub(crate) fn link(&mut self, from: &AnchoredPath, to: &AnchoredPath) -> Result<usize, Errno> {
        let ino = self.tree.find(self.start_inode(from)?, &from.path)?;
        let (dir, name) = self.free_name(to)?;
        if to.demands_directory() {
            return Err(Errno::NOENT);
        }
        if self.is_directory(ino) {
            return Err(Errno::PERM);
        }
        self.tree.change(vec![(dir, name.to_vec(), Some(ino))]);
        self.tree.inode_mut(ino).links += 1;
        Ok(0)
    }

    pub(crate) fn make_dir(&mut self, at: &AnchoredPath, mode: u32) -> Result<usize, Errno> {
        let name = self.free_name(at)?;
        self.tree.create(name, Node::directory(name.0), mode & 0o7777);
        self.tree.inode_mut(name.0).links += 1;
        Ok(0)
    }

    /// Returns the parent and the name of a path that does not exist.
    fn free_name<'a>(&self, at: &'a AnchoredPath) -> Result<(Ino, &'a [u8]), Errno> {
        let start = self.start_inode(at)?;
        if self.tree.find(start, &at.path).is_ok() {
            return Err(Errno::EXIST);
        }
        let (dir, name) = self.tree.parent_and_name(start, &at.path)?;
        // The path of a file that ends in a slash leads nowhere, but the name is taken.
        if self.tree.entries(dir)?.contains_key(name) { Err(Errno::EXIST) } else { Ok((dir, name)) }
    }

    pub(crate) fn set_mode(&mut self, at: &AnchoredPath, mode: u32) -> Result<usize, Errno> {
        let ino = self.tree.find(self.start_inode(at)?, &at.path)?;
        self.set_mode_of(ino, mode)
    }

    pub(crate) fn set_mode_of(&mut self, ino: Ino, mode: u32) -> Result<usize, Errno> {
        self.tree.inode_mut(ino).mode = mode & 0o7777;
        Ok(0)
    }

    /// Writes the entries from the cursor on, each a `struct linux_dirent64`, as many as fit.
    pub(crate) fn read_dir(&mut self, file: OpenId, into: MemoryRange) -> Result<usize, Errno> {
        let ino = self.ino(file);
        let Node::Dir { parent, entries } = &self.tree.inode(ino).node else {
            return Err(Errno::NOTDIR);
        };
        if self.tree.is_removed(ino) {
            return Err(Errno::NOENT);
        }
        let own = [(0, &b"."[..], ino), (1, &b".."[..], *parent)];
        let named = entries.iter().map(|(name, ino)| (position(name), &name[..], *ino));
        let from = self.cursor(file);
        let mut left: Vec<_> =
            own.into_iter().chain(named).filter(|(at, ..)| *at >= from).collect();
        left.sort_unstable();
        let (mut cursor, mut bytes) = (from, Vec::new());
        for (at, name, ino) in &left {
            let kind = if self.is_directory(*ino) { DT_DIR } else { DT_REG };
            let entry = entry(name, *ino, at + 1, kind);
            if bytes.len() + entry.len() > into.len() {
                break;
            }
            bytes.extend(entry);
            cursor = at + 1;
        }
        if bytes.is_empty() && !left.is_empty() {
            return Err(Errno::INVAL);
        }
        self.opened(file).cursor = cursor;
        into.put(&bytes);
        Ok(bytes.len())
    }
}

/// Returns the position of a name in its directory: a hash of the name (FNV-1a), so that it does
/// not depend on other names, as in ext4.
fn position(name: &[u8]) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    // Positions 0 and 1 are those of `.` and `..`, and no position is negative as an offset.
    2 + (name.iter().fold(0xcbf2_9ce4_8422_2325, hash) >> 2)
}

/// Encodes a `struct linux_dirent64`: inode, offset of the next entry, length, type, name.
fn entry(name: &[u8], ino: Ino, next: u64, kind: u8) -> Vec<u8> {
    let len = (19 + name.len() + 1).next_multiple_of(8);
    let mut bytes = Vec::with_capacity(len);
    bytes.extend(ino.to_ne_bytes());
    bytes.extend(next.to_ne_bytes());
    bytes.extend((len as u16).to_ne_bytes());
    bytes.push(kind);
    bytes.extend(name);
    bytes.resize(len, 0);
    bytes
}

pub(super) fn stat(
    inode: Ino,
    links: u32,
    mode: u32,
    size: u64,
    pages: usize,
    alignment: u32,
) -> FileStat {
    let mut stat = FileStat::default();
    (stat.mask, stat.block_size, stat.dev_major) = (FileStat::WANTED_FIELDS, PAGE_SIZE as u32, 1);
    (stat.inode, stat.links, stat.mode, stat.size) = (inode, links, mode as u16, size);
    stat.blocks = (pages * PAGE_SIZE / 512) as u64;
    (stat.direct_memory_align, stat.direct_offset_align) = (alignment, alignment);
    stat
}
