//! Reasons to doubt the figures of a run.

use super::{DatagramFigures, Figures, Findings, PerConnectionFigures, StreamFigures};
use crate::affinity;
use crate::measured::Measured;
use crate::plan::{Plan, Streams, Workload};
use crate::system::{Counters, SystemUse};
use std::time::Duration;

/// Above this share of its cores the load may be the bottleneck.
const SATURATED: f64 = 0.9;

/// A percentile rests on at least so many responses beyond it.
const ENOUGH_BEYOND: f64 = 10.0;
/// The load's own delay is a doubt above this share of the response times, at p99 of both.
const DELAYED: f64 = 0.2;
/// Nor is it one below this.
const MIN_DELAY_US: f64 = 100.0;
/// Late starts are a doubt above this share of the requests.
const LATE: f64 = 0.01;
/// Above this share of the time that the load's threads waited for a core, latencies show it.
const WAITED: f64 = 0.05;
/// Retransmits are a doubt if there are more than one in so many responses: then p99.99 may show them.
const RETRANSMITTED: u64 = 10_000;

pub(super) fn all(plan: &Plan, findings: &Findings, system: SystemUse) -> Vec<String> {
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
        Figures::Streams(figures) => {
            doubts.extend(of_streams(plan, figures.responses, failed));
            doubts.extend(of_starts(figures));
            doubts.extend(few(*measured, figures.responses));
        }
        Figures::PerConnection(_) if measured.interrupted => {}
        Figures::PerConnection(figures) => doubts.extend(missing(figures)),
        Figures::Datagrams(figures) => doubts.extend(loss(plan, figures)),
    }
    doubts.extend(of_system(plan, *measured, figures, system));
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
        format!(
            "the load used {percent:.0}% of {what}: the server may be faster than this shows; give the load more \
             threads or another machine, or ask for less"
        )
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

/// Messages that were sent late: since the connection waited for a reply, or since the load itself was late.
fn of_starts(figures: &StreamFigures) -> impl Iterator<Item = String> {
    let StreamFigures { sent, late, delay_us, latency_us, .. } = figures;
    let own = delay_us.p99 > MIN_DELAY_US.max(latency_us.p99 * DELAYED);
    let delayed = own.then(|| {
        format!(
            "the load's own timers were late: by {:.0} µs at p99, of response times of {:.0} µs; give it a core of its own \
             (--pin), more threads, or a lower rate",
            delay_us.p99, latency_us.p99
        )
    });
    let share = *late as f64 / (*sent).max(1) as f64;
    let blocked = (share > LATE && !own).then(|| {
        format!(
            "{late} of {sent} requests were sent more than 1 ms late, as their connections waited for replies: response \
             times count that, service times do not; with more clients (-c) or --pipeline fewer wait"
        )
    });
    delayed.into_iter().chain(blocked)
}

/// Too few responses for a percentile that is shown.
fn few(measured: Measured, responses: u64) -> Option<String> {
    let (name, share) = [("p90", 0.1), ("p99", 0.01), ("p99.9", 0.001)]
        .into_iter()
        .find(|(_, beyond)| responses > 0 && (responses as f64 * beyond).round() < ENOUGH_BEYOND)?;
    let needed = ENOUGH_BEYOND / share;
    let seconds = (measured.length.as_secs_f64() * needed / responses as f64).ceil();
    Some(format!(
        "{name} rests on fewer than {ENOUGH_BEYOND} of {responses} responses: measure for {seconds:.0} s (-t), or do not \
         rely on it"
    ))
}

/// What the kernel's counters say.
fn of_system(
    plan: &Plan,
    measured: Measured,
    figures: &Figures,
    system: SystemUse,
) -> impl Iterator<Item = String> {
    let share = measured.per_second(system.waited.unwrap_or_default().as_secs_f64());
    let share = share / plan.threads() as f64;
    let waited = (share > WAITED).then(|| {
        format!(
            "the load's threads were ready to run and waited for a core for {:.0}% of the time: other programs had it; \
             give the load a core of its own (--pin), or run it on another machine",
            share * 100.0
        )
    });
    let counters = system.counters.unwrap_or_default();
    waited.into_iter().chain(of_network(figures, counters))
}

