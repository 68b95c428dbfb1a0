//! Finds out which mount a path is on before a call is made on it: a call on a mount that may hang
//! must leave the loop.
//!
//! A directory's path is looked up in the list of mounts, and in the kernel's directory cache to
//! see that no symbolic link leads elsewhere. Links are followed by reading their targets, and each
//! step is looked up in the list before it is taken. Results are remembered until a mount changes.
//! Where that does not suffice, the caller has a thread open the directory ([`Places::learn`]).

use super::devices::{Devices, PathEntry};
use super::latency::DeviceId;
use annulus_kernel::file::mount::{self, Mount, Mounts};
use annulus_kernel::{Fd, Linux};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::BorrowedFd;

/// Marks a local directory with an entry that is covered by a mount that may hang. Each path in
/// such a directory has a group of its own.
const MIXED_GROUP: u64 = u64::MAX;
/// Bits that mark groups that are not mounts of this process: single paths, and mounts of other
/// namespaces.
const SINGLE_PATH_BIT: u64 = 1 << 63;
const OTHER_NAMESPACE_BIT: u64 = 1 << 62;

/// Maximum number of components that are followed, including those of symbolic links.
const MAX_PATH_STEPS: usize = 256;

/// Where a call on a file goes: to a device, or to a mount that may hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a device of this machine, or in memory.
    Local(DeviceId),
    /// On a mount that may keep the call waiting forever, or on an unknown one. Only a few calls
    /// per group are made at once.
    MayHang { group: u64 },
}

impl Place {
    /// Returns the place of a path about which nothing is known.
    pub(crate) fn unknown(entry: PathEntry<'_>) -> Self {
        Self::MayHang { group: entry.path_hash() | SINGLE_PATH_BIT }
    }

    /// Returns the device for the latency policy.
    pub(crate) fn device(self) -> DeviceId {
        match self {
            Self::Local(device) => device,
            Self::MayHang { .. } => DeviceId::default(),
        }
    }

    /// Returns the group of a call that may hang.
    pub(crate) fn group(self) -> Option<u64> {
        match self {
            Self::Local(_) => None,
            Self::MayHang { group } => Some(group),
        }
    }
}

/// The directory that paths start from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Distinguishes directories whose descriptors had the same number; zero is the working
    /// directory.
    pub(crate) serial: u64,
    pub(crate) dir: Option<Fd>,
    /// The group of an open directory that may hang.
    pub(crate) group: Option<u64>,
}

#[derive(Default)]
pub(super) struct Places {
    pub(super) known: Devices,
    /// `None` until the list is first needed, and while it cannot be read. Without it, the place of
    /// every path is unknown.
    mounts: Option<Mounts>,
    working_dir: Vec<u8>,
    /// The turns in which the mounts and the working directory were last read.
    mounts_turn: Option<u64>,
    dir_turn: Option<u64>,
}

impl Places {
    /// Returns the place of a path, if it is known without asking a file system. `device_of` maps a
    /// device's number to its index.
    pub(super) fn find(
        &mut self,
        start: Start,
        entry: PathEntry<'_>,
        turn: u64,
        device_of: impl FnOnce(u64) -> DeviceId,
    ) -> Option<Place> {
        let starts_here = !entry.is_absolute();
        if let (true, Some(group)) = (starts_here, start.group) {
            return Some(Place::MayHang { group });
        }
        self.renew(turn, starts_here && start.serial == 0);
        match self.known.find(entry) {
            Some(Place::MayHang { group: MIXED_GROUP }) => Some(Place::unknown(entry)),
            None => self.look_up(start, entry, device_of),
            known => known,
        }
    }

    /// Forgets all results if a mount has changed, or if the working directory is used and has
    /// changed. Checks once per turn.
    #[inline]
    fn renew(&mut self, turn: u64, uses_working_dir: bool) {
        if self.mounts_turn != Some(turn) {
            self.mounts_turn = Some(turn);
            self.renew_mounts();
        }
        if uses_working_dir && self.dir_turn != Some(turn) {
            self.dir_turn = Some(turn);
            let dir = mount::working_dir().unwrap_or_default();
            if dir != self.working_dir {
                self.known.clear();
                self.working_dir = dir;
            }
        }
    }

