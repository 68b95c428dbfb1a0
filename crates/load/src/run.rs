//! From a plan to a report.

use crate::affinity::{self, PinError};
use crate::limits::{self, OpenFileShortage};
use crate::metrics::Metrics;
use crate::mode::Mode;
use crate::plan::{Plan, PlanError};
use crate::report::Report;
use crate::{phases, threads};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Told what happens, on the thread that called [`run`]. Where the clients are tasks, they share it: what the observer
/// does there keeps them waiting.
pub trait Observer {
    /// Measuring starts when this returns. The time it takes is in no latency.
    fn window_opened(&mut self) {}
    /// Measuring has just ended.
    fn window_closed(&mut self) {}
    /// Some ten times a second while measuring.
    fn progress(&mut self, _progress: Progress) {}
    /// Whether the run is to end now, with what it has; asked some ten times a second.
    fn is_interrupted(&self) -> bool {
        false
    }
}

/// An observer that looks away.
impl Observer for () {}

/// How far the measuring has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Measured time so far.
    pub elapsed: Duration,
    /// Measured time in all.
    pub total: Duration,
    /// Responses so far.
    pub responses: u64,
}

/// Why a run could not even begin. What goes wrong with the server is in the [`Report`] instead.
#[derive(Debug)]
pub enum LoadError {
    /// The plan cannot be carried out by anyone.
    Plan(PlanError),
    /// More clients than this process may open files.
    Files(OpenFileShortage),
    /// The CPU to run on cannot be had.
    Pin(PinError),
    /// The runtime could not be set up, or this thread already has one.
    Runtime(io::Error),
    /// The system has no more threads.
    Threads {
        /// Threads that could be started.
        started: usize,
        /// Threads that were needed.
        wanted: usize,
        /// Why there are no more.
        error: io::Error,
    },
}

/// Carries out a plan on the calling thread, which it blocks.
///
/// Failures of the server or of single clients are counted in [`Report::errors`]; a run that could not connect all its
/// clients measures nothing, and its report has `seconds` 0.
///
/// # Errors
/// Where the run could not begin.
pub fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Report, LoadError> {
    plan.validate().map_err(LoadError::Plan)?;
    limits::reserve(plan.clients).map_err(LoadError::Files)?;
    let _pinned = plan.pin.map(affinity::pin).transpose().map_err(LoadError::Pin)?;
    let metrics = Arc::new(Metrics::new());
    let (driver, measured) = match plan.mode {
        Mode::Tasks(choice) => phases::run(plan, choice, observer, &metrics)?,
        Mode::Threads => threads::run(plan, observer, &metrics)?,
    };
    // The clients are gone, and with them their pads.
    Ok(Report::new(plan, driver, measured, metrics.take_totals()))
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Plan(error) => error.fmt(f),
            LoadError::Files(error) => error.fmt(f),
            LoadError::Pin(error) => error.fmt(f),
            LoadError::Runtime(error) => write!(f, "the load cannot run here: {error}"),
            LoadError::Threads { started, wanted, error } => write!(
                f,
                "only {started} of {wanted} threads could be started: {error}; ask for fewer clients, raise the limit \
                 (ulimit -u), or choose the uring or epoll driver"
            ),
        }
    }
}

impl std::error::Error for LoadError {}
