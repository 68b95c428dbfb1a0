//! Which device a folder is on, by its path: a guess, and only speed depends on it.

use super::file::OpenFile;
use super::latency::DeviceId;
use crate::runtime::core::Core;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Folders whose device is remembered.
const MOST: usize = 1024;
/// 2^64 divided by the golden ratio, odd: it spreads each bit over those above it.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The folder that something is in: where its path starts, and its path.
#[derive(Clone, Copy)]
pub(crate) struct Folder<'a> {
    dir: i32,
    path: &'a [u8],
}

impl<'a> Folder<'a> {
    pub(crate) fn of(dir: i32, path: &'a Path) -> Self {
        Self { dir, path: path.as_os_str().as_bytes() }
    }

    /// The device it was last seen on.
    pub(crate) fn device(self, core: &Core) -> Option<DeviceId> {
        core.files.folders.borrow_mut().device(self)
    }

    /// Notes the device of a file in it.
    pub(crate) fn learn(self, core: &Core, file: &OpenFile) -> DeviceId {
        let device = core.files.habits.borrow_mut().device(file.device_number());
        core.files.folders.borrow_mut().note(self, device);
        device
    }

    /// Its own path, up to the last slash and with it.
    fn parent(self) -> &'a [u8] {
        let slash = self.path.iter().rposition(|byte| *byte == b'/');
        &self.path[..slash.map_or(0, |slash| slash + 1)]
    }

    fn hash(self) -> u64 {
        let (words, rest) = self.parent().as_chunks::<8>();
        let mut hash = self.dir as u64;
        let mut add = |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(MIX);
        words.iter().for_each(|word| add(u64::from_ne_bytes(*word)));
        rest.iter().for_each(|byte| add(u64::from(*byte)));
        hash
    }
}

/// The folders that were seen, and first of all the last of them.
#[derive(Default)]
pub(crate) struct Folders {
    last: Option<Last>,
    devices: HashMap<u64, DeviceId, BuildHasherDefault<Hashed>>,
}

/// The folder that was asked for last: looking there first takes half as long as any hash.
struct Last {
    dir: i32,
    parent: Box<[u8]>,
    device: DeviceId,
}

impl Last {
    fn has(&self, folder: Folder<'_>) -> bool {
        let name = folder.path.strip_prefix(&*self.parent);
        self.dir == folder.dir && name.is_some_and(|name| !name.contains(&b'/'))
    }
}

impl Folders {
    #[inline]
    fn device(&mut self, folder: Folder<'_>) -> Option<DeviceId> {
        match &self.last {
            Some(last) if last.has(folder) => Some(last.device),
            _ => self.look_up(folder),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, folder: Folder<'_>) -> Option<DeviceId> {
        let device = self.devices.get(&folder.hash()).copied()?;
        self.last = Some(Last { dir: folder.dir, parent: folder.parent().into(), device });
        Some(device)
    }

    fn note(&mut self, folder: Folder<'_>, device: DeviceId) {
        if self.devices.len() >= MOST {
            self.devices.clear();
        }
        self.devices.insert(folder.hash(), device);
    }
}

/// For keys that are hashes already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
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
    use super::*;
    use crate::fs::latency::Habits;

    fn folder(path: &str) -> Folder<'_> {
        Folder::of(-100, Path::new(path))
    }

    #[test]
    fn a_folder_is_known_by_what_is_in_it_and_by_nothing_below_or_above() {
        let mut habits = Habits::new();
        let [one, other] = [7, 8].map(|number| habits.device(number));
        let mut folders = Folders::default();
        folders.note(folder("/a/one/x"), one);
        folders.note(folder("/a/other/x"), other);
        // Twice: the first time it is looked up, the second time it is the last.
        for path in ["/a/one/y", "/a/one/y", "/a/other/y", "/a/other/y", "/a/one/"] {
            let device = if path.contains("one") { one } else { other };
            assert_eq!(folders.device(folder(path)), Some(device), "{path}");
        }
        for unknown in ["/a/one/x/y", "/a/one", "/a/onez", "one/x", "x", ""] {
            assert_eq!(folders.device(folder(unknown)), None, "{unknown}");
        }
        assert_eq!(folders.device(Folder::of(5, Path::new("/a/one/x"))), None, "another start");
    }

    #[test]
    fn countless_folders_take_no_more_room() {
        let (mut habits, mut folders) = (Habits::new(), Folders::default());
        for number in 0..10 * MOST {
            folders.note(folder(&format!("/{number}/file")), habits.device(7));
        }
        assert!(folders.devices.len() <= MOST);
    }
}
