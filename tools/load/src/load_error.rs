//! Why a run could not begin.

use crate::affinity::PinError;
use crate::invalid::InvalidValue;
use crate::limits::OpenFileShortage;
use std::io;

/// A run that could not begin. Failures of the server are in its [`Recording`](crate::recording::Recording) instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(InvalidValue),
    /// More clients than this process may open files.
    #[error(transparent)]
    Files(OpenFileShortage),
    /// The CPU of the plan is not available.
    #[error(transparent)]
    Pin(PinError),
    /// The runtime could not be set up, or this thread already has one.
    #[error("the load cannot run here: {0}")]
    Runtime(io::Error),
    /// The system does not start as many threads.
    #[error(
        "only {started} of {wanted} threads could be started: {error}; ask for fewer clients, raise the limit \
         (ulimit -u), or choose the uring or epoll driver"
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
