//! Foreign code that misbehaves: values and wakers whose drop panics, payloads whose drop panics again.
#![allow(dead_code, unsafe_code, reason = "each test takes what it needs")]

use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::panic::panic_any;
use std::pin::Pin;
use std::ptr::null;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

/// A panic payload whose own drop panics. What it leaves behind then is of no size, so that forgetting it leaks nothing.
pub(crate) struct Bomb;

/// The payload with which the drop of a [`Bomb`] panics.
struct Splinter;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_any(Splinter);
    }
}

/// Whether a panic has one of these payloads: such a panic is reported only if it gets out of the runtime.
pub(crate) fn is_foreign(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Bomb>() || payload.is::<Splinter>()
}

/// Counts drops.
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

/// A value whose drop is counted, and panics with a [`Bomb`].
#[derive(Default)]
pub(crate) struct PanicsOnDrop(pub(crate) Count);

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        self.0.add();
        panic_any(Bomb);
    }
}

/// Runs something when it is dropped.
pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A value that stays on its thread, whatever its type says.
pub(crate) struct Here<T>(pub(crate) T);

// SAFETY: the tests move none of them to another thread.
unsafe impl<T> Send for Here<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Here<T> {}

/// A waker that owns a value, which its last clone drops, and wakes nothing.
pub(crate) fn waker_of<T: 'static>(value: T) -> Waker {
    struct Owner<T>(Here<T>);

    impl<T> Wake for Owner<T> {
        fn wake(self: Arc<Self>) {}
    }

    Arc::new(Owner(Here(value))).into()
}

/// A waker whose wake panics with a [`Bomb`] after it has woken a task.
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

/// Polls a future once, with a waker of the caller's choice.
pub(crate) fn poll_with<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

thread_local! {
    static CLONE_PANICS: Cell<bool> = const { Cell::new(false) };
}

/// A waker that wakes nothing. From here on the clones of all these panic, or do not.
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
    // SAFETY: its functions take any pointer.
    unsafe { Waker::from_raw(RawWaker::new(null(), TABLE)) }
}
