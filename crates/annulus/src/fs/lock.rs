//! Locks on whole files, between processes: `flock(2)`.

use super::file::File;
use crate::file_policy::Class;
use crate::time::sleep;
use annulus_kernel::file::FileCall;
use std::io;
use std::time::Duration;

/// Which other locks a lock allows.
///
/// ```
/// use annulus::fs::{File, Lock};
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-lock-{}", std::process::id()));
/// let held = File::create(&path).await?;
/// held.lock(Lock::Exclusive).await?;
/// let other = File::open(&path).await?; // Another open of the file: as another process.
/// assert!(!other.try_lock(Lock::Shared).await?);
/// held.unlock().await?;
/// assert!(other.try_lock(Lock::Shared).await?);
/// # annulus::fs::remove_file(&path).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lock {
    /// Other shared locks.
    Shared,
    /// None.
    Exclusive,
}

const LOCK_SH: u32 = 1;
const LOCK_EX: u32 = 2;
const LOCK_NB: u32 = 4;
pub(super) const LOCK_UN: u32 = 8;

/// The pause between two tries: at first, and at most.
const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(64);

impl File {
    /// Waits for a lock on the file. [`unlock`](Self::unlock) releases it, or the drop of the last
    /// handle.
    ///
    /// The drop unlocks before it closes: a child that another thread has just forked has the
    /// descriptor too, until it executes its program, and would keep the lock until then. Only if
    /// the descriptor was lent (`AsFd`), the drop just closes it, since a duplicate of it may be
    /// meant to keep the lock.
    ///
    /// No event reports that another process has released its lock, so this tries again at
    /// intervals of at most 64 ms; no thread is blocked meanwhile. If the future is dropped while a
    /// try is in flight off the loop, the file may be locked all the same; [`unlock`](Self::unlock)
    /// and the drop release it then, too.
    ///
    /// # Errors
    /// `Unsupported` if the file system has no locks, ….
    pub async fn lock(&self, lock: Lock) -> io::Result<()> {
        let mut pause = FIRST;
        while !self.try_lock(lock).await? {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
        Ok(())
    }

    /// Locks the file if that is possible now; false if another lock is in the way.
    ///
    /// # Errors
    /// The errors of [`lock`](Self::lock).
    pub async fn try_lock(&self, lock: Lock) -> io::Result<bool> {
        let operation = match lock {
            Lock::Shared => LOCK_SH | LOCK_NB,
            Lock::Exclusive => LOCK_EX | LOCK_NB,
        };
        match self.flock(operation).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// The errors of [`lock`](Self::lock).
    pub async fn unlock(&self) -> io::Result<()> {
        self.flock(LOCK_UN).await
    }

    async fn flock(&self, operation: u32) -> io::Result<()> {
        self.open.may_be_locked.set(operation != LOCK_UN || self.open.may_be_locked.get());
        self.plain(Some(Class::Modify), move |fd| FileCall::Lock { fd, operation }).await
    }
}
