use crate::affinity;
use crate::limits;
use crate::load_error::LoadError;
use crate::observer::Observer;
use crate::plan::{Plan, Workload};
use crate::recording::Recording;
use crate::{datagrams, streams};

/// Runs a plan, and blocks the calling thread until the run ends.
///
/// Failures of the server or of single clients are counted in [`Recording::errors`]. If some client
/// cannot connect, nothing is measured and [`Recording::seconds`] is 0.
///
/// # Errors
/// Fails if the run cannot start.
pub fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Recording, LoadError> {
    plan.validate().map_err(LoadError::Plan)?;
    limits::reserve(plan.own_clients()).map_err(LoadError::Files)?;
    let _pinned = plan.pin.map(affinity::pin).transpose().map_err(LoadError::Pin)?;
    let findings = match plan.workload {
        Workload::Streams(streams) => streams::run(plan, streams, observer)?,
        Workload::Datagrams(datagrams) => datagrams::run(plan, datagrams, observer)?,
    };
    Ok(findings.into_recording(plan))
}
