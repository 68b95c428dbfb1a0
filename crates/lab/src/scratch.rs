//! Folders for the files of a run, gone when it ends, however that comes.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Folders that are there, for [`remove_all`].
static THERE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes every scratch folder, for a lab that ends at once.
pub fn remove_all() {
    // Nobody is left who could be told that it failed.
    there().iter().for_each(|folder| _ = fs::remove_dir_all(folder));
}

fn there() -> MutexGuard<'static, Vec<PathBuf>> {
    THERE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder that is removed, with all that is in it, when dropped.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// Makes a folder of this process's own within another, for this user only.
    pub fn within(folder: &Path) -> io::Result<Scratch> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("annulus-bench-{}-{number}", std::process::id());
        let folder = folder.canonicalize()?.join(name);
        let mut there = there();
        DirBuilder::new().mode(0o700).create(&folder)?;
        there.push(folder.clone());
        Ok(Scratch { folder })
    }

    /// Where it is, from the root.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Removes it, and says where that fails; what dropping it does not.
    pub fn remove(self) -> io::Result<()> {
        self.clear()
    }

    fn clear(&self) -> io::Result<()> {
        let mut there = there();
        there.retain(|folder| *folder != self.folder);
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After `remove` there is nothing left to do; else there is nobody to be told.
        let _ = self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_goes_with_all_that_is_in_it() {
        let scratch = Scratch::within(&std::env::temp_dir()).expect("a folder");
        let other = Scratch::within(&std::env::temp_dir()).expect("another");
        let folder = scratch.path().to_owned();
        assert_ne!(folder, other.path());
        fs::create_dir(folder.join("sub")).expect("a folder in it");
        fs::write(folder.join("sub/file"), b"x").expect("a file in it");
        assert_eq!(fs::metadata(&folder).expect("it is there").permissions().mode() & 0o777, 0o700);
        drop(scratch);
        assert!(!folder.exists() && other.path().exists());
        let folder = other.path().to_owned();
        other.remove().expect("it can be removed");
        assert!(!folder.exists());
    }

    #[test]
    fn where_nothing_can_be_made_it_says_so() {
        let error = Scratch::within(Path::new("/nowhere")).expect_err("no such folder");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
