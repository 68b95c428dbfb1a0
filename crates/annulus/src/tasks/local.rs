//! Values that belong to a task: see `task_local!`.

use pin_project_lite::pin_project;
use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

/// Declares values that a future sets for everything that it calls and awaits, such as the id of a
/// request for the log. Each is a `static` of type [`LocalKey`](crate::task::LocalKey).
///
/// ```
/// annulus::task_local! {
///     /// The number of the request that the task serves.
///     static REQUEST: u64;
/// }
///
/// async fn log(text: &str) -> String {
///     annulus::task::yield_now().await;
///     format!("[{}] {text}", REQUEST.get())
/// }
///
/// # annulus::run(async {
/// let one = annulus::spawn(REQUEST.scope(1, async { log("begins").await }));
/// let two = annulus::spawn(REQUEST.scope(2, async { log("begins").await }));
/// assert_eq!(one.await.unwrap(), "[1] begins");
/// assert_eq!(two.await.unwrap(), "[2] begins");
/// # });
/// ```
///
/// A task does not inherit the values of the task that spawns it: wrap its future in a `scope` too.
/// Nor does [`spawn_blocking`](crate::task::spawn_blocking): use
/// [`sync_scope`](crate::task::LocalKey::sync_scope) in the call.
#[macro_export]
macro_rules! task_local {
    ($($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty);* $(;)?) => {$(
        $(#[$attribute])*
        $visibility static $name: $crate::task::LocalKey<$type> = {
            ::std::thread_local! {
                static VALUE: ::std::cell::RefCell<::std::option::Option<$type>> =
                    const { ::std::cell::RefCell::new(::std::option::Option::None) };
            }
            $crate::task::LocalKey::new(VALUE)
        };
    )*};
}

/// The key of a value that a future sets while it is polled. The macro
/// [`task_local!`](crate::task_local) declares it.
pub struct LocalKey<T: 'static> {
    /// The value of the innermost scope that is being polled.
    value: thread::LocalKey<RefCell<Option<T>>>,
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(value: thread::LocalKey<RefCell<Option<T>>>) -> Self {
        Self { value }
    }

    /// Returns a future that sets the value while it polls another future. An inner scope hides the
    /// value of an outer one.
    ///
    /// As cancel-safe as `future`, which is also dropped within the scope.
    ///
    /// # Panics
    /// If the future is polled within [`with`](Self::with) on the same key.
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> TaskLocalFuture<T, F> {
        TaskLocalFuture { key: self, value: Some(value), future: Some(future) }
    }

    /// Calls a function within a scope.
    ///
    /// ```
    /// annulus::task_local! { static DEPTH: u32 }
    ///
    /// fn depth() -> u32 {
    ///     DEPTH.try_with(|depth| *depth).unwrap_or(0)
    /// }
    ///
    /// assert_eq!(depth(), 0);
    /// assert_eq!(DEPTH.sync_scope(depth() + 1, depth), 1);
    /// ```
    ///
    /// # Panics
    /// Within [`with`](Self::with) on the same key, and in a destructor of thread-local data.
    #[track_caller]
    pub fn sync_scope<R>(&'static self, value: T, f: impl FnOnce() -> R) -> R {
        self.within(&mut Some(value), f).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Calls `f` while the value is in the thread's slot.
    ///
    /// # Errors
    /// If the slot is borrowed, or gone because the thread ends.
    fn within<R>(
        &'static self,
        value: &mut Option<T>,
        f: impl FnOnce() -> R,
    ) -> Result<R, ScopeError> {
        /// Swaps the values again, also after a panic.
        struct Within<'a, T: 'static>(&'static LocalKey<T>, &'a mut Option<T>);

        impl<T> Drop for Within<'_, T> {
            fn drop(&mut self) {
                // Nothing can hold a borrow here, because `with` returns before `f` does.
                _ = self.0.swap(self.1);
            }
        }

        self.swap(value)?;
        let _within = Within(self, value);
        Ok(f())
    }

    fn swap(&'static self, value: &mut Option<T>) -> Result<(), ScopeError> {
        let swapped = self.value.try_with(|slot| match slot.try_borrow_mut() {
            Ok(mut slot) => {
                mem::swap(&mut *slot, value);
                Ok(())
            }
            Err(_) => Err(ScopeError::Borrowed),
        });
        swapped.unwrap_or(Err(ScopeError::ThreadEnds))
    }

    /// Calls `f` with the value of the innermost scope.
    ///
    /// # Panics
    /// Outside of all scopes of this key.
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.try_with(f).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`with`](Self::with), but returns an error outside of all scopes of this key.
    ///
    /// # Errors
    /// [`AccessError`] outside of all scopes.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let result = self.value.try_with(|slot| slot.borrow().as_ref().map(f));
        result.ok().flatten().ok_or(AccessError(()))
    }
}

