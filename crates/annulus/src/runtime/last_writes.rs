//! Queued file writes. If the runtime ends first, they are still completed within its shutdown
//! timeout.

use super::core::Core;
use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

type Write = Pin<Box<dyn Future<Output = ()>>>;

/// Writes whose tasks were dropped by the end of the runtime. `None` unless it is ending.
#[derive(Default)]
pub(crate) struct LastWrites(RefCell<Option<Vec<Write>>>);

impl LastWrites {
    /// Accepts writes from now on.
    pub(super) fn open(&self) {
        *self.0.borrow_mut() = Some(Vec::new());
    }

    /// Gives up on the remaining writes.
    pub(super) fn close(&self) {
        drop(self.0.take());
    }

    fn push(&self, write: Write) {
        if let Some(writes) = &mut *self.0.borrow_mut() {
            writes.push(write);
        }
    }

    /// Polls all writes. Returns true if none are left.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> bool {
        let mut writes = self.0.borrow_mut().as_mut().map(mem::take).unwrap_or_default();
        writes.retain_mut(|write| write.as_mut().poll(cx).is_pending());
        let all_done = writes.is_empty();
        writes.into_iter().for_each(|write| self.push(write));
        all_done
    }
}

/// A queued write for a task. If the end of the runtime drops the task, the write is completed
/// there.
pub(crate) struct QueuedWrite<F: Future + 'static> {
    core: Rc<Core>,
    /// `None` once the write is done.
    write: Option<Pin<Box<F>>>,
}

impl<F: Future + 'static> QueuedWrite<F> {
    pub(crate) fn new(core: Rc<Core>, write: F) -> Self {
        Self { core, write: Some(Box::pin(write)) }
    }
}

impl<F: Future + 'static> Future for QueuedWrite<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let write = self.write.as_mut().expect("polled after completion");
        let polled = write.as_mut().poll(cx);
        if polled.is_ready() {
            self.write = None;
        }
        polled
    }
}

impl<F: Future + 'static> Drop for QueuedWrite<F> {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            self.core.last_writes.push(Box::pin(async move { _ = write.await }));
        }
    }
}
