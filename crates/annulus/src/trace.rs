//! Output to `tracing`, with the feature of that name: a span per task, and events for its wakers
//! and for connections, all at level `TRACE`. Without the feature none of this is compiled in.
//!
//! A subscriber is foreign code: except for clones of wakers, it is not called while the runtime is
//! borrowed, and its panics end no task.

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::panic::Location;

/// The span of a task. It uses the names that `console-subscriber` expects for tokio's tasks, so
/// that `tokio-console` shows our tasks.
#[cfg(feature = "tracing")]
pub(crate) struct TaskSpan(Option<tracing::Id>);

/// Empty without the feature.
#[cfg(not(feature = "tracing"))]
pub(crate) struct TaskSpan;

/// Wraps a task's future so that it is polled and dropped in a span that records where it was
/// spawned.
#[cfg(feature = "tracing")]
pub(crate) fn in_span<F: Future + 'static>(
    future: F,
    spawned_at: &'static Location<'static>,
) -> (impl Future<Output = F::Output> + 'static, TaskSpan) {
    use tracing::Instrument;

    let span = || {
        tracing::trace_span!(
            target: "annulus::task",
            parent: None,
            "runtime.spawn",
            kind = %"task",
            loc.file = spawned_at.file(),
            loc.line = spawned_at.line(),
            loc.col = spawned_at.column(),
        )
    };
    let span = crate::unwind::contained(span).unwrap_or_else(tracing::Span::none);
    let id = TaskSpan(span.id());
    (future.instrument(span), id)
}

#[cfg(not(feature = "tracing"))]
#[inline]
pub(crate) fn in_span<F: Future + 'static>(
    future: F,
    _: &'static Location<'static>,
) -> (impl Future<Output = F::Output> + 'static, TaskSpan) {
    (future, TaskSpan)
}

impl TaskSpan {
    /// Emits an event for a waker of the task. The runtime may be borrowed, because wakers are
    /// cloned under the borrow.
    #[inline]
    pub(crate) fn waker(&self, op: &str) {
        #[cfg(feature = "tracing")]
        if let Some(id) = &self.0 {
            let id = id.into_u64();
            crate::unwind::contained(
                || tracing::trace!(target: "tokio::task::waker", op, task.id = id),
            );
        }
        _ = op;
    }
}

/// Emits an event for the socket with this descriptor or address. Must not be called while the
/// runtime is borrowed.
#[inline]
pub(crate) fn event(what: &str, socket: &dyn Display) {
    #[cfg(feature = "tracing")]
    crate::unwind::contained(|| tracing::trace!(target: "annulus::net", %socket, "{what}"));
    _ = (what, socket);
}

/// Emits an event for an error of a socket. Must not be called while the runtime is borrowed.
#[inline]
pub(crate) fn failure(what: &str, error: &io::Error) {
    #[cfg(feature = "tracing")]
    crate::unwind::contained(|| tracing::trace!(target: "annulus::net", %error, "{what}"));
    _ = (what, error);
}
