//! Locks on whole files, between processes: `flock(2)`.

use super::file::File;
use crate::file_policy::Class;
use crate::time::sleep;
use annulus_kernel::file::FileCall;
use std::io;
use std::time::Duration;

/// The kind of a lock: which other locks it allows.
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
    /// Allows other shared locks.
    Shared,
    /// Allows no other locks.
    Exclusive,
}

const LOCK_SH: u32 = 1;
const LOCK_EX: u32 = 2;
const LOCK_NB: u32 = 4;
pub(super) const LOCK_UN: u32 = 8;

/// The first and the longest pause between two attempts.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(1);
const MAX_RETRY_PAUSE: Duration = Duration::from_millis(64);

impl File {
    /// Waits for a lock on the file. [`unlock`](Self::unlock) or dropping the last handle releases
    /// it.
    ///
    /// The drop unlocks before it closes the descriptor. Otherwise, a child that another thread has
    /// just forked would keep the lock until it executes its program, because it also holds the
    /// descriptor. If the descriptor has been exposed (`AsFd`), the drop only closes it, since a
    /// duplicate may be meant to keep the lock.
    ///
    /// No event reports that another process has released its lock, so this retries at intervals of
    /// at most 64 ms without blocking a thread. If the future is dropped while an attempt is in
    /// flight off the loop, the file may still become locked. [`unlock`](Self::unlock) and the drop
    /// release that lock too.
    ///
    /// # Errors
    /// `Unsupported` if the file system has no locks, ….
    pub async fn lock(&self, lock: Lock) -> io::Result<()> {
        let mut pause = MIN_RETRY_PAUSE;
        while !self.try_lock(lock).await? {
            sleep(pause).await;
            pause = (pause * 2).min(MAX_RETRY_PAUSE);
        }
        Ok(())
    }

    /// Locks the file if possible now. Returns false if another lock is in the way.
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
