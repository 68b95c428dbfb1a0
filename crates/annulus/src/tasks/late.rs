//! A future that is created on the thread that polls it.
#![allow(unsafe_code)]

use super::join::JoinHandle;
use super::raw;
use crate::tasks::remote::Remote;
use pin_project_lite::pin_project;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pin_project! {
    /// The future that `make` returns. The first poll calls `make`.
    struct Late<M, F> {
        make: Option<M>,
        #[pin]
        future: Option<F>,
    }
}

// SAFETY: until the first poll there is only `make`, which is `Send`. `spawn_late` is the only
// function that creates a value, and makes it a task, which is polled on its owner's thread alone,
// and dropped there once it has been polled.
unsafe impl<M: Send, F> Send for Late<M, F> {}

impl<M: FnOnce() -> F, F: Future> Future for Late<M, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        if let Some(make) = this.make.take() {
            this.future.set(Some(make()));
        }
        this.future.as_pin_mut().expect("polled after a panic").poll(cx)
    }
}

/// Spawns a task from another thread. Its future is created on the thread of the runtime with the
/// inbox `remote`.
#[track_caller]
pub(crate) fn spawn_late<M, F>(remote: &Arc<Remote>, make: M) -> JoinHandle<F::Output>
where
    M: FnOnce() -> F + Send + 'static,
    F: Future + 'static,
    F::Output: Send,
{
    let future = Late { make: Some(make), future: None };
    JoinHandle::new(Some(raw::send(future, remote, Location::caller())))
}
