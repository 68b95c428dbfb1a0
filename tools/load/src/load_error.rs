use crate::affinity::PinError;
use crate::invalid::InvalidValue;
use crate::limits::OpenFileShortage;
use std::io;

/// A reason why a run cannot start. Failures of the server are recorded in the
/// [`Recording`](crate::recording::Recording) instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(InvalidValue),
    /// The process may not open enough files for all clients.
    #[error(transparent)]
    Files(OpenFileShortage),
    /// The planned CPU is not available.
    #[error(transparent)]
    Pin(PinError),
    /// The runtime cannot be set up, or this thread already has one.
    #[error("cannot create the runtime of the load: {0}")]
    Runtime(io::Error),
    /// The system does not start enough threads.
    #[error(
        "only {started} of {wanted} threads could be started: {error}; use fewer connections, raise \
         the limit (ulimit -u), or choose the uring or epoll driver"
    )]
    Threads {
        /// Threads that were started.
        started: usize,
        /// Threads that were needed.
        wanted: usize,
        /// The system's error.
        error: io::Error,
    },
}
