//! Output to `tracing`, with the feature of that name: a span for each task, and events of connections, all at the level `TRACE`.
//! Without the feature none of this is compiled in.
//!
//! A subscriber is foreign code: it is not called while the runtime is borrowed, and its panics end no task.

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::panic::Location;

/// The future of a task, which is polled and dropped in a span that has the place that spawned it.
#[cfg(feature = "tracing")]
pub(crate) fn in_span<F: Future + 'static>(
    future: F,
    spawned_at: &'static Location<'static>,
) -> impl Future<Output = F::Output> + 'static {
    use tracing::Instrument;

    let span = || tracing::trace_span!(target: "annulus::task", parent: None, "task", %spawned_at);
    future.instrument(crate::unwind::contained(span).unwrap_or_else(tracing::Span::none))
}

#[cfg(not(feature = "tracing"))]
#[inline]
pub(crate) fn in_span<F: Future + 'static>(
    future: F,
    _: &'static Location<'static>,
) -> impl Future<Output = F::Output> + 'static {
    future
}

/// An event of the socket with this descriptor or address. Not while the runtime is borrowed.
#[inline]
pub(crate) fn event(what: &str, socket: &dyn Display) {
    #[cfg(feature = "tracing")]
    crate::unwind::contained(|| tracing::trace!(target: "annulus::net", %socket, "{what}"));
    _ = (what, socket);
}

/// An error of a socket. Not while the runtime is borrowed.
#[inline]
pub(crate) fn failure(what: &str, error: &io::Error) {
    #[cfg(feature = "tracing")]
    crate::unwind::contained(|| tracing::trace!(target: "annulus::net", %error, "{what}"));
    _ = (what, error);
}
