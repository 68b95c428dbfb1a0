//! The recording of a run.

use super::{Figures, Findings};
use crate::plan::Plan;
use crate::protocol::Protocol;
use crate::recording::{Machine, Recording, RunInfo};
use crate::tls::Tls;

/// The recording of a run of streams. Its command line, its label and the comparison of its clock are the caller's to add.
pub(super) fn of(plan: &Plan, findings: &Findings, doubts: &[String]) -> Option<Recording> {
    let Findings { measured, figures, intervals, faults, .. } = findings;
    let Figures::Streams(figures) = figures else { return None };
    let has_length = plan.protocol == Protocol::Echo && plan.sizes.is_none();
    let run = RunInfo {
        annulus: env!("CARGO_PKG_VERSION").into(),
        machine: Machine::this(),
        started: measured.started.as_secs_f64(),
        address: plan.address.to_string(),
        protocol: plan.protocol.name().to_owned(),
        tls: plan.tls.as_ref().map(Tls::to_string),
        length: has_length.then_some(plan.length as u64),
        clients: plan.clients as u64,
        threads: figures.threads as u64,
        pipeline: figures.pipeline as u64,
        schedule: figures.schedule.clone(),
        rate: figures.rate,
        warm_up: plan.warm_up.as_secs_f64(),
        duration: plan.duration.as_secs_f64(),
        interval: plan.interval.as_secs_f64(),
        seed: plan.seed,
        driver: findings.driver.clone(),
        ..RunInfo::default()
    };
    Some(Recording {
        interrupted: measured.interrupted,
        seconds: measured.length.as_secs_f64(),
        errors: faults.by_kind.clone(),
        first_error: faults.first.clone(),
        cpu_seconds: measured.cpu.as_secs_f64(),
        doubts: doubts.to_vec(),
        classes: plan.protocol.recorded_classes(),
        intervals: intervals.clone(),
        ..Recording::new(run)
    })
}
