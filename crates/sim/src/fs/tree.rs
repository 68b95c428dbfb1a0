//! Directories and names, and a journal of changes that are not on the device yet.

use super::pages::Pages;
use crate::random::Random;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// The number of an inode, which is never reused.
pub(super) type Ino = u64;

pub(super) const ROOT_INO: Ino = 1;
const MAX_NAME_BYTES: usize = 255;

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) node: Node,
    pub(super) mode: u32,
    pub(super) links: u32,
    /// How many times the inode is open.
    pub(super) opens: u32,
    /// Number of failed syncs. Each open file reports those that it has not reported yet, as one
    /// error.
    pub(super) errors: u32,
    /// Whether no open file has reported the last error, so that the next open will.
    pub(super) is_error_new: bool,
}

impl Inode {
    fn new(node: Node, mode: u32, links: u32) -> Self {
        Self { node, mode, links, opens: 0, errors: 0, is_error_new: false }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Pages),
    Dir { entries: Entries, parent: Ino },
}

type Entries = BTreeMap<Vec<u8>, Ino>;

/// Names that change together: the directory and the new inode of each name, or `None` for a
/// removed name.
type NameChange = Vec<(Ino, Vec<u8>, Option<Ino>)>;

#[derive(Clone, Debug)]
pub(super) struct Tree {
    inodes: BTreeMap<Ino, Inode>,
    next: Ino,
    /// The directories on the device, and the changes that are not there yet.
    durable: BTreeMap<Ino, Entries>,
    journal: Vec<NameChange>,
}

impl Tree {
    pub(super) fn new() -> Self {
        let root = Inode::new(Node::directory(ROOT_INO), 0o755, 2);
        let inodes = BTreeMap::from([(ROOT_INO, root)]);
        Self { inodes, next: ROOT_INO + 1, durable: BTreeMap::new(), journal: Vec::new() }
    }

    pub(super) fn inode(&self, ino: Ino) -> &Inode {
        self.inodes.get(&ino).expect("a named or open inode is missing")
    }

