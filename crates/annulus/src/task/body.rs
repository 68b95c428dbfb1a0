//! A task's future, with what makes it end well: panics kept in, and a place on the list of the living.

use crate::core::Core;
use crate::current;
use pin_project_lite::pin_project;
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

/// What a panicking task leaves behind.
pub(super) type Panic = Box<dyn Any + Send>;

pin_project! {
    /// Runs a future and catches its panic.
    pub(super) struct Body<F> {
        #[pin]
        future: F,
        living: Living,
    }
}

impl<F: Future> Body<F> {
    pub(super) fn new(future: F) -> Self {
        Self { future, living: Living::default() }
    }
}

impl<F: Future> Future for Body<F> {
    type Output = Result<F::Output, Panic>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.living.enlist(cx);
        match catch_unwind(AssertUnwindSafe(|| this.future.poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
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
    fn enlist(&mut self, cx: &Context<'_>) {
        if self.0.is_none() {
            self.0 = current::with(|core| {
                let index = core.ready.living().insert(cx.waker().clone());
                Place { core: Rc::downgrade(core), index }
            });
        }
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        let Some(place) = self.0.take() else { return };
        if let Some(core) = place.core.upgrade() {
            let waker = core.ready.living().remove(place.index);
            drop(waker);
        }
    }
}
