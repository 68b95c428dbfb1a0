//! The findings of a run, and the recording that is made of them.

use crate::doubts;
use crate::fault_log::{FaultLog, Faults};
use crate::load_error::LoadError;
use crate::observer::Observer;
use crate::plan::{Plan, Streams, Workload};
use crate::protocol::Protocol;
use crate::recording::{Collector, Interval, Machine, Recording, RunInfo, WorkloadKind};
use crate::schedule::Rate;
use crate::server_address::ServerAddress;
use crate::system::SystemUse;
use crate::threads::{self, Measured, Ran, Settings, Share};
use crate::tls::Tls;

/// The findings of a workload.
pub(crate) struct Findings {
    pub(crate) driver: String,
    pub(crate) measured: Measured,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) faults: Faults,
}

impl Findings {
    /// Runs shares of the clients on threads of their own, and takes what they have recorded.
    pub(crate) fn of<S: Share>(
        plan: &Plan,
        threads: usize,
        settings: Settings,
        (faults, collector): (&FaultLog, &Collector),
        observer: &mut dyn Observer,
        share: impl Fn(usize) -> S + Sync,
    ) -> Result<Findings, LoadError> {
        let ran = threads::run(
            plan,
            threads,
            settings,
            (observer, collector),
            || faults.interrupt(),
            share,
        )?;
        let Ran { driver, measured } = ran;
        let intervals = collector.finish(measured.length, |interval| observer.interval(interval));
        Ok(Findings { driver, measured, intervals, faults: faults.take() })
    }

    /// The recording of a run. Its command line, its label and the comparison of its clock are the caller's to add.
    pub(crate) fn into_recording(self, plan: &Plan, system: SystemUse) -> Recording {
        let doubts = doubts::all(plan, (&self.measured, &self.faults), &self.intervals, system);
        let Findings { driver, measured, intervals, faults } = self;
        Recording {
            interrupted: measured.interrupted,
            seconds: measured.length.as_secs_f64(),
            errors: faults.by_kind,
            first_error: faults.first,
            first_refusal: faults.refusal,
            cpu_seconds: measured.cpu.as_secs_f64(),
            doubts,
            classes: plan.protocol.recorded_classes(),
            intervals,
            ..Recording::new(RunInfo {
                started: measured.started.as_secs_f64(),
                driver,
                ..run_info(plan)
            })
        }
    }
}

/// The plan, as a recording describes it.
fn run_info(plan: &Plan) -> RunInfo {
    let has_length = plan.protocol == Protocol::Echo;
    let (workload, pipeline, schedule) = match plan.workload {
        Workload::Streams(Streams { pipeline, .. }) => {
            (WorkloadKind::Streams, pipeline, plan.schedule.to_string())
        }
        Workload::PerConnection(_) => {
            let schedule = format!("a connection per message, {} in all", plan.connections());
            (WorkloadKind::PerConnection, 1, schedule)
        }
        Workload::Datagrams(datagrams) => {
            let how = if datagrams.segments { ", as segments" } else { "" };
            let schedule = format!("{}, lost after {:?}{how}", plan.schedule, plan.reply_timeout);
            (WorkloadKind::Datagrams, datagrams.window, schedule)
        }
    };
    let is_timed = workload != WorkloadKind::PerConnection;
    let seconds = |time: std::time::Duration| if is_timed { time.as_secs_f64() } else { 0.0 };
    RunInfo {
        annulus: env!("CARGO_PKG_VERSION").into(),
        machine: Machine::this(),
        address: address(plan, workload),
        workload,
        protocol: plan.protocol.name().to_owned(),
        tls: plan.tls.as_ref().map(Tls::to_string),
        length: has_length.then_some(plan.length as u64),
        clients: plan.clients as u64,
        threads: plan.threads() as u64,
        pipeline: pipeline as u64,
        schedule,
        rate: plan.schedule.rate().map(Rate::per_second),
        warm_up: seconds(plan.warm_up),
        duration: seconds(plan.duration),
        interval: plan.interval.as_secs_f64(),
        seed: plan.seed,
        ..RunInfo::default()
    }
}

/// The address of the server, as its clients are given it.
fn address(plan: &Plan, workload: WorkloadKind) -> String {
    match (&plan.address, workload) {
        (ServerAddress::Inet(address), WorkloadKind::Datagrams) => format!("udp://{address}"),
        (ServerAddress::Unix(path), WorkloadKind::Datagrams) => {
            format!("unix-datagram:{}", path.display())
        }
        (address, _) => address.to_string(),
    }
}
