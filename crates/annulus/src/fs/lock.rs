//! Locks on whole files, between processes: `flock(2)`.

use super::file::File;
use super::latency::Class;
use crate::time::sleep;
use annulus_kernel::file::FileCall;
use std::io;
use std::time::Duration;

/// Who else may have the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Others who want it shared.
    Shared,
    /// Nobody.
    Exclusive,
}

const LOCK_SH: u32 = 1;
const LOCK_EX: u32 = 2;
const LOCK_NB: u32 = 4;
const LOCK_UN: u32 = 8;

/// Between two tries, at first and at most.
const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(64);

impl File {
    /// Waits for a lock on the file. It is given back by [`unlock`](Self::unlock), or when the last handle closes.
    ///
    /// Another process's lock comes free without a word, so this asks again and again, at most 64 ms apart: no thread is
    /// held up. Dropped while a try is under way off the loop, it may get the lock all the same:
    /// [`unlock`](Self::unlock) gives it back either way.
    ///
    /// # Errors
    /// `Unsupported` where the file system has no locks, ….
    pub async fn lock(&self, lock: Lock) -> io::Result<()> {
        let mut pause = FIRST;
        while !self.try_lock(lock).await? {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
        Ok(())
    }

    /// Takes a lock on the file if that is possible now; false where others have it.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
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

    /// Gives the lock back.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub async fn unlock(&self) -> io::Result<()> {
        self.flock(LOCK_UN).await
    }

    async fn flock(&self, operation: u32) -> io::Result<()> {
        let call = FileCall::Lock { fd: self.as_raw_fd(), operation };
        self.plain(Some(Class::Change), call).await
    }
}
