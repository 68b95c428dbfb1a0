//! A lock for measurements, because two at once on a machine would disturb each other.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The name of the lock file, in the directory for temporary files.
const LOCK_FILE: &str = "annulus-bench.lock";

/// The lock, released when dropped or when the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the machine's lock.
    ///
    /// # Errors
    /// If another process holds it, with the id of that process, or if the file cannot be opened.
    pub fn take() -> Result<Lock> {
        Lock::at(&std::env::temp_dir().join(LOCK_FILE))
    }

    /// Takes the lock on this file.
    fn at(path: &Path) -> Result<Lock> {
        let shown = path.display();
        let cannot = |error| {
            anyhow!("cannot take the lock {shown}: {error}; set TMPDIR to another directory")
        };
        let file = open(path).map_err(cannot)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(Errno::WOULDBLOCK) => {
                let holder = holder(&file).map(|pid| format!("process {pid}"));
                let holder = holder.unwrap_or_else(|| "another process".into());
                let wait = "wait until it ends, since two measurements disturb each other";
                bail!("{holder} is measuring (it holds {shown}): {wait}")
            }
            Err(errno) => Err(cannot(io::Error::from(errno))),
        }
    }
}

/// Opens the file for reading if it exists, and otherwise creates it: in a directory like `/tmp`,
/// Linux may forbid opening another user's file with `O_CREAT`, and a lock needs only an open file.
fn open(path: &Path) -> io::Result<File> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::options().write(true).create(true).truncate(false).open(path)
        }
        opened => opened,
    }
}

/// Returns the process that holds a lock on this file, if the kernel reports it. A pid written into
/// the file could be stale.
fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| flock_of(line, inode))
}

/// Returns the process in a line like `1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF` if it
/// concerns this inode.
fn flock_of(line: &str, inode: u64) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", pid, file, ..] = fields[..] else { return None };
    let (_, of_file) = file.rsplit_once(':')?;
    (of_file.parse() == Ok(inode)).then(|| pid.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_in_use_names_its_holder_and_is_free_afterwards() {
        let scratch = crate::scratch::tests::directory();
        let path = scratch.path().join("lock");
        let first = Lock::at(&path).expect("the lock is held");
        let refused = Lock::at(&path).expect_err("the lock was taken twice").to_string();
        assert!(
            refused.contains(&format!("process {} is measuring", std::process::id())),
            "{refused}"
        );
        drop(first);
        Lock::at(&path).expect("the lock was not released");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = Lock::at(Path::new("/nowhere/lock"))
            .expect_err("a lock was created in a missing directory")
            .to_string();
        assert!(error.starts_with("cannot take the lock /nowhere/lock: No such file"), "{error}");
    }

    #[test]
    fn only_a_write_lock_on_this_file_counts() {
        let line = "7: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF";
        assert_eq!(flock_of(line, 5678), Some(1234));
        assert_eq!(flock_of(line, 678), None);
        assert_eq!(flock_of("7: POSIX  ADVISORY  WRITE 1234 fd:01:5678 0 EOF", 5678), None);
        assert_eq!(flock_of("7: -> FLOCK  ADVISORY  WRITE 9 fd:01:5678 0 EOF", 5678), None);
    }
}
