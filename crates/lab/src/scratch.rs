//! Directories for the files of a run, removed at its end, however it ends.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Existing directories, for [`remove_all`].
static THERE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes every scratch directory, if the lab must end at once.
pub fn remove_all() {
    // The process ends, so a failure cannot be reported.
    there().iter().for_each(|directory| _ = fs::remove_dir_all(directory));
}

fn there() -> MutexGuard<'static, Vec<PathBuf>> {
    THERE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory that is removed with its content when dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
}

impl Scratch {
    /// Makes a directory in another one, accessible to this user only.
    pub fn within(directory: &Path) -> io::Result<Scratch> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("annulus-bench-{}-{number}", std::process::id());
        let directory = directory.canonicalize()?.join(name);
        let mut there = there();
        DirBuilder::new().mode(0o700).create(&directory)?;
        there.push(directory.clone());
        Ok(Scratch { directory })
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Removes it; unlike dropping it, reports a failure.
    pub fn remove(self) -> io::Result<()> {
        self.clear()
    }

    fn clear(&self) -> io::Result<()> {
        let mut there = there();
        there.retain(|directory| *directory != self.directory);
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing to do after `remove`.
        let _ = self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_is_removed_with_its_content() {
        let scratch = Scratch::within(&std::env::temp_dir()).expect("a directory");
        let other = Scratch::within(&std::env::temp_dir()).expect("another");
        let directory = scratch.path().to_owned();
        assert_ne!(directory, other.path());
        fs::create_dir(directory.join("sub")).expect("a directory in it");
        fs::write(directory.join("sub/file"), b"x").expect("a file in it");
        assert_eq!(
            fs::metadata(&directory).expect("it is there").permissions().mode() & 0o777,
            0o700
        );
        drop(scratch);
        assert!(!directory.exists() && other.path().exists());
        let directory = other.path().to_owned();
        other.remove().expect("it can be removed");
        assert!(!directory.exists());
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error() {
        let error = Scratch::within(Path::new("/nowhere")).expect_err("no such directory");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
