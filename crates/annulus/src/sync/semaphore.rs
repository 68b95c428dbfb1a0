//! A number of permits that tasks wait for.

use super::permits::{Permits, Refused};
use crate::waiters::WaiterId;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Bounds how many tasks do something at once. Clones share the permits.
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::Semaphore;
///
/// let limit = Semaphore::new(2);
/// let one = limit.acquire().await.unwrap();
/// let two = limit.acquire().await.unwrap();
/// assert!(limit.try_acquire().is_err());
/// drop(one);
/// assert!(limit.try_acquire().is_ok());
/// # drop(two);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Semaphore(Rc<Permits>);

impl Semaphore {
    /// With this many permits; 0 gives none until [`add_permits`](Self::add_permits).
    pub fn new(permits: usize) -> Self {
        Self(Permits::new(permits))
    }

    /// Permits that are free now.
    pub fn available_permits(&self) -> usize {
        self.0.available()
    }

    /// Waits for one permit: first come, first served. Cancel-safe, but the place in line is lost.
    ///
    /// # Errors
    /// Once the semaphore is [closed](Self::close), while this waits as well.
    pub fn acquire(&self) -> Acquire {
        self.acquire_many(1)
    }

    /// Waits for several permits at once. Those behind in line wait too, even if there are enough for them: else this one could
    /// wait for ever. More than there are waits until [`add_permits`](Self::add_permits) has made it enough.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn acquire_many(&self, count: usize) -> Acquire {
        Acquire { permits: self.0.clone(), count, id: None }
    }

    /// One permit, if one is free and none waits for it.
    ///
    /// # Errors
    /// If there is none, or once closed.
    pub fn try_acquire(&self) -> Result<Permit, TryAcquireError> {
        self.try_acquire_many(1)
    }

    /// Several permits, if so many are free and none waits for them.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_many(&self, count: usize) -> Result<Permit, TryAcquireError> {
        self.0.try_take(count).map_err(|refused| match refused {
            Refused::Closed => TryAcquireError::Closed,
            Refused::TooFew => TryAcquireError::NoPermits,
        })?;
        Ok(Permit { permits: self.0.clone(), count })
    }

    /// Adds permits.
    pub fn add_permits(&self, count: usize) {
        self.0.give(count);
    }

    /// Takes up to `count` free permits away for good; returns how many it took.
    pub fn forget_permits(&self, count: usize) -> usize {
        self.0.remove(count)
    }

    /// Gives no permit any more: whatever waits is refused.
    pub fn close(&self) {
        self.0.close();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Semaphore({} free)", self.available_permits())
    }
}

/// Waits for permits: see [`Semaphore::acquire`].
#[must_use = "a future does nothing unless awaited"]
pub struct Acquire {
    permits: Rc<Permits>,
    count: usize,
    id: Option<WaiterId>,
}

impl Future for Acquire {
    type Output = Result<Permit, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { permits, count, id } = &mut *self;
        permits.poll_take(*count, id, cx).map(|taken| match taken {
            Ok(()) => Ok(Permit { permits: permits.clone(), count: *count }),
            Err(()) => Err(AcquireError(())),
        })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        self.permits.leave(&mut self.id);
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Acquire({})", self.count)
    }
}

/// Permits of a [`Semaphore`], given back when dropped.
///
/// It holds no borrow of the semaphore, so a task can own it, and several permits can be given back one by one:
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::Semaphore;
///
/// let megabytes = Semaphore::new(10);
/// let mut upload = megabytes.acquire_many(8).await.unwrap();
/// let stored = upload.split(3); // Of 8 held, 3 are done with.
/// assert_eq!((upload.count(), megabytes.available_permits()), (5, 2));
/// drop(stored);
/// assert_eq!(megabytes.available_permits(), 5);
/// annulus::spawn(async move { drop(upload) }).await.unwrap();
/// assert_eq!(megabytes.available_permits(), 10);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[must_use = "a permit that is dropped is given back at once"]
pub struct Permit {
    permits: Rc<Permits>,
    count: usize,
}

impl Permit {
    /// How many permits this is.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Never gives it back: the semaphore has fewer from here on.
    pub fn forget(mut self) {
        self.count = 0;
    }

    /// Takes another one's permits into this.
    ///
    /// # Panics
    /// If that one is of another semaphore.
    pub fn merge(&mut self, mut other: Self) {
        assert!(Rc::ptr_eq(&self.permits, &other.permits), "merged permits of two semaphores");
        self.count += std::mem::take(&mut other.count);
    }

    /// Splits off `count` permits; `None` if there are fewer.
    pub fn split(&mut self, count: usize) -> Option<Self> {
        self.count = self.count.checked_sub(count)?;
        Some(Self { permits: self.permits.clone(), count })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.count > 0 {
            self.permits.give(self.count);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({})", self.count)
    }
}

/// The semaphore was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireError(());

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the semaphore was closed")
    }
}

impl std::error::Error for AcquireError {}

/// Why there is no permit now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryAcquireError {
    /// Too few are free, or others wait for them.
    NoPermits,
    /// The semaphore was closed.
    Closed,
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPermits => "no permit is free",
            Self::Closed => "the semaphore was closed",
        })
    }
}

impl std::error::Error for TryAcquireError {}
