//! A task's future, with what makes it end well: panics kept in, and a place on the list of the living.

use super::ready::Task;
use crate::core::Core;
use crate::current;
use pin_project_lite::pin_project;
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

/// What a panicking task leaves behind.
pub(super) type Panic = Box<dyn Any + Send>;

/// What a panic said.
pub(crate) fn words_of(panic: &Panic) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("with something that is not text")
}

pin_project! {
    /// Runs a future and catches its panics, in its polls and in its drop.
    pub(super) struct Body<F> {
        #[pin]
        future: Option<F>,
        living: Living,
        born: &'static Location<'static>,
    }

    impl<F> PinnedDrop for Body<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut future = this.project().future;
            _ = catch_unwind(AssertUnwindSafe(|| future.set(None)));
        }
    }
}

impl<F: Future> Body<F> {
    pub(super) fn new(future: F, born: &'static Location<'static>) -> Self {
        Self { future: Some(future), living: Living::default(), born }
    }
}

/// A task's result. Where nobody takes it, its drop's panic is kept in as well.
pub(super) struct Outcome<T>(Option<Result<T, Panic>>);

impl<T> Outcome<T> {
    pub(super) fn take(mut self) -> Option<Result<T, Panic>> {
        self.0.take()
    }
}

impl<T> Drop for Outcome<T> {
    fn drop(&mut self) {
        if let Some(unclaimed) = self.0.take() {
            _ = catch_unwind(AssertUnwindSafe(|| drop(unclaimed)));
        }
    }
}

impl<F: Future> Future for Body<F> {
    type Output = Outcome<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.living.enlist(cx, this.born);
        let future = this.future.as_pin_mut().expect("a body loses its future only in its drop");
        let outcome = match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(panic) => Err(panic),
        };
        Poll::Ready(Outcome(Some(outcome)))
    }
}

/// A place on the runtime's list of living tasks, from the first poll to the drop: so that the runtime's end can drop
/// every one of them on its own thread.
#[derive(Default)]
struct Living(Option<Place>);

struct Place {
    core: Weak<Core>,
    index: u32,
}

// SAFETY: the place is made at the first poll, which happens on the runtime's thread, and a task that was polled is
// dropped there too. Before the first poll it is empty.
#[allow(unsafe_code)]
unsafe impl Send for Living {}

impl Living {
    #[inline]
    fn enlist(&mut self, cx: &Context<'_>, born: &'static Location<'static>) {
        if self.0.is_none() {
            self.0 = current::with(|core| {
                let index = core.ready.living().insert(Task { waker: cx.waker().clone(), born });
                Place { core: Rc::downgrade(core), index }
            });
        }
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        let Some(place) = self.0.take() else { return };
        if let Some(core) = place.core.upgrade() {
            let task = core.ready.living().remove(place.index);
            drop(task);
        }
    }
}
