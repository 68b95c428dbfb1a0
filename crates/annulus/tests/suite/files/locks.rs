//! Dropping a file releases its lock even if a duplicate of the descriptor is still open, such as
//! in a child that another thread has forked and that has not called `exec` yet. If the program has
//! had access to the descriptor, its duplicates keep the lock.
#![allow(unsafe_code)]

use crate::files::drops::begin;
use crate::files::mode::everywhere;
use annulus::fs::{File, Lock};
use rustix::fs::{FlockOperation, flock};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

/// Returns the numbers of a file's descriptors.
fn descriptors(path: &Path) -> Vec<RawFd> {
    let path = path.canonicalize().unwrap();
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let of_file = links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to == path));
    of_file.map(|link| link.file_name().into_string().unwrap().parse().unwrap()).collect()
}

/// Duplicates the descriptor of an open file without the file's knowledge.
fn duplicate(path: &Path) -> io::Result<OwnedFd> {
    let number = descriptors(path)[0];
    // SAFETY: the caller has the file open, and nothing closes it in the meantime.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
}

fn is_locked(path: &Path) -> bool {
    let file = std::fs::File::open(path).unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
}

pub(super) fn assert_refused(locked: io::Result<()>) {
    assert_eq!(locked.unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_drop_releases_the_lock_before_the_close() {
    everywhere(|place| async move {
        let path = place.join("file");
        for lock in [Lock::Exclusive, Lock::Shared] {
            let file = File::create(&path).await?;
            file.lock(lock).await?;
            let clone = file.try_clone()?;
            let held = duplicate(&path)?;
            drop(file);
            assert!(is_locked(&path), "the lock was released although a clone has the file");
            drop(clone);
            assert!(!is_locked(&path));
            drop(held);
        }
        Ok(())
    });
}

#[test]
fn a_lock_dropped_in_flight_is_released() {
    everywhere(|place| async move {
        let path = place.join("file");
        let file = File::create(&path).await?;
        let held = duplicate(&path)?;
        begin(file.lock(Lock::Exclusive)).await;
        drop(file);
        // The lock attempt in flight keeps the file open until the attempt has finished.
        while descriptors(&path).len() > 1 {
            annulus::task::yield_now().await;
        }
        assert!(!is_locked(&path));
        drop(held);
        Ok(())
    });
}

#[test]
fn a_duplicate_of_an_exposed_descriptor_keeps_the_lock() {
    everywhere(|place| async move {
        let path = place.join("file");
        let file = File::create(&path).await?;
        file.lock(Lock::Exclusive).await?;
        let kept = file.as_fd().try_clone_to_owned()?;
        drop(file);
        assert!(is_locked(&path));
        drop(kept);
        // A child that another test is starting has the descriptor until it executes its program.
        while is_locked(&path) {
            annulus::task::yield_now().await;
        }
        Ok(())
    });
}

/// Linux releases a lock before it tries one of another kind.
#[test]
fn a_file_of_other_code_shares_its_lock() {
    everywhere(|place| async move {
        let path = place.join("locked");
        let kept = std::fs::File::create(&path)?;
        let file = File::from_std(kept.try_clone()?)?;
        file.lock(Lock::Exclusive).await?;
        drop(file);
        assert!(is_locked(&path), "the drop has released the lock of a duplicate");
        drop(kept);
        Ok(())
    });
}

#[test]
fn a_refused_lock_leaves_the_lock_before_it() {
    everywhere(|place| async move {
        let path = place.join("file");
        let one = File::create(&path).await?;
        let (two, three) = (File::open(&path).await?, File::open(&path).await?);
        one.try_lock(Lock::Shared).await?;
        two.try_lock(Lock::Shared).await?;
        assert_refused(one.try_lock(Lock::Exclusive).await);
        two.unlock().await?;
        assert_refused(three.try_lock(Lock::Exclusive).await);
        // A clone has the same lock.
        let clone = one.try_clone()?;
        clone.try_lock(Lock::Exclusive).await?;
        assert_refused(three.try_lock(Lock::Shared).await);
        one.unlock().await?;
        // After an unlock, there is no lock to keep.
        three.lock(Lock::Exclusive).await?;
        assert_refused(one.try_lock(Lock::Shared).await);
        assert_refused(clone.try_lock(Lock::Exclusive).await);
        three.unlock().await?;
        assert!(!is_locked(&path), "a refused lock was taken");
        Ok(())
    });
}

#[test]
fn holders_of_shared_locks_that_wait_for_the_exclusive_one_all_get_it() {
    everywhere(|place| async move {
        let path = place.join("file");
        let (one, two) = (File::create(&path).await?, File::open(&path).await?);
        one.lock(Lock::Shared).await?;
        two.lock(Lock::Shared).await?;
        let first = annulus::spawn(async move {
            one.lock(Lock::Exclusive).await?;
            one.unlock().await
        });
        two.lock(Lock::Exclusive).await?;
        two.unlock().await?;
        first.await.expect("the task panicked")
    });
}
