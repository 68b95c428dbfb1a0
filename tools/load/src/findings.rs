//! The results of a run, and the recording made from them.

use crate::fault::Faults;
use crate::load_error::LoadError;
use crate::observer::Observer;
use crate::plan::{Plan, Workload};
use crate::protocol::Protocol;
use crate::recording::{Interval, Machine, Recording, RunInfo, WorkloadKind};
use crate::schedule::Rate;
use crate::server_address::ServerAddress;
use crate::threads::{self, ClientKind, Measurement, RunContext, RuntimeSettings, ThreadResults};
use crate::tls::Tls;
use crate::warnings;
use std::sync::Arc;

pub(crate) struct RunResults {
    pub(crate) driver: String,
    pub(crate) measured: Measurement,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) faults: Faults,
}

impl RunResults {
    /// Runs clients of one kind on their own threads, and collects the results.
    pub(crate) fn of<K: ClientKind>(
        run: &Arc<RunContext>,
        settings: RuntimeSettings,
        observer: &mut dyn Observer,
        kind: impl Fn() -> K + Sync,
    ) -> Result<RunResults, LoadError> {
        let ThreadResults { driver, measured } = threads::run(run, settings, observer, kind)?;
        let finished = |interval: &Interval| observer.interval(interval);
        let intervals = run.collector.finish(measured.length, finished);
        Ok(RunResults { driver, measured, intervals, faults: run.faults.take() })
    }

    /// Creates the recording of a run. The caller adds the command line and the label.
    pub(crate) fn into_recording(self, plan: &Plan) -> Recording {
        let mut warnings = warnings::all(plan, (&self.measured, &self.faults), &self.intervals);
        warnings.extend(warnings::debug_build());
        let RunResults { driver, measured, intervals, faults } = self;
        Recording {
            interrupted: measured.interrupted,
            seconds: measured.length.as_secs_f64(),
            errors: faults.by_kind,
            first_error: faults.first,
            first_refusal: faults.refusal,
            cpu_seconds: measured.cpu.as_secs_f64(),
            warnings,
            classes: plan.protocol.recorded_classes(),
            intervals,
            ..Recording::new(RunInfo {
                started: measured.started.as_secs_f64(),
                driver,
                ..RunInfo::planned(plan)
            })
        }
    }
}

impl RunInfo {
    /// Describes a plan that has not run.
    pub fn planned(plan: &Plan) -> RunInfo {
        let has_length = plan.protocol == Protocol::Echo;
        let (workload, pipeline, schedule) = match plan.workload {
            Workload::Streams(streams) => {
                let each = match plan.requests_per_connection(streams) {
                    None => String::new(),
                    Some(1) => ", a new connection for each request".to_owned(),
                    Some(count) => format!(", a new connection every {count} requests"),
                };
                (WorkloadKind::Streams, streams.pipeline, format!("{}{each}", plan.schedule))
            }
            Workload::Datagrams(datagrams) => {
                let schedule = format!("{}, lost after {:?}", plan.schedule, plan.reply_timeout);
                (WorkloadKind::Datagrams, datagrams.window, schedule)
            }
        };
        RunInfo {
            annulus: env!("CARGO_PKG_VERSION").into(),
            machine: Machine::this(),
            address: address(plan, workload),
            workload,
            protocol: plan.protocol.name().to_owned(),
            tls: plan.tls.as_ref().map(Tls::to_string),
            length: has_length.then_some(plan.length as u64),
            connections: plan.clients as u64,
            threads: plan.threads() as u64,
            pipeline: pipeline as u64,
            schedule,
            rate: plan.schedule.rate().map(Rate::per_second),
            requests: plan.requests,
            request: match &plan.protocol.classes()[..] {
                [] => None,
                [one] => Some(one.clone()),
                several => Some(format!("{} kinds", several.len())),
            },
            warm_up: plan.warm_up.as_secs_f64(),
            duration: plan.duration.as_secs_f64(),
            interval: plan.interval.as_secs_f64(),
            seed: plan.seed,
            ..RunInfo::default()
        }
    }
}

/// Formats the server's addresses, with a prefix for datagrams.
fn address(plan: &Plan, workload: WorkloadKind) -> String {
    match (&plan.address, workload) {
        (ServerAddress::Inet(address), WorkloadKind::Datagrams) => format!("udp://{address}"),
        (ServerAddress::Unix(path), WorkloadKind::Datagrams) => {
            format!("unix-datagram:{}", path.display())
        }
        (address, _) => {
            let more = plan.more_addresses.iter().map(|more| format!(", {more}"));
            format!("{address}{}", more.collect::<String>())
        }
    }
}