impl<T: Clone + 'static> LocalKey<T> {
    /// Returns a clone of the value of the innermost scope.
    ///
    /// # Panics
    /// Outside of all scopes of this key.
    #[track_caller]
    pub fn get(&'static self) -> T {
        self.with(T::clone)
    }

    /// Like [`get`](Self::get), but returns an error outside of all scopes of this key.
    ///
    /// # Errors
    /// [`AccessError`] outside of all scopes.
    pub fn try_get(&'static self) -> Result<T, AccessError> {
        self.try_with(T::clone)
    }
}

impl<T> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalKey")
    }
}

/// The reason why a scope cannot begin.
#[derive(Clone, Copy)]
enum ScopeError {
    Borrowed,
    ThreadEnds,
}

impl fmt::Display for ScopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Borrowed => {
                "a scope of a task-local value began within `with` on the same key; end `with` first, or use `get`"
            }
            Self::ThreadEnds => "a task-local value was set in a destructor of thread-local data",
        })
    }
}

/// The error of [`LocalKey::try_with`]: the value was used outside of all scopes of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError(());

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a task-local value was used outside of its scope; wrap the future in `LocalKey::scope`",
        )
    }
}

impl Error for AccessError {}

pin_project! {
    /// The future of [`LocalKey::scope`].
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct TaskLocalFuture<T, F>
    where
        T: 'static,
    {
        key: &'static LocalKey<T>,
        // Empty while it is in the thread's slot, and once it has been taken.
        value: Option<T>,
        // Dropped within the scope, once it is ready or when this is dropped.
        #[pin]
        future: Option<F>,
    }

    impl<T: 'static, F> PinnedDrop for TaskLocalFuture<T, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.future.is_some() {
                // If the scope cannot begin, the future is dropped outside of it, below.
                _ = this.key.within(this.value, || this.future.set(None));
            }
        }
    }
}

impl<T, F> TaskLocalFuture<T, F> {
    /// Takes the value, usually once the future is ready. Returns `None` if it was taken before.
    ///
    /// ```
    /// annulus::task_local! { static NOTES: std::cell::RefCell<Vec<&'static str>> }
    ///
    /// # annulus::run(async {
    /// let work = async { NOTES.with(|notes| notes.borrow_mut().push("started")) };
    /// let mut scope = std::pin::pin!(NOTES.scope(Default::default(), work));
    /// scope.as_mut().await;
    /// assert_eq!(scope.take_value().unwrap().into_inner(), ["started"]);
    /// # });
    /// ```
    pub fn take_value(self: Pin<&mut Self>) -> Option<T> {
        self.project().value.take()
    }
}

impl<T, F: Future> Future for TaskLocalFuture<T, F> {
    type Output = F::Output;

    #[track_caller]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let polled = this.key.within(this.value, || {
            let future = this.future.as_mut().as_pin_mut();
            let polled = future.expect("the scope was polled after completion").poll(cx);
            if polled.is_ready() {
                this.future.set(None);
            }
            polled
        });
        polled.unwrap_or_else(|error| panic!("{error}"))
    }
}

impl<T: fmt::Debug, F> fmt::Debug for TaskLocalFuture<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskLocalFuture").field("value", &self.value).finish_non_exhaustive()
    }
}