    pub(super) fn inode_mut(&mut self, ino: Ino) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("a named or open inode is missing")
    }

    pub(super) fn files_mut(&mut self) -> impl Iterator<Item = &mut Pages> {
        self.inodes.values_mut().filter_map(|inode| match &mut inode.node {
            Node::File(pages) => Some(pages),
            Node::Dir { .. } => None,
        })
    }

    /// Returns the number of pages of all files that have a name or are open.
    pub(super) fn pages(&self) -> usize {
        let alive = self.inodes.values().filter(|inode| inode.links + inode.opens > 0);
        alive.map(|inode| if let Node::File(pages) = &inode.node { pages.count() } else { 0 }).sum()
    }

    pub(super) fn entries(&self, dir: Ino) -> Result<&Entries, Errno> {
        match &self.inode(dir).node {
            Node::Dir { entries, .. } => Ok(entries),
            Node::File(_) => Err(Errno::NOTDIR),
        }
    }

    /// Returns true if an inode has no name left.
    pub(super) fn is_removed(&self, ino: Ino) -> bool {
        self.inode(ino).links == 0
    }

    pub(super) fn find(&self, from: Ino, path: &[u8]) -> Result<Ino, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let start = if path[0] == b'/' { ROOT_INO } else { from };
        let mut steps = path.split(|byte| *byte == b'/').filter(|step| !step.is_empty());
        let ino = steps.try_fold(start, |at, step| self.step(at, step))?;
        if path.ends_with(b"/") { self.entries(ino).map(|_| ino) } else { Ok(ino) }
    }

    fn step(&self, at: Ino, step: &[u8]) -> Result<Ino, Errno> {
        if step.len() > MAX_NAME_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        let Node::Dir { entries, parent } = &self.inode(at).node else { return Err(Errno::NOTDIR) };
        match step {
            b"." => Ok(at),
            b".." => Ok(*parent),
            name => entries.get(name).copied().ok_or(Errno::NOENT),
        }
    }

    /// Returns the parent directory and the last name of a path, which need not exist.
    pub(super) fn parent_and_name<'a>(
        &self,
        from: Ino,
        path: &'a [u8],
    ) -> Result<(Ino, &'a [u8]), Errno> {
        let end = path.iter().rposition(|byte| *byte != b'/').ok_or(Errno::NOENT)? + 1;
        let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (name, dir) = (&path[start..end], &path[..start]);
        let dir = if dir.is_empty() { from } else { self.find(from, dir)? };
        self.entries(dir)?;
        if self.is_removed(dir) {
            return Err(Errno::NOENT);
        }
        match name {
            b"." | b".." => Err(Errno::INVAL),
            _ if name.len() > MAX_NAME_BYTES => Err(Errno::NAMETOOLONG),
            _ => Ok((dir, name)),
        }
    }

    /// Creates an inode under a free name.
    pub(super) fn create(&mut self, (dir, name): (Ino, &[u8]), node: Node, mode: u32) -> Ino {
        let ino = self.next;
        self.next += 1;
        let links = if let Node::Dir { .. } = node { 2 } else { 1 };
        self.inodes.insert(ino, Inode::new(node, mode, links));
        self.change(vec![(dir, name.to_vec(), Some(ino))]);
        ino
    }

    /// Changes names together; the change stays in the journal until a commit.
    pub(super) fn change(&mut self, change: NameChange) {
        for (dir, name, ino) in &change {
            if let Node::Dir { entries, .. } = &mut self.inode_mut(*dir).node {
                match *ino {
                    Some(ino) => drop(entries.insert(name.clone(), ino)),
                    None => drop(entries.remove(name)),
                }
            }
        }
        self.journal.push(change);
    }

    /// Writes the name changes in a directory to the device, and earlier changes in other
    /// directories that they depend on.
    pub(super) fn commit(&mut self, dir: Ino) {
        let mut dirs = BTreeSet::from([dir]);
        let (mut committed, mut left) = (Vec::new(), Vec::new());
        for change in std::mem::take(&mut self.journal).into_iter().rev() {
            if change.iter().any(|(dir, ..)| dirs.contains(dir)) {
                dirs.extend(change.iter().map(|(dir, ..)| *dir));
                committed.push(change);
            } else {
                left.push(change);
            }
        }
        left.reverse();
        self.journal = left;
        self.apply(committed.into_iter().rev());
    }

    /// Empties the journal, and returns the changes that survive a power cut: a random number of
    /// the oldest changes in each directory. A change that affects two directories is kept or lost
    /// in both.
    fn take_kept_changes(&mut self, random: &mut Random) -> Vec<NameChange> {
        let mut left = BTreeMap::new();
        for (dir, ..) in self.journal.iter().flatten() {
            *left.entry(*dir).or_insert(0) += 1;
        }
        left.values_mut().for_each(|count| *count = random.below(*count + 1));
        let mut kept = std::mem::take(&mut self.journal);
        kept.retain(|change| {
            let is_kept = change.iter().all(|(dir, ..)| left[dir] > 0);
            for (dir, ..) in change {
                let count = left.get_mut(dir).expect("counted above");
                *count = if is_kept { count.saturating_sub(1) } else { 0 };
            }
            is_kept
        });
        kept
    }

    fn apply(&mut self, changes: impl IntoIterator<Item = NameChange>) {
        for (dir, name, ino) in changes.into_iter().flatten() {
            let entries = self.durable.entry(dir).or_default();
            match ino {
                Some(ino) => drop(entries.insert(name, ino)),
                None => drop(entries.remove(&name)),
            }
        }
        self.sweep();
    }

    /// Removes inodes that are not open and have no name in the directories, on the device or in
    /// the journal. Directories above an open one stay, because paths from there may lead to them.
    pub(super) fn sweep(&mut self) {
        let named = self.durable.values().flat_map(BTreeMap::values).copied();
        let noted = self.journal.iter().flatten().filter_map(|(.., ino)| *ino);
        let mut needed: BTreeSet<Ino> = named.chain(noted).collect();
        for mut inode in self.inodes.values().filter(|inode| inode.opens > 0) {
            while let Node::Dir { parent, .. } = inode.node
                && parent != ROOT_INO
            {
                needed.insert(parent);
                inode = self.inode(parent);
            }
        }
        self.inodes.retain(|ino, it| it.links + it.opens > 0 || needed.contains(ino));
        self.durable.retain(|ino, _| self.inodes.contains_key(ino));
    }

    /// Replaces the tree with what remains after a power cut: the name changes that are on the
    /// device, a random number of the oldest other changes in each directory, and what
    /// [`Pages::cut_power`] leaves of each file.
    pub(super) fn cut_power(&mut self, random: &mut Random) {
        let kept = self.take_kept_changes(random);
        self.apply(kept);
        let durable = self.durable.clone();
        for inode in self.inodes.values_mut() {
            (inode.links, inode.opens, inode.is_error_new) = (0, 0, false);
        }
        self.restore(ROOT_INO, ROOT_INO, &durable);
        self.sweep();
        self.files_mut().for_each(|pages| pages.cut_power(random));
    }

    /// Restores a directory and everything below it from the device.
    fn restore(&mut self, dir: Ino, above: Ino, durable: &BTreeMap<Ino, Entries>) {
        let kept = durable.get(&dir).cloned().unwrap_or_default();
        let inode = self.inode_mut(dir);
        inode.links = 2;
        inode.node = Node::Dir { entries: kept.clone(), parent: above };
        for ino in kept.into_values() {
            match self.inode(ino).node {
                Node::Dir { .. } => {
                    // The link `..` of the subdirectory.
                    self.inode_mut(dir).links += 1;
                    self.restore(ino, dir, durable);
                }
                Node::File(_) => self.inode_mut(ino).links += 1,
            }
        }
    }
}

impl Node {
    pub(super) fn directory(parent: Ino) -> Self {
        Self::Dir { entries: Entries::new(), parent }
    }
}
