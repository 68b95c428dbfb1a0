//! From a plan to a report.

use crate::affinity::{self, PinError};
use crate::conductor::conduct;
use crate::limits::{self, FileShortage};
use crate::plan::{Plan, PlanError};
use crate::report::Report;
use annulus::Runtime;
use std::fmt;
use std::io;
use std::time::Duration;

/// Told what happens, on the load's own thread: what it does there keeps the clients waiting.
pub trait Observer {
    /// Measuring starts when this returns.
    fn window_opened(&mut self) {}
    /// Measuring has just ended.
    fn window_closed(&mut self) {}
    /// Some ten times a second while measuring.
    fn progress(&mut self, _progress: Progress) {}
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
    Files(FileShortage),
    /// The CPU to run on cannot be had.
    Pin(PinError),
    /// The runtime could not be set up, or this thread already has one.
    Runtime(io::Error),
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
    // At the end nothing is left to send that anyone waits for.
    let builder = Runtime::builder().driver(plan.driver).grace(Duration::ZERO);
    let mut runtime = builder.build().map_err(LoadError::Runtime)?;
    let driver = runtime.driver().to_string();
    let outcome = runtime.block_on(conduct(plan, observer)).map_err(LoadError::Runtime)?;
    Ok(Report::new(plan, driver, outcome))
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Plan(error) => error.fmt(f),
            LoadError::Files(error) => error.fmt(f),
            LoadError::Pin(error) => error.fmt(f),
            LoadError::Runtime(error) => write!(f, "the load cannot run here: {error}"),
        }
    }
}

impl std::error::Error for LoadError {}