    fn renew_mounts(&mut self) {
        let changed = match &mut self.mounts {
            Some(mounts) => mounts.refresh(),
            None => Mounts::read().map(|mounts| self.mounts = Some(mounts)).map(|()| true),
        };
        if changed.as_ref().is_err() {
            self.mounts = None;
        }
        if changed.unwrap_or(true) {
            self.known.clear();
        }
    }

    fn look_up(
        &mut self,
        start: Start,
        entry: PathEntry<'_>,
        device_of: impl FnOnce(u64) -> DeviceId,
    ) -> Option<Place> {
        let path = normal(self.base(start, entry)?, entry.parent())?;
        let mount = self.mounts.as_ref()?.at(&path)?.clone();
        if mount.may_hang {
            return Some(self.keep(entry, &mount, &path, device_of));
        }
        let parent = entry.parent_or_dot();
        match mount::look_up(start.dir, &CString::new(parent).ok()?) {
            Ok(()) => Some(self.keep(entry, &mount, &path, device_of)),
            // The directory does not exist, so the call itself fails before it reaches another
            // mount.
            Err(Errno::NOENT | Errno::NOTDIR) => Some(Place::Local(device_of(mount.device))),
            Err(Errno::AGAIN) => None,
            // The path contains a link, or `openat2` is refused.
            Err(_) => match self.walk(start, entry, entry.parent())? {
                Reached::At(path, mount) => Some(self.keep(entry, &mount, &path, device_of)),
                Reached::Nothing(mount) => Some(Place::Local(device_of(mount.device))),
                Reached::KernelFile => None,
            },
        }
    }

    /// Returns the place of the file that a path leads to, if its last part is a symbolic link.
    pub(super) fn follow(
        &self,
        start: Start,
        entry: PathEntry<'_>,
        device_of: impl FnOnce(u64) -> DeviceId,
    ) -> Option<Place> {
        Some(match self.walk(start, entry, entry.path())? {
            Reached::At(_, mount) if mount.may_hang => Place::MayHang { group: mount.id },
            Reached::At(_, mount) | Reached::Nothing(mount) => {
                Place::Local(device_of(mount.device))
            }
            Reached::KernelFile => Place::Local(device_of(0)),
        })
    }

    /// Returns the path that an entry's path starts from, without symbolic links; empty for the
    /// root.
    fn base(&self, start: Start, entry: PathEntry<'_>) -> Option<Vec<u8>> {
        match (entry.is_absolute(), start.serial) {
            (true, _) => Some(Vec::new()),
            (false, 0) => Some(self.working_dir.clone()),
            (false, _) => mount::path_of(Linux::borrow(start.dir?)).ok(),
        }
    }

