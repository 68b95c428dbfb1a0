//! A lock that a task may hold across an `await`.

use super::permits::Permits;
use crate::waiters::WaiterId;
use std::cell::{RefCell, RefMut};
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A value that one task at a time uses, across an `await` as well. Where no `await` lies between, a `RefCell` does.
///
/// Tasks that wait have their turns in the order of arrival. A panic while it is locked unlocks it: there is no poison.
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::Mutex;
///
/// let log = Mutex::new(Vec::new());
/// let mut locked = log.lock().await;
/// locked.push("a line");
/// annulus::yield_now().await;
/// assert!(log.try_lock().is_none());
/// # drop(locked);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Mutex<T: ?Sized> {
    /// One.
    permits: Rc<Permits>,
    /// Borrowed by the holder of the permit only.
    value: RefCell<T>,
}

impl<T> Mutex<T> {
    /// An unlocked one.
    pub fn new(value: T) -> Self {
        Self { permits: Permits::new(1), value: RefCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until it is unlocked, and locks it. Cancel-safe, but the place in line is lost.
    pub fn lock(&self) -> Locking<'_, T> {
        Locking { mutex: self, id: None }
    }

    /// Locks it, if it is unlocked and none waits for it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.permits.try_take(1).is_ok().then(|| self.guard())
    }

    /// The value, without locking: nothing else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    fn guard(&self) -> MutexGuard<'_, T> {
        let unlock = Unlock(&self.permits);
        MutexGuard { value: self.value.borrow_mut(), _unlock: unlock }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(value) => f.debug_tuple("Mutex").field(&&*value).finish(),
            None => f.write_str("Mutex(locked)"),
        }
    }
}

/// Waits for a lock: see [`Mutex::lock`].
#[must_use = "a future does nothing unless awaited"]
pub struct Locking<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    id: Option<WaiterId>,
}

impl<'a, T: ?Sized> Future for Locking<'a, T> {
    type Output = MutexGuard<'a, T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { mutex, id } = &mut *self;
        // It is never closed, so an answer is a permit.
        mutex.permits.poll_take(1, id, cx).map(|_permit| mutex.guard())
    }
}

impl<T: ?Sized> Drop for Locking<'_, T> {
    fn drop(&mut self) {
        self.mutex.permits.leave(&mut self.id);
    }
}

impl<T: ?Sized> fmt::Debug for Locking<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Locking")
    }
}

/// A [`Mutex`]'s value, locked until this is dropped.
///
/// A guard may be held across an `await`, and a task that waits for the lock has it once the guard is dropped:
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::Mutex;
/// use std::rc::Rc;
///
/// let total = Rc::new(Mutex::new(0));
/// let mut guard = total.lock().await;
/// let other = annulus::spawn({
///     let total = total.clone();
///     async move { *total.lock().await += 1 }
/// });
/// annulus::yield_now().await;
/// *guard += 10; // The other task waits.
/// drop(guard);
/// other.await.unwrap();
/// assert_eq!(*total.lock().await, 11);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct MutexGuard<'a, T: ?Sized> {
    // Dropped first: the value is free before the next task is told.
    value: RefMut<'a, T>,
    _unlock: Unlock<'a>,
}

struct Unlock<'a>(&'a Rc<Permits>);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        self.0.give(1);
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
