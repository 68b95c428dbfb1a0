//! Values that stay on their thread although their type is `Send`.
#![allow(unsafe_code)]

use std::fmt;
use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// A value for libraries that require `Send` but never move the value to another thread. The
/// wrapper is `Send` and `Sync`, but can be used only on the thread that created it.
///
/// Using it on another thread is an error ([`try_mut`](Self::try_mut)) or a panic; both say where
/// the value was created. If it is dropped on another thread, the value is leaked.
///
/// ```
/// use annulus_compat::OnThread;
/// use std::rc::Rc;
///
/// let mut value = OnThread::new(Rc::new(7));
/// assert_eq!(**value.try_mut().unwrap(), 7);
/// std::thread::spawn(move || assert!(value.try_mut().is_err())).join().unwrap();
/// ```
pub struct OnThread<T: ?Sized> {
    /// Boxed so that leaking a pinned value also leaks its memory, as pinning requires.
    value: ManuallyDrop<Pin<Box<T>>>,
    thread: u64,
    made_at: &'static Location<'static>,
}

// SAFETY: the value is accessed and dropped only on the thread that created it; `is_here` is
// checked before each access and before the drop.
unsafe impl<T: ?Sized> Send for OnThread<T> {}
// SAFETY: a shared reference gives access to the value only on the thread that created it, because
// `is_here` is checked before each access.
unsafe impl<T: ?Sized> Sync for OnThread<T> {}

impl<T> OnThread<T> {
    /// Binds a value to this thread.
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self::boxed(Box::pin(value))
    }
}

impl<T: ?Sized> OnThread<T> {
    #[track_caller]
    pub(crate) fn boxed(value: Pin<Box<T>>) -> Self {
        let made_at = Location::caller();
        Self { value: ManuallyDrop::new(value), thread: this_thread(), made_at }
    }

    /// Returns the value.
    ///
    /// # Errors
    /// Fails on a thread other than the one that created it.
    pub fn try_mut(&mut self) -> Result<&mut T, WrongThread>
    where
        T: Unpin,
    {
        self.try_pin().map(Pin::get_mut)
    }

    /// Returns the value.
    ///
    /// # Errors
    /// Fails on a thread other than the one that created it.
    pub fn try_ref(&self) -> Result<&T, WrongThread> {
        self.check()?;
        Ok(&self.value)
    }

    /// Returns the value, pinned.
    ///
    /// # Errors
    /// Fails on a thread other than the one that created it.
    pub fn try_pin(&mut self) -> Result<Pin<&mut T>, WrongThread> {
        self.check()?;
        Ok(self.value.as_mut())
    }

    fn check(&self) -> Result<(), WrongThread> {
        if self.is_here() { Ok(()) } else { Err(WrongThread { made_at: self.made_at }) }
    }

    fn is_here(&self) -> bool {
        self.thread == this_thread()
    }
}

impl<T: ?Sized> Drop for OnThread<T> {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: the value is dropped once, here, and not used afterwards. On another thread
            // neither the value nor its memory is freed.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

impl<F: Future + ?Sized> Future for OnThread<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.get_mut().try_pin() {
            Ok(future) => future.poll(cx),
            Err(wrong) => panic!("{wrong}"),
        }
    }
}

/// axum state and tower services are cloned for each request.
impl<T: Clone> Clone for OnThread<T> {
    /// # Panics
    /// Panics on a thread other than the one that created it.
    fn clone(&self) -> Self {
        let value = self.try_ref().unwrap_or_else(|wrong| panic!("{wrong}"));
        let value = ManuallyDrop::new(Box::pin(value.clone()));
        Self { value, thread: self.thread, made_at: self.made_at }
    }
}

impl<T: ?Sized> fmt::Debug for OnThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnThread({})", std::any::type_name::<T>())
    }
}

/// Error for a value used on a thread other than the one that created it. Its message includes the
/// source location where the value was created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WrongThread {
    made_at: &'static Location<'static>,
}

impl WrongThread {
    /// Returns where [`OnThread::new`] was called. For values that this crate creates, such as
    /// streams of its servers and connectors, that location is in this crate.
    pub fn made_at(&self) -> &'static Location<'static> {
        self.made_at
    }
}

impl fmt::Display for WrongThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "used on a thread other than the one that created it at {}: annulus keeps streams, tasks and timers on their thread; use a \
             current-thread runtime",
            self.made_at
        )
    }
}

// Shows the `Display` text, because a program whose `main` returns an error prints `Debug`.
impl fmt::Debug for WrongThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl std::error::Error for WrongThread {}

impl From<WrongThread> for io::Error {
    fn from(wrong: WrongThread) -> Self {
        Self::other(wrong)
    }
}

/// Returns a number for this thread. The process never gives it to another thread.
fn this_thread() -> u64 {
    static NEXT_THREAD: AtomicU64 = AtomicU64::new(0);
    thread_local!(static THREAD_NUMBER: u64 = NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
    THREAD_NUMBER.with(|number| *number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn value_is_neither_usable_nor_dropped_on_another_thread() {
        let count = Rc::new(());
        let mut value = OnThread::new(count.clone());
        let mut value = std::thread::spawn(move || {
            assert!(value.try_mut().is_err());
            assert!(value.try_ref().is_err());
            value
        })
        .join()
        .unwrap();
        assert!(value.try_mut().is_ok());
        std::thread::spawn(move || drop(value)).join().unwrap();
        assert_eq!(Rc::strong_count(&count), 2, "leaked, not dropped");
        drop(OnThread::new(count.clone()));
        assert_eq!(Rc::strong_count(&count), 2);
    }

    /// `Notify` keeps pointers into its pinned futures, so a leaked future must keep its memory.
    #[test]
    fn pinned_value_dropped_on_another_thread_is_leaked_in_place() {
        let notify: &'static tokio::sync::Notify = Box::leak(Box::default());
        let mut holder = OnThread::new(notify.notified());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut holder).poll(&mut cx).is_pending());
        std::thread::spawn(move || drop(holder)).join().unwrap();
        // Follows the pointer to the leaked future.
        notify.notify_waiters();
    }

    #[test]
    fn poll_on_another_thread_panics_and_names_where_the_future_was_created() {
        let (future, line) = (OnThread::new(std::future::pending::<()>()), line!());
        let polled = std::thread::spawn(move || {
            let mut future = Box::pin(future);
            let mut cx = Context::from_waker(std::task::Waker::noop());
            _ = future.as_mut().poll(&mut cx);
        });
        let panic = polled.join().unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        let expected =
            format!("used on a thread other than the one that created it at {}:{line}:", file!());
        assert!(text.starts_with(&expected), "{text}");
    }
}
