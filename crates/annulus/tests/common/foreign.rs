//! Foreign code that misbehaves: values and wakers that panic when dropped, and payloads that panic
//! again when dropped.
#![allow(dead_code, unsafe_code, reason = "each test uses only some of it")]

use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::panic::panic_any;
use std::pin::Pin;
use std::ptr::null;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

/// A panic payload that panics when dropped. The payload of that second panic has no size, so a
/// runtime that forgets it leaks nothing.
pub(crate) struct Bomb;

/// The payload of the panic in the drop of a [`Bomb`].
struct Splinter;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_any(Splinter);
    }
}

/// Returns true if a panic has one of these payloads. Such a panic is reported only if it leaves
/// the runtime.
pub(crate) fn is_foreign(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Bomb>() || payload.is::<Splinter>()
}

#[derive(Clone, Default)]
pub(crate) struct Count(Rc<Cell<usize>>);

impl Count {
    pub(crate) fn get(&self) -> usize {
        self.0.get()
    }

    fn add(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// A value that counts its drop and panics with a [`Bomb`] when dropped.
#[derive(Default)]
pub(crate) struct PanicsOnDrop(pub(crate) Count);

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        self.0.add();
        panic_any(Bomb);
    }
}

pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Makes a value `Send` and `Sync`, although it stays on its thread.
pub(crate) struct Here<T>(pub(crate) T);

// SAFETY: the tests move none of these values to another thread.
unsafe impl<T> Send for Here<T> {}
// SAFETY: the tests share none of these values between threads.
unsafe impl<T> Sync for Here<T> {}

/// Returns a waker that wakes nothing and owns a value, which is dropped with the last clone.
pub(crate) fn waker_of<T: 'static>(value: T) -> Waker {
    struct Owner<T>(Here<T>);

    impl<T> Wake for Owner<T> {
        fn wake(self: Arc<Self>) {}
    }

    Arc::new(Owner(Here(value))).into()
}

/// Returns a waker that wakes a task and then panics with a [`Bomb`].
pub(crate) fn waker_that_panics(task: &Waker) -> Waker {
    struct Panics(Waker);

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.wake_by_ref();
            panic_any(Bomb);
        }
    }

    Arc::new(Panics(task.clone())).into()
}

pub(crate) fn poll_with<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

thread_local! {
    static CLONE_PANICS: Cell<bool> = const { Cell::new(false) };
}

/// Returns a waker that wakes nothing. If `panics` is true, cloning any waker from this function
/// panics until it is called with false.
pub(crate) fn waker_whose_clone_panics(panics: bool) -> Waker {
    const TABLE: &RawWakerVTable = &RawWakerVTable::new(
        |_| {
            assert!(!CLONE_PANICS.get(), "the clone of a waker panics");
            RawWaker::new(null(), TABLE)
        },
        |_| {},
        |_| {},
        |_| {},
    );
    CLONE_PANICS.set(panics);
    // SAFETY: the functions of the table ignore the pointer.
    unsafe { Waker::from_raw(RawWaker::new(null(), TABLE)) }
}
