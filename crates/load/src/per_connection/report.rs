//! What a run of visits found.

use super::connection::Times;
use super::plan::PerConnectionPlan;
use crate::measured::Measured;
use crate::metrics::Faults;
use crate::report::saturation;
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of one run of visits.
#[derive(Clone, Debug, Serialize)]
pub struct PerConnectionReport {
    /// The server's address.
    pub address: String,
    /// Visits asked for.
    pub connections: usize,
    /// Visits at once.
    pub clients: usize,
    /// Event loops.
    pub threads: usize,
    /// Bytes a message.
    pub length: usize,
    /// Visits that went well, with every byte as it should be.
    pub completed: u64,
    /// From the start of the first visit to the end of the last.
    pub seconds: f64,
    /// Whether the run was interrupted: the figures are of what there was until then.
    pub interrupted: bool,
    /// Visits that went well over that time.
    pub connections_per_second: f64,
    /// That time over the visits that went well, in µs; 0 where none did.
    pub elapsed_us_per_connection: f64,
    /// From the send to the last byte, in µs.
    pub echo_us: TimeSummary,
    /// From before the connect to the last byte, in µs.
    pub total_us: TimeSummary,
    /// Failures by kind, as in [`crate::Report::errors`].
    pub errors: BTreeMap<String, u64>,
    /// The first failure in words.
    pub first_error: Option<String>,
    /// CPU time of all threads of the load over the time it took.
    pub client_cpu_share: f64,
    /// The driver the load ran on, and why.
    pub driver: String,
    /// What speaks against these figures.
    pub doubts: Vec<String>,
}

/// How the times of all visits lie, in µs, exactly; all zero where there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TimeSummary {
    /// All together.
    pub sum: f64,
    /// The average.
    pub average: f64,
    /// The shortest.
    pub min: f64,
    /// Half took no longer.
    pub p50: f64,
    /// Nine in ten took no longer.
    pub p90: f64,
    /// 99 in 100 took no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl PerConnectionReport {
    pub(super) fn new(
        plan: &PerConnectionPlan,
        driver: String,
        measured: Measured,
        times: Vec<Times>,
        faults: Faults,
    ) -> PerConnectionReport {
        let (seconds, completed) = (measured.length.as_secs_f64(), times.len());
        let share = if seconds > 0.0 { measured.cpu.as_secs_f64() / seconds } else { 0.0 };
        let per_visit = |total: f64| if completed > 0 { total / completed as f64 } else { 0.0 };
        PerConnectionReport {
            address: plan.address.to_string(),
            connections: plan.connections,
            clients: plan.clients,
            threads: plan.threads,
            length: plan.length,
            completed: completed as u64,
            seconds,
            connections_per_second: if seconds > 0.0 { completed as f64 / seconds } else { 0.0 },
            elapsed_us_per_connection: per_visit(seconds * 1e6),
            echo_us: TimeSummary::of(times.iter().map(|times| times.echo).collect()),
            total_us: TimeSummary::of(times.iter().map(|times| times.total).collect()),
            interrupted: measured.interrupted,
            doubts: doubts(plan, measured.interrupted, completed, share),
            errors: faults.by_kind,
            first_error: faults.first,
            client_cpu_share: share,
            driver,
        }
    }
}

impl TimeSummary {
    /// Of times in ns.
    fn of(mut nanos: Vec<u64>) -> TimeSummary {
        if nanos.is_empty() {
            return TimeSummary::default();
        }
        nanos.sort_unstable();
        let micros = |nanos: u64| nanos as f64 / 1e3;
        // The smallest time that so many in a hundred did not exceed.
        let at = |percent: usize| micros(nanos[(nanos.len() * percent).div_ceil(100) - 1]);
        let sum = micros(nanos.iter().sum());
        TimeSummary {
            sum,
            average: sum / nanos.len() as f64,
            min: micros(nanos[0]),
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        }
    }
}

fn doubts(
    plan: &PerConnectionPlan,
    interrupted: bool,
    completed: usize,
    share: f64,
) -> Vec<String> {
    let planned = plan.connections;
    let cut_short = interrupted
        .then(|| format!("the run was interrupted after {completed} of {planned} connections"));
    let missing = if interrupted { 0 } else { planned - completed };
    let missing = (missing > 0)
        .then(|| format!("{missing} of {} connections did not come about", plan.connections));
    let saturated = saturation(share, plan.pin, plan.threads);
    cut_short.into_iter().chain(saturated).chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_exact() {
        let spread = TimeSummary::of((1..=1000).rev().map(|n| n * 1000).collect());
        assert_eq!((spread.sum, spread.average), (500_500.0, 500.5));
        assert_eq!((spread.min, spread.max), (1.0, 1000.0));
        assert_eq!((spread.p50, spread.p90, spread.p99), (500.0, 900.0, 990.0));
        let one = TimeSummary::of(vec![7000]);
        assert_eq!((one.p50, one.p99, one.max), (7.0, 7.0, 7.0));
        assert_eq!(TimeSummary::of(Vec::new()), TimeSummary::default());
    }

    #[test]
    fn connections_that_failed_are_a_doubt() {
        let mut plan = PerConnectionPlan::new("127.0.0.1:7000".parse().unwrap());
        plan.pin = Some(0);
        assert_eq!(doubts(&plan, false, 100, 0.5), Vec::<String>::new());
        assert_eq!(doubts(&plan, false, 90, 0.1), ["10 of 100 connections did not come about"]);
        let cut_short = doubts(&plan, true, 90, 0.1);
        assert_eq!(cut_short, ["the run was interrupted after 90 of 100 connections"]);
        assert!(doubts(&plan, false, 100, 0.96)[0].contains("96% of its core"));
    }
}
