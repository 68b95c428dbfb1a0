//! One measurement at a time on a machine: two would spoil each other.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The lock's name, in the folder for temporary files.
const NAME: &str = "annulus-bench.lock";

/// The lock; dropping it, or ending in any way, gives it back.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the machine's lock, or says who holds it.
    pub fn take() -> Result<Lock, LockError> {
        Lock::at(&std::env::temp_dir().join(NAME))
    }

    /// Takes the lock that this file stands for.
    fn at(path: &Path) -> Result<Lock, LockError> {
        let error = |error| LockError::File { path: path.to_owned(), error };
        let file = open(path).map_err(error)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(Errno::WOULDBLOCK) => {
                Err(LockError::Held { path: path.to_owned(), holder: holder(&file) })
            }
            Err(errno) => Err(error(errno.into())),
        }
    }
}

/// Opens for reading where it can: in a folder like `/tmp` Linux may forbid opening another user's
/// file with `O_CREAT`, while the lock needs nothing but an open file.
fn open(path: &Path) -> io::Result<File> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::options().write(true).create(true).truncate(false).open(path)
        }
        opened => opened,
    }
}

/// The process that holds a lock on this file, as far as the kernel tells: it never lies, where a
/// number written into the file might.
fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| flock_of(line, inode))
}

/// The process of a line like `1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF`, if it is about this
/// inode.
fn flock_of(line: &str, inode: u64) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", pid, file, ..] = fields[..] else { return None };
    let (_, of_file) = file.rsplit_once(':')?;
    (of_file.parse() == Ok(inode)).then(|| pid.parse().ok())?
}

/// Why there is no lock.
#[derive(Debug)]
pub enum LockError {
    /// Somebody measures already.
    Held {
        /// The lock's file.
        path: PathBuf,
        /// The process that holds it, if the kernel tells.
        holder: Option<u32>,
    },
    /// The file could not be opened or locked.
    File {
        /// The lock's file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Held { path, holder } => {
                let path = path.display();
                let holder =
                    holder.map_or("another process".into(), |pid| format!("process {pid}"));
                write!(
                    f,
                    "{holder} is measuring (it holds {path}): wait for it, two spoil each other"
                )
            }
            LockError::File { path, error } => {
                write!(f, "can't take the lock {}: {error}; set TMPDIR elsewhere", path.display())
            }
        }
    }
}

impl std::error::Error for LockError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_holds_it_and_gets_it_afterwards() {
        let name = format!("annulus-lab-lock-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let first = Lock::at(&path).expect("free");
        let refused = Lock::at(&path).expect_err("held").to_string();
        assert!(
            refused.contains(&format!("process {} is measuring", std::process::id())),
            "{refused}"
        );
        drop(first);
        let again = Lock::at(&path);
        fs::remove_file(&path).expect("clean up");
        again.expect("free again");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Lock::at(Path::new("/nowhere/lock")).expect_err("no folder").to_string();
        assert!(error.starts_with("can't take the lock /nowhere/lock: No such file"), "{error}");
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