/// Datagrams have losses, streams have pauses until TCP sends again.
fn of_network(figures: &Figures, counters: Counters) -> Vec<String> {
    let Counters { retransmits, dropped_datagrams, dropped_connects } = counters;
    if let Figures::Datagrams(_) = figures {
        let dropped = (dropped_datagrams > 0).then(|| {
            format!(
                "the kernel dropped {dropped_datagrams} datagrams, as the buffer of a socket of this host was full: raise \
                 net.core.rmem_default, or have fewer in flight"
            )
        });
        return dropped.into_iter().collect();
    }
    let affected = retransmits * RETRANSMITTED > figures.answered();
    let sent_again = (retransmits > 0 && affected).then(|| {
        format!(
            "TCP sent {retransmits} segments of this host again (all programs, both ends of local connections): each is a \
             pause of 200 ms or more in the latencies; look for losses on the way"
        )
    });
    let overflows = (dropped_connects > 0).then(|| {
        format!(
            "{dropped_connects} connects to this host were dropped as a listener's backlog was full: they took a second or \
             more; raise the server's backlog and net.core.somaxconn"
        )
    });
    sent_again.into_iter().chain(overflows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagrams::{self, Counts};
    use crate::metrics::Faults;
    use crate::per_connection::{self, Times};
    use crate::plan::{Datagrams, PerConnection, Streams, Workload};
    use crate::recording::{Interval, Latencies};
    use crate::streams;
    use hdrhistogram::Histogram;

    const SECOND: Duration = Duration::from_secs(1);

    fn plan(workload: impl Into<Workload>) -> Plan {
        Plan { pin: Some(0), ..Plan::new("127.0.0.1:7000".parse().unwrap(), workload) }
    }

    fn measured(length: Duration, share: f64, interrupted: bool) -> Measured {
        Measured { length, cpu: length.mul_f64(share), interrupted, ..Measured::default() }
    }

    fn doubts(plan: &Plan, measured: Measured, figures: Figures, failed: u64) -> String {
        let by_kind = (failed > 0).then(|| ("reset".to_owned(), failed)).into_iter().collect();
        let faults = Faults { by_kind, first: None };
        let findings =
            Findings { driver: String::new(), measured, figures, intervals: Vec::new(), faults };
        all(plan, &findings, SystemUse::default()).join("; ")
    }

    fn of_streams(measured: Measured, responses: u64, failed: u64) -> String {
        let response = [(1000, responses)].into_iter().collect();
        let recorded = [Interval { answered: responses, response, ..Interval::default() }];
        let plan = plan(Streams::default());
        let figures = streams::figures(&plan, Streams::default(), measured, &recorded);
        doubts(&plan, measured, figures, failed)
    }

    #[test]
    fn a_busy_client_and_failures_are_doubts() {
        assert_eq!(of_streams(measured(SECOND, 0.5, false), 10_000, 0), "");
        assert!(of_streams(Measured::default(), 0, 1).contains("not every client could"));
        let busy = of_streams(measured(SECOND, 0.97, false), 10_000, 2);
        assert!(busy.contains("97% of its core") && busy.contains("2 of 50 clients"), "{busy}");
        assert!(of_streams(measured(SECOND, 0.5, false), 0, 0).starts_with("no response"));
        let plan = plan(Streams { reconnect: true, ..Streams::default() });
        let measured = measured(SECOND, 0.5, false);
        let figures = streams::figures(&plan, Streams::default(), measured, &[]);
        assert!(doubts(&plan, measured, figures, 3).starts_with("3 times a connection failed"));
    }

    #[test]
    fn an_interruption_is_a_doubt() {
        let before = of_streams(Measured::interrupted(), 0, 0);
        assert_eq!(before, "nothing was measured: the run was interrupted before");
        let within = of_streams(measured(SECOND * 3 / 2, 0.0, true), 10_000, 0);
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

    #[test]
    fn what_the_kernel_counted_is_a_doubt() {
        let found = |workload: Workload, system| {
            let (plan, measured) = (plan(workload), measured(SECOND, 0.1, false));
            let response: Latencies = [(1000, 50_000)].into_iter().collect();
            let histogram = &response.histogram();
            let recorded = [Interval { response, ..Interval::default() }];
            let figures = match workload {
                Workload::Datagrams(datagrams) => {
                    let counts = Counts { sent: 5, answered: 5, ..Counts::default() };
                    datagrams::figures(&plan, datagrams, measured, counts, histogram)
                }
                _ => streams::figures(&plan, Streams::default(), measured, &recorded),
            };
            let faults = Faults::default();
            let findings = Findings {
                driver: String::new(),
                measured,
                figures,
                intervals: Vec::new(),
                faults,
            };
            all(&plan, &findings, system).join("; ")
        };
        let (streams, datagrams) = (Streams::default().into(), Datagrams::default().into());
        let waited =
            |ms| SystemUse { waited: Some(Duration::from_millis(ms)), ..SystemUse::default() };
        assert_eq!(found(streams, waited(40)), "");
        assert!(found(streams, waited(400)).contains("waited for a core for 40% of the time"));
        let counted = |retransmits, dropped_connects| SystemUse {
            counters: Some(Counters { retransmits, dropped_datagrams: 3, dropped_connects }),
            waited: None,
        };
        assert_eq!(found(streams, counted(5, 0)), "", "one in 10,000 responses");
        assert!(found(streams, counted(6, 0)).starts_with("TCP sent 6 segments"));
        assert!(found(streams, counted(0, 2)).starts_with("2 connects"));
        assert!(found(datagrams, counted(9, 9)).starts_with("the kernel dropped 3 datagrams"));
    }

    #[test]
    fn late_starts_are_a_doubt_about_what_caused_them() {
        let found = |delay_us: u64, late| {
            let times = |nanos| [(nanos, 50_000)].into_iter().collect();
            let (response, delay) = (times(1_000_000), times(delay_us * 1000));
            let recorded =
                [Interval { sent: 50_000, late, response, delay, ..Interval::default() }];
            let (plan, measured) = (plan(Streams::default()), measured(SECOND, 0.1, false));
            let figures = streams::figures(&plan, Streams::default(), measured, &recorded);
            doubts(&plan, measured, figures, 0)
        };
        assert_eq!(found(90, 400), "");
        assert!(found(90, 600).starts_with("600 of 50000 requests were sent more than 1 ms late"));
        assert!(found(400, 0).starts_with("the load's own timers were late: by 4"));
        assert!(!found(5000, 600).contains("waited for replies"), "its timers were the cause");
    }

    #[test]
    fn too_few_responses_are_a_doubt() {
        let found = |responses| of_streams(measured(SECOND, 0.5, false), responses, 0);
        assert_eq!(found(10_000), "");
        assert!(
            found(5000)
                .starts_with("p99.9 rests on fewer than 10 of 5000 responses: measure for 2 s")
        );
        assert!(found(9000).contains("measure for 2 s"), "it is rounded up");
        assert!(found(900).starts_with("p99 rests on"));
        assert!(
            found(5).starts_with("p90 rests on fewer than 10 of 5 responses: measure for 20 s")
        );
    }
}
