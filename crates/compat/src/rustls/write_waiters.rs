//! The tasks that wait until a session can send.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// The tasks that wait until a session can send its encrypted data. Each half of a split stream may
/// be in a task of its own, but the underlying stream keeps only the waker of the last one.
#[derive(Debug, Default)]
pub(super) struct WriteWaiters {
    /// The task that reads, if it is also sending queued data.
    reader: Option<Waker>,
    /// The task that writes, flushes or shuts down.
    writer: Option<Waker>,
}

impl WriteWaiters {
    /// Polls the session's write side for the task that writes.
    pub(super) fn poll_writer<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        poll_both(&mut self.writer, &self.reader, cx, poll)
    }

    /// Polls the session's write side for the task that reads.
    pub(super) fn poll_reader<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let polled = poll_both(&mut self.reader, &self.writer, cx, poll);
        if polled.is_ready() {
            self.wake_writer();
        }
        polled
    }

    /// Wakes the task that writes, after the session has sent or tried to send data for the reader.
    pub(super) fn wake_writer(&mut self) {
        self.writer.take().into_iter().for_each(Waker::wake);
    }

    /// Records that no data is queued, so that the reader has nothing to send.
    pub(super) fn all_sent(&mut self) {
        self.reader = None;
    }
}

/// Polls for the task of `cx`, and for the other task if it waits.
fn poll_both<T>(
    own: &mut Option<Waker>,
    other: &Option<Waker>,
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    let polled = match other {
        Some(other) if !other.will_wake(cx.waker()) => {
            let both = Waker::from(Arc::new(Both([cx.waker().clone(), other.clone()])));
            poll(&mut Context::from_waker(&both))
        }
        _ => poll(cx),
    };
    if polled.is_ready() {
        *own = None;
    } else if !own.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *own = Some(cx.waker().clone());
    }
    polled
}

/// Wakes two tasks.
struct Both([Waker; 2]);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.0.iter().for_each(Waker::wake_by_ref);
    }
}
