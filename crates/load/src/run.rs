//! Running a plan.

use crate::affinity::{self, PinError};
use crate::limits::{self, OpenFileShortage};
use crate::observer::Observer;
use crate::plan::{Plan, PlanError, Workload};
use crate::recording::Recording;
use crate::start_time::{StartError, StartTime};
use crate::system::Edges;
use crate::{datagrams, per_connection, streams};
use std::io;

/// A run that could not begin. Failures of the server are in its [`Recording`] instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(PlanError),
    /// More clients than this process may open files.
    #[error(transparent)]
    Files(OpenFileShortage),
    /// The CPU of the plan is not available.
    #[error(transparent)]
    Pin(PinError),
    /// The runtime could not be set up, or this thread already has one.
    #[error("the load cannot run here: {0}")]
    Runtime(io::Error),
    /// The run could not begin at the time of the plan.
    #[error(transparent)]
    Start(StartError),
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

/// Runs a plan; blocks the calling thread.
///
/// Failures of the server or of single clients are counted in [`Recording::errors`]. If not every client of
/// [`Workload::Streams`] or [`Workload::Datagrams`] can connect, nothing is measured and [`Recording::seconds`] is 0.
///
/// # Errors
/// If the run could not begin.
pub fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Recording, LoadError> {
    plan.validate().map_err(LoadError::Plan)?;
    limits::reserve(plan.max_open()).map_err(LoadError::Files)?;
    let _pinned = plan.pin.map(affinity::pin).transpose().map_err(LoadError::Pin)?;
    StartTime::of(plan).await_connect(observer).map_err(LoadError::Start)?;
    let mut edges = Edges::new(observer);
    let observer = &mut edges;
    let findings = match plan.workload {
        Workload::Streams(streams) => streams::run(plan, streams, observer)?,
        Workload::PerConnection(per_connection) => {
            per_connection::run(plan, per_connection.driver, observer)?
        }
        Workload::Datagrams(datagrams) => datagrams::run(plan, datagrams, observer)?,
    };
    Ok(findings.into_recording(plan, edges.used()))
}
