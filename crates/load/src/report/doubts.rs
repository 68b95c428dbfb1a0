//! Reasons to doubt the figures of a run.

use super::{DatagramFigures, Figures, Findings, PerConnectionFigures};
use crate::affinity;
use crate::measured::Measured;
use crate::plan::{Plan, Streams, Workload};
use std::time::Duration;

/// Above this share of its cores the load may be the bottleneck.
const SATURATED: f64 = 0.9;

pub(super) fn all(plan: &Plan, findings: &Findings) -> Vec<String> {
    let Findings { measured, figures, faults, .. } = findings;
    let interrupted = match figures {
        Figures::PerConnection(figures) => measured.interrupted.then(|| {
            let PerConnectionFigures { completed, connections, .. } = figures;
            format!("the run was interrupted after {completed} of {connections} connections")
        }),
        Figures::Streams(_) | Figures::Datagrams(_) => interruption(*measured, plan.duration),
    };
    if let (true, Some(nothing)) = (measured.length.is_zero(), nothing_measured(figures)) {
        return vec![interrupted.unwrap_or_else(|| nothing.into())];
    }
    let share = measured.per_second(measured.cpu.as_secs_f64());
    let saturated = saturation(share, plan.pin, plan.threads());
    let failed = faults.by_kind.values().sum();
    let mut doubts: Vec<String> = interrupted.into_iter().chain(saturated).collect();
    match figures {
        Figures::Streams(figures) => doubts.extend(of_streams(plan, figures.responses, failed)),
        Figures::PerConnection(_) if measured.interrupted => {}
        Figures::PerConnection(figures) => doubts.extend(missing(figures)),
        Figures::Datagrams(figures) => doubts.extend(loss(plan, figures)),
    }
    doubts
}

/// Why a workload that is measured for a time has measured nothing.
fn nothing_measured(figures: &Figures) -> Option<&'static str> {
    match figures {
        Figures::Streams(_) => {
            Some("nothing was measured: not every client could connect and stay")
        }
        Figures::Datagrams(_) => Some("nothing was measured: not every client has a socket"),
        Figures::PerConnection(_) => None,
    }
}

fn interruption(measured: Measured, planned: Duration) -> Option<String> {
    let (seconds, planned) = (measured.length.as_secs_f64(), planned.as_secs_f64());
    measured.interrupted.then(|| match measured.length.is_zero() {
        true => "nothing was measured: the run was interrupted before".into(),
        false => format!("the run was interrupted after {seconds:.3} of {planned:.3} s"),
    })
}

/// The load may have been the bottleneck: its threads used up the cores that they may use.
fn saturation(share: f64, pin: Option<usize>, threads: usize) -> Option<String> {
    let cores = match pin {
        Some(_) => 1,
        None => affinity::allowed().map_or(1, |cores| cores.len()).min(threads),
    };
    (share > SATURATED * cores as f64).then(|| {
        let percent = share * 100.0;
        let what = if cores == 1 { "its core".into() } else { format!("a core, of {cores}") };
        format!("the load used {percent:.0}% of {what}: the server may be faster than this shows")
    })
}

fn of_streams(plan: &Plan, responses: u64, failed: u64) -> impl Iterator<Item = String> {
    let reconnect = matches!(plan.workload, Workload::Streams(Streams { reconnect: true, .. }));
    let failed = (failed > 0).then(|| match reconnect {
        true => format!("{failed} times a connection failed, or could not be made again"),
        false => format!("{failed} of {} clients failed and did not continue", plan.clients),
    });
    let silent =
        (responses == 0).then(|| "no response arrived within the measured time".to_owned());
    failed.into_iter().chain(silent)
}

fn missing(figures: &PerConnectionFigures) -> Option<String> {
    let PerConnectionFigures { connections, completed, .. } = figures;
    let missing = *connections as u64 - completed;
    (missing > 0).then(|| format!("{missing} of {connections} connections failed or never began"))
}

