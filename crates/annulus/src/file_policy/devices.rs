//! A cache of the places of directories: on which device each one is, or that it may hang.

use super::places::Place;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of cached directories. A full cache is emptied.
const MAX_DIRECTORIES: usize = 1024;
/// 2^64 divided by the golden ratio, rounded to an odd number: multiplying by it spreads each bit
/// over the bits above it.
const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A path in the file system: the serial number of the directory that it starts from, and the path.
#[derive(Clone, Copy)]
pub(crate) struct PathEntry<'a> {
    start: u64,
    path: &'a [u8],
}

impl<'a> PathEntry<'a> {
    pub(crate) fn new(start: u64, path: &'a Path) -> Self {
        Self { start, path: path.as_os_str().as_bytes() }
    }

    pub(super) fn path(self) -> &'a [u8] {
        self.path
    }

    pub(super) fn is_absolute(self) -> bool {
        self.path.first() == Some(&b'/')
    }

    /// Returns the path of the parent directory: everything up to and including the last slash, or
    /// the whole path if it ends with `.` or `..`.
    pub(super) fn parent(self) -> &'a [u8] {
        let slash = self.path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = self.path.split_at(slash.map_or(0, |slash| slash + 1));
        if is_name(name) { parent } else { self.path }
    }

    /// Returns the path of the parent directory in the form that system calls take.
    pub(crate) fn parent_or_dot(self) -> &'a [u8] {
        if self.parent().is_empty() { b"." } else { self.parent() }
    }

    /// Returns the group for calls that look up the place of the parent directory.
    pub(crate) fn parent_group(self) -> u64 {
        self.hash() | 1 << 63
    }

    pub(super) fn path_hash(self) -> u64 {
        self.hash_of(self.path)
    }

    fn hash(self) -> u64 {
        self.hash_of(self.parent())
    }

    fn hash_of(self, path: &[u8]) -> u64 {
        let (words, rest) = path.as_chunks::<8>();
        let mut hash = self.start;
        let mut add = |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(HASH_MULTIPLIER);
        words.iter().for_each(|word| add(u64::from_ne_bytes(*word)));
        rest.iter().for_each(|byte| add(u64::from(*byte)));
        hash
    }
}

fn is_name(name: &[u8]) -> bool {
    name != b"." && name != b".."
}

#[derive(Default)]
pub(crate) struct Devices {
    last: Option<LastDirectory>,
    by_hash: HashMap<u64, Place, BuildHasherDefault<IdentityHasher>>,
}

/// The directory found last: comparing with it takes half as long as hashing.
struct LastDirectory {
    start: u64,
    parent: Box<[u8]>,
    place: Place,
}

impl LastDirectory {
    fn has(&self, entry: PathEntry<'_>) -> bool {
        let name = entry.path.strip_prefix(&*self.parent);
        self.start == entry.start && name.is_some_and(|name| is_name(name) && !name.contains(&b'/'))
    }
}

impl Devices {
    #[inline]
    pub(crate) fn find(&mut self, entry: PathEntry<'_>) -> Option<Place> {
        match &self.last {
            Some(last) if last.has(entry) => Some(last.place),
            _ => self.look_up(entry),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, entry: PathEntry<'_>) -> Option<Place> {
        let place = self.by_hash.get(&entry.hash()).copied()?;
        self.last =
            Some(LastDirectory { start: entry.start, parent: entry.parent().into(), place });
        Some(place)
    }

    pub(crate) fn insert(&mut self, entry: PathEntry<'_>, place: Place) {
        self.last = None;
        if self.by_hash.len() >= MAX_DIRECTORIES {
            self.by_hash.clear();
        }
        self.by_hash.insert(entry.hash(), place);
    }

    pub(crate) fn clear(&mut self) {
        self.last = None;
        self.by_hash.clear();
    }
}

/// A hasher for keys that are already hashes.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::latency::LatencyPolicy;
    use super::*;

    fn entry(path: &str) -> PathEntry<'_> {
        PathEntry::new(0, Path::new(path))
    }

    #[test]
    fn find_matches_only_direct_entries_of_a_directory() {
        let mut latency = LatencyPolicy::new();
        let [one, other] = [7, 8].map(|number| Place::Local(latency.device(number)));
        let mut devices = Devices::default();
        devices.insert(entry("/a/one/x"), one);
        devices.insert(entry("/a/other/x"), other);
        // The first lookup of a directory goes through the map, the second one through `last`.
        for path in ["/a/one/y", "/a/one/y", "/a/other/y", "/a/other/y", "/a/one/"] {
            let device = if path.contains("one") { one } else { other };
            assert_eq!(devices.find(entry(path)), Some(device), "{path}");
        }
        for unknown in
            ["/a/one/x/y", "/a/one", "/a/onez", "one/x", "x", "", "/a/one/..", "/a/one/."]
        {
            assert_eq!(devices.find(entry(unknown)), None, "{unknown}");
        }
        assert_eq!(
            devices.find(PathEntry::new(5, Path::new("/a/one/x"))),
            None,
            "found from another start"
        );
    }

    #[test]
    fn the_cache_is_bounded() {
        let (mut latency, mut devices) = (LatencyPolicy::new(), Devices::default());
        for number in 0..10 * MAX_DIRECTORIES {
            devices.insert(entry(&format!("/{number}/file")), Place::Local(latency.device(7)));
        }
        assert!(devices.by_hash.len() <= MAX_DIRECTORIES);
    }
}
