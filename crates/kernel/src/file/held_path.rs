//! A path whose directory is held open.

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Result;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A name in a directory that is held open. It refers to the same place even after the process has
/// changed its working directory or root, or the directory has been renamed.
#[derive(Debug)]
pub struct HeldPath {
    directory: OwnedFd,
    name: OsString,
}

impl HeldPath {
    /// Opens the directory of a path; `None` if the path does not end in a name.
    ///
    /// # Errors
    /// `NOENT`, `ACCES`, `NOTDIR`, …; `MFILE` if the process is out of descriptors.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, parent, flags, Mode::empty())?;
        Ok(Some(Self { directory, name: name.to_owned() }))
    }

    /// Returns the device and inode of the file that has this name now. Does not follow a symbolic
    /// link.
    ///
    /// # Errors
    /// `NOENT` if no file has the name.
    pub fn identity(&self) -> Result<(u64, u64)> {
        let stat = rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Removes the name.
    ///
    /// # Errors
    /// `NOENT`, `ACCES`, …
    pub fn unlink(&self) -> Result<()> {
        rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty())
    }
}