fn loss(plan: &Plan, figures: &DatagramFigures) -> Option<String> {
    let DatagramFigures { sent, lost, .. } = figures;
    (*lost > 0).then(|| {
        let percent = *lost as f64 * 100.0 / *sent as f64;
        format!(
            "{percent:.3}% of the datagrams were lost: a socket's buffer may be too small for {} bytes from {} clients \
             (net.core.rmem_default, rmem_max)",
            plan.length, plan.clients
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagrams::{self, Counts};
    use crate::metrics::Faults;
    use crate::per_connection::{self, Times};
    use crate::plan::{Datagrams, PerConnection, Streams, Workload};
    use crate::recording::Recorder;
    use crate::streams;
    use hdrhistogram::Histogram;

    const SECOND: Duration = Duration::from_secs(1);

    fn plan(workload: impl Into<Workload>) -> Plan {
        Plan { pin: Some(0), ..Plan::new("127.0.0.1:7000".parse().unwrap(), workload) }
    }

    fn measured(length: Duration, share: f64, interrupted: bool) -> Measured {
        Measured { length, cpu: length.mul_f64(share), interrupted }
    }

    fn doubts(plan: &Plan, measured: Measured, figures: Figures, failed: u64) -> String {
        let by_kind = (failed > 0).then(|| ("reset".to_owned(), failed)).into_iter().collect();
        let faults = Faults { by_kind, first: None };
        all(plan, &Findings { driver: String::new(), measured, figures, faults }).join("; ")
    }

    fn of_streams(measured: Measured, responses: u64, failed: u64) -> String {
        let mut recorded = Recorder::new();
        recorded.response.record_n(1000, responses).unwrap();
        let plan = plan(Streams::default());
        let figures = streams::figures(&plan, Streams::default(), measured, recorded);
        doubts(&plan, measured, figures, failed)
    }

    #[test]
    fn a_busy_client_and_failures_are_doubts() {
        assert_eq!(of_streams(measured(SECOND, 0.5, false), 1, 0), "");
        assert!(of_streams(Measured::default(), 0, 1).contains("not every client could"));
        let busy = of_streams(measured(SECOND, 0.97, false), 1, 2);
        assert!(busy.contains("97% of its core") && busy.contains("2 of 50 clients"), "{busy}");
        assert!(of_streams(measured(SECOND, 0.5, false), 0, 0).starts_with("no response"));
        let plan = plan(Streams { reconnect: true, ..Streams::default() });
        let measured = measured(SECOND, 0.5, false);
        let figures = streams::figures(&plan, Streams::default(), measured, Recorder::new());
        assert!(doubts(&plan, measured, figures, 3).starts_with("3 times a connection failed"));
    }

    #[test]
    fn an_interruption_is_a_doubt() {
        let before = of_streams(Measured::interrupted(), 0, 0);
        assert_eq!(before, "nothing was measured: the run was interrupted before");
        let within = of_streams(measured(SECOND * 3 / 2, 0.0, true), 1, 0);
        assert_eq!(within, "the run was interrupted after 1.500 of 60.000 s");
    }

    #[test]
    fn missing_connections_are_a_doubt() {
        let found = |interrupted, completed| {
            let workload = PerConnection { connections: Some(100), ..PerConnection::default() };
            let (plan, measured) = (plan(workload), measured(SECOND, 0.1, interrupted));
            let times = vec![Times { echo: 1, total: 1 }; completed];
            doubts(&plan, measured, per_connection::figures(&plan, measured, &times), 0)
        };
        assert_eq!(found(false, 100), "");
        assert_eq!(found(false, 90), "10 of 100 connections failed or never began");
        assert_eq!(found(true, 90), "the run was interrupted after 90 of 100 connections");
    }

    #[test]
    fn loss_is_a_doubt() {
        let found = |length, lost| {
            let workload = Datagrams::default();
            let (plan, measured) = (plan(workload), measured(length, 0.5, false));
            let counts = Counts { sent: 1000, answered: 1000 - lost, lost, ..Counts::default() };
            let histogram = Histogram::new(3).unwrap();
            let figures = datagrams::figures(&plan, workload, measured, counts, &histogram);
            doubts(&plan, measured, figures, 0)
        };
        assert_eq!(found(SECOND, 0), "");
        assert!(found(SECOND, 1).starts_with("0.100% of the datagrams were lost"));
        assert!(found(Duration::ZERO, 1).contains("not every client has a socket"));
    }
}
