//! Where calls on a path go, determined before the first call without asking a file system that may
//! hang.
#![allow(unsafe_code)]

use super::call::CallSite;
use super::dir::Dir;
use super::open::OpenArgs;
use super::open_file::OpenFile;
use crate::file_policy::{DeviceId, PathEntry, Place, Policy, Start};
use annulus_kernel::file::OpenHow;
use rustix::fs::OFlags;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

impl Dir {
    pub(super) fn entry<'a>(&self, path: &'a Path) -> PathEntry<'a> {
        PathEntry::new(if path.is_absolute() { 0 } else { self.start().serial }, path)
    }

    fn start(&self) -> Start {
        match &self.open {
            Some(open) => Start { serial: open.serial, dir: Some(open.fd), group: open.group },
            None => Start { serial: 0, dir: None, group: None },
        }
    }

    /// Returns true if files are real and not simulated. Simulated file systems do not hang.
    pub(super) fn is_real(&self) -> bool {
        self.core().kernel.real_descriptors()
    }

    /// Returns the group of a call on a path about which nothing is known.
    pub(super) fn unknown_group(&self, path: &Path) -> Option<u64> {
        self.is_real().then(|| Place::unknown(self.entry(path)).group()).flatten()
    }

    /// Records and returns the device of a simulated file that was opened by this path.
    pub(super) fn learn_simulated(&self, path: &Path, open: &OpenFile) -> Option<DeviceId> {
        if self.is_real() {
            return None;
        }
        let (policy, entry) = (&self.core().inline_policy, self.entry(path));
        let known = policy.place_of(self.start(), entry).map(Place::device);
        Some(known.unwrap_or_else(|| policy.learn_device(entry, open.device_number())))
    }

    /// Determines where a call on a path goes. If this is not known yet, a thread opens the path's
    /// directory.
    pub(super) async fn locate(&self, path: &Path) -> Place {
        let entry = self.entry(path);
        match self.core().inline_policy.place_of(self.start(), entry) {
            Some(place) => place,
            None if !self.is_real() => Place::Local(DeviceId::default()),
            None => self.open_parent(entry).await.unwrap_or(Place::unknown(entry)),
        }
    }

    /// Like [`locate`](Self::locate), but for the target of the path if its last component is a
    /// symbolic link. Call `locate` first.
    pub(super) fn locate_behind(&self, path: &Path) -> Place {
        let entry = self.entry(path);
        let place = self.core().inline_policy.place_behind(self.start(), entry);
        place.unwrap_or(Place::unknown(entry))
    }

    /// Opens the directory of a path and determines its place. Returns `None` if it cannot be
    /// opened.
    async fn open_parent(&self, entry: PathEntry<'_>) -> Option<Place> {
        let parent = CString::new(entry.parent_or_dot()).ok()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let how = Box::new(OpenHow { flags: u64::from(flags.bits()), ..OpenHow::default() });
        // All calls in one directory have the same group.
        let group = Some(entry.parent_group());
        let site = CallSite { group, policy: Policy::Offload, ..self.site(None) };
        let (answer, _) = site.offload(OpenArgs { path: parent.into(), how }).await;
        // Opened as a path only, so that its file system is not notified of the close. SAFETY: the
        // kernel has just opened the descriptor for this call, and no other code owns it.
        let dir = unsafe { OwnedFd::from_raw_fd(answer.ok()? as RawFd) };
        self.core().inline_policy.learn_place(entry, dir.as_fd())
    }
}

/// Returns true if a call that follows a path may hang.
///
/// # Errors
/// Outside a runtime.
pub(crate) async fn may_hang(path: &Path) -> io::Result<bool> {
    let dir = Dir::working()?;
    let may_hang = dir.locate(path).await.group().or_else(|| dir.locate_behind(path).group());
    Ok(may_hang.is_some())
}
