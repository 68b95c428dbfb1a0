//! Directories for the files of a run, removed when it ends. The next run removes the directories
//! of a run that was killed.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Existing directories, for [`remove_all`].
static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The start of the directories' names, followed by the process id and a number.
const PREFIX: &str = "annulus-bench-";

/// Removes every scratch directory, for when the lab must end at once.
pub fn remove_all() {
    // The process is ending, so failures cannot be reported.
    directories().iter().for_each(|directory| _ = fs::remove_dir_all(directory));
}

/// Removes the scratch directories of processes that have ended, except other users' directories,
/// which it may not remove.
fn remove_stale(parent: &Path) {
    let is_left = |name: &str| {
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'))?.0;
        pid.parse::<u32>().ok().map(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let left = entries.filter(|entry| is_left(&entry.file_name().to_string_lossy()) == Some(true));
    left.for_each(|entry| _ = fs::remove_dir_all(entry.path()));
}

fn directories() -> MutexGuard<'static, Vec<PathBuf>> {
    DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory that is removed with its contents when dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
}

impl Scratch {
    /// Creates a directory within `directory`, accessible only to this user. Removes directories
    /// there that killed processes have left.
    pub fn within(directory: &Path) -> io::Result<Scratch> {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let parent = directory.canonicalize()?;
        remove_stale(&parent);
        let directory = parent.join(name);
        let mut all = directories();
        DirBuilder::new().mode(0o700).create(&directory)?;
        all.push(directory.clone());
        Ok(Scratch { directory })
    }

    /// Returns the absolute path of the directory.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Removes the directory. Unlike a drop, this reports a failure.
    pub fn remove(self) -> io::Result<()> {
        self.clear()
    }

    fn clear(&self) -> io::Result<()> {
        let mut all = directories();
        all.retain(|directory| *directory != self.directory);
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After `remove` the directory no longer exists.
        let _ = self.clear();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Creates a directory for a test.
    pub(crate) fn directory() -> Scratch {
        Scratch::within(&std::env::temp_dir()).expect("cannot create a directory")
    }

    #[test]
    fn a_directory_is_removed_with_its_content() {
        let scratch = directory();
        let other = directory();
        let directory = scratch.path().to_owned();
        assert_ne!(directory, other.path());
        fs::create_dir(directory.join("sub")).expect("cannot create a directory");
        fs::write(directory.join("sub/file"), b"x").expect("cannot write a file");
        assert_eq!(
            fs::metadata(&directory).expect("the directory does not exist").permissions().mode()
                & 0o777,
            0o700
        );
        drop(scratch);
        assert!(!directory.exists() && other.path().exists());
        let directory = other.path().to_owned();
        other.remove().expect("the directory cannot be removed");
        assert!(!directory.exists());
    }

    #[test]
    fn directories_of_killed_processes_are_removed() {
        let parent = directory();
        // No process has this id (above 2^22), and process 1 always runs.
        let names = ["4194305-0", "1-0", "x-0", "4194305"].map(|end| format!("{PREFIX}{end}"));
        let paths = names.map(|name| parent.path().join(name));
        paths.iter().for_each(|path| fs::create_dir_all(path.join("sub")).expect("no directory"));
        let own = Scratch::within(parent.path()).expect("cannot create a directory");
        let another = Scratch::within(parent.path()).expect("cannot create a directory");
        assert_eq!(paths.each_ref().map(|path| path.exists()), [false, true, true, true]);
        assert!(own.path().exists() && another.path().exists());
    }

    #[test]
    fn a_directory_that_cannot_be_created_is_an_error() {
        let error = Scratch::within(Path::new("/nowhere"))
            .expect_err("a directory was created in a missing one");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