    /// Follows a path and all links in it, by reading their targets, up to a mount that may hang.
    /// Returns `None` if the result is not certain. Each step is taken in a directory on a local
    /// mount whose path has no links.
    fn walk(&self, start: Start, entry: PathEntry<'_>, path: &[u8]) -> Option<Reached> {
        let mounts = self.mounts.as_ref()?;
        let mut real = self.base(start, entry)?;
        let mut left: Vec<Vec<u8>> = parts(path).map(<[u8]>::to_vec).collect();
        for _ in 0..MAX_PATH_STEPS {
            if real == b"/" {
                real.clear();
            }
            let Some(part) = left.pop() else {
                let mount = mounts.at(if real.is_empty() { b"/" } else { &real })?.clone();
                return Some(Reached::At(real, mount));
            };
            if part == b".." {
                real.truncate(real.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                continue;
            }
            let parent = real.len();
            real.push(b'/');
            real.extend_from_slice(&part);
            let mount = mounts.at(&real)?;
            if mount.may_hang {
                return Some(Reached::At(real, mount.clone()));
            }
            let target = match mount::read_link(&real) {
                Ok(target) => target,
                Err(Errno::INVAL) => continue,
                Err(Errno::NOENT | Errno::NOTDIR) => return Some(Reached::Nothing(mount.clone())),
                Err(_) => return None,
            };
            if mount.is_proc && real[..parent] != mount.point {
                // A link below `/proc` to a file of a process, rather than to a path.
                if !is_of_this_process(&real[mount.point.len()..]) {
                    return None;
                }
                if !target.starts_with(b"/") {
                    return Some(Reached::KernelFile);
                }
                real = target;
                continue;
            }
            real.truncate(if target.starts_with(b"/") { 0 } else { parent });
            left.extend(parts(&target).map(<[u8]>::to_vec));
        }
        None
    }

    /// Learns the place of a path from its directory, which a worker thread has opened.
    pub(super) fn learn(
        &mut self,
        entry: PathEntry<'_>,
        dir: BorrowedFd<'_>,
        device_of: impl FnOnce(u64) -> DeviceId,
    ) -> Option<Place> {
        let (id, path) = (mount::id_of(dir).ok()?, mount::path_of(dir).ok()?);
        match self.mounts.as_ref()?.by_id(id).cloned() {
            Some(mount) => Some(self.keep(entry, &mount, &path, device_of)),
            None => Some(Place::MayHang { group: id | OTHER_NAMESPACE_BIT }),
        }
    }

    fn keep(
        &mut self,
        entry: PathEntry<'_>,
        mount: &Mount,
        dir: &[u8],
        device_of: impl FnOnce(u64) -> DeviceId,
    ) -> Place {
        let is_mixed = self.mounts.as_ref().is_some_and(|mounts| mounts.may_hang_in(dir));
        let place = match (mount.may_hang, is_mixed) {
            (true, _) => Place::MayHang { group: mount.id },
            (false, true) => Place::MayHang { group: MIXED_GROUP },
            (false, false) => Place::Local(device_of(mount.device)),
        };
        self.known.insert(entry, place);
        if is_mixed && !mount.may_hang { Place::unknown(entry) } else { place }
    }

    pub(super) fn of_file(
        &mut self,
        file: Fd,
        turn: u64,
        device_of: impl FnOnce(u64) -> DeviceId,
    ) -> Place {
        self.renew(turn, false);
        let Ok(id) = mount::id_of(Linux::borrow(file)) else {
            return Place::MayHang { group: OTHER_NAMESPACE_BIT };
        };
        match self.mounts.as_ref().and_then(|mounts| mounts.by_id(id)) {
            Some(mount) if mount.may_hang => Place::MayHang { group: id },
            Some(mount) => Place::Local(device_of(mount.device)),
            None if is_of_kernel(file) => Place::Local(device_of(0)),
            None => Place::MayHang { group: id | OTHER_NAMESPACE_BIT },
        }
    }
}

/// Where following a path ended.
enum Reached {
    /// At this path, which has no links.
    At(Vec<u8>, Mount),
    /// Nowhere: a part of the path does not exist.
    Nothing(Mount),
    /// At one of the kernel's own files, such as a pipe.
    KernelFile,
}

/// Returns the parts of a path, in reverse order.
fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').rev().filter(|part| !part.is_empty() && *part != b".")
}

/// Returns true if a path below `/proc` belongs to this process.
fn is_of_this_process(path: &[u8]) -> bool {
    let id = std::process::id().to_string();
    parts(path).last() == Some(id.as_bytes())
}

/// Returns true if a file is on one of the kernel's own mounts: a pipe, a socket, an anonymous file
/// or shared memory.
fn is_of_kernel(file: Fd) -> bool {
    let in_memory: [&[u8]; 3] = [b"/memfd:", b"/dev/zero (deleted)", b"/SYSV"];
    mount::path_of(Linux::borrow(file)).is_ok_and(|path| {
        !path.starts_with(b"/") || in_memory.iter().any(|start| path.starts_with(start))
    })
}

/// Returns the absolute path without `.`, `..` and repeated slashes, or `None` if it is not
/// absolute. `..` removes the part before it, which is correct if no part is a symbolic link.
fn normal(base: Vec<u8>, path: &[u8]) -> Option<Vec<u8>> {
    let mut normal = Vec::with_capacity(base.len() + path.len() + 1);
    let parts = base.split(|byte| *byte == b'/').chain(path.split(|byte| *byte == b'/'));
    for part in parts {
        match part {
            b"" | b"." => {}
            b".." => {
                let slash = normal.iter().rposition(|byte| *byte == b'/');
                normal.truncate(slash.unwrap_or(0));
            }
            name => {
                normal.push(b'/');
                normal.extend_from_slice(name);
            }
        }
    }
    let is_absolute = base.first().or(path.first()) == Some(&b'/');
    if normal.is_empty() {
        normal.push(b'/');
    }
    is_absolute.then_some(normal)
}
