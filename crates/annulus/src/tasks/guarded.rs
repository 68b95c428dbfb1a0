//! A future with a guard, which is notified of the future's end.

use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// A task's future. It is dropped before the guard is.
    pub(crate) struct Guarded<F, G> {
        #[pin]
        future: F,
        _guard: G,
    }
}

impl<F, G> Guarded<F, G> {
    pub(crate) fn new(future: F, guard: G) -> Self {
        Self { future, _guard: guard }
    }
}

impl<F: Future, G> Future for Guarded<F, G> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(cx)
    }
}
