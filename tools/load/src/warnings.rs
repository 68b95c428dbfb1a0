//! Reasons not to rely on the figures of a run.

use crate::affinity;
use crate::fault::Faults;
use crate::part::Part;
use crate::plan::{Plan, Streams, Workload};
use crate::recording::{DatagramCounts, Interval, MIN_SAMPLES_BEYOND, Percentiles};
use crate::threads::Measurement;
use std::time::Duration;

/// A load that uses more than this share of its cores may be the bottleneck.
const MAX_CPU_SHARE: f64 = 0.9;

/// The load's own delay causes a warning if its p99 exceeds this share of the response times' p99,
/// and also [`MIN_DELAY_MICROS`].
const MAX_DELAY_SHARE: f64 = 0.2;
const MIN_DELAY_MICROS: f64 = 100.0;
/// Late starts cause a warning above this share of the requests.
const MAX_LATE_SHARE: f64 = 0.01;
/// If the load's threads waited for a core for more than this share of the time, latencies include
/// the wait.
const MAX_WAIT_SHARE: f64 = 0.05;

pub(crate) fn all(
    plan: &Plan,
    (measured, faults): (&Measurement, &Faults),
    intervals: &[Interval],
) -> Vec<String> {
    let mut total = Interval::default();
    intervals.iter().for_each(|interval| total.add(interval));
    let interrupted = interruption(*measured, plan, &total);
    if measured.length.is_zero() {
        return vec![interrupted.unwrap_or_else(|| nothing_measured(plan.workload).into())];
    }
    let share = measured.per_second(measured.cpu.as_secs_f64());
    let saturated = saturation(share, plan.pin, plan.threads());
    let mut warnings: Vec<String> = interrupted.into_iter().chain(saturated).collect();
    match plan.workload {
        Workload::Streams(streams) => {
            let failed = faults.by_kind.values().sum();
            warnings.extend(stream_failures(plan, streams, total.answered, failed));
            let connects = plan.requests_per_connection(streams).is_some();
            warnings.extend(unsent(&total).or_else(|| late_starts(connects, &total)));
            warnings.extend(redirects(&total));
            // A single part has only a share of the responses, so `Recording::merge` checks their
            // total.
            if plan.part == Part::WHOLE {
                warnings.extend(too_few_responses(plan, measured.length, total.answered));
            }
        }
        Workload::Datagrams(_) => warnings.extend(datagram_loss(plan, &total)),
    }
    warnings.extend(skipped_addresses(plan));
    warnings.extend(core_wait(*measured, plan.threads()));
    warnings
}

/// Warns if the load was built without optimisation.
pub(crate) fn debug_build() -> Option<String> {
    cfg!(debug_assertions).then(|| {
        "the load is a debug build, which takes several times the CPU time of a release build: \
         build it with --release"
            .to_owned()
    })
}

fn nothing_measured(workload: Workload) -> &'static str {
    match workload {
        Workload::Datagrams(_) => {
            "nothing was measured: some sockets could not be opened, or failed during the warm-up"
        }
        Workload::Streams(_) => {
            "nothing was measured: some connections could not be made, or failed during the warm-up"
        }
    }
}

/// Explains why the run ended early: it was interrupted, or its time was over before the planned
/// number of requests was sent.
fn interruption(measured: Measurement, plan: &Plan, total: &Interval) -> Option<String> {
    let (seconds, planned) = (measured.length.as_secs_f64(), plan.duration.as_secs_f64());
    let sent = total.sent - total.retried.min(total.sent);
    match (measured.interrupted, plan.own_requests()) {
        (true, _) if measured.length.is_zero() => {
            Some("nothing was measured: the run was interrupted before the window opened".into())
        }
        (true, Some(requests)) => {
            Some(format!("the run was interrupted after {sent} of {requests} requests"))
        }
        (true, None) => {
            Some(format!("the run was interrupted after {seconds:.3} of {planned:.3} s"))
        }
        (false, Some(requests)) if sent < requests && !measured.length.is_zero() => {
            Some(format!("only {sent} of {requests} requests were sent within {seconds:.3} s"))
        }
        (false, _) => None,
    }
}

/// Warns if the load may have been the bottleneck: its threads used up the cores that they may use.
fn saturation(share: f64, pin: Option<usize>, threads: usize) -> Option<String> {
    let cores = match pin {
        Some(_) => 1,
        None => affinity::allowed().map_or(1, |cores| cores.len()).min(threads),
    };
    (share > MAX_CPU_SHARE * cores as f64).then(|| {
        let percent = share * 100.0;
        let what = if cores == 1 { "its core".into() } else { format!("one core, out of {cores}") };
        format!(
            "the load used {percent:.0} % of {what}: the server may be faster than measured; give \
             the load more threads or its own machine, or reduce the load"
        )
    })
}

fn stream_failures(
    plan: &Plan,
    streams: Streams,
    responses: u64,
    failed: u64,
) -> impl Iterator<Item = String> {
    let failed = (failed > 0).then(|| match streams.reconnect {
        true if failed == 1 => "a connection failed, or could not be opened again".to_owned(),
        true => format!("connections failed, or could not be opened again, {failed} times"),
        false => {
            format!(
                "{failed} of {} connections failed and were not opened again",
                plan.own_clients()
            )
        }
    });
    let silent =
        (responses == 0).then(|| "no response arrived within the measured time".to_owned());
    failed.into_iter().chain(silent)
}

fn datagram_loss(plan: &Plan, total: &Interval) -> Option<String> {
    let DatagramCounts { lost, corrupt, .. } = total.datagrams.unwrap_or_default();
    let sent = total.sent;
    if corrupt > 0 && corrupt >= lost {
        let text = "the replies are not the datagrams that were sent: a load over datagrams measures only echo servers";
        return Some(text.to_owned());
    }
    (lost > 0).then(|| {
        let percent = lost as f64 * 100.0 / sent as f64;
        format!(
            "{percent:.3} % of the datagrams were lost: a socket's buffer may be too small for {} bytes from {} sockets \
             (net.core.rmem_default, rmem_max)",
            plan.length,
            plan.own_clients()
        )
    })
}

fn unsent(total: &Interval) -> Option<String> {
    let Interval { unsent, sent, .. } = total;
    let due = sent + unsent;
    (*unsent as f64 > due as f64 * MAX_LATE_SHARE).then(|| {
        format!(
            "{unsent} of {due} requests that were due were never sent, because their connections \
             waited for replies or had failed: no latency includes them; lower the rate, or use \
             more connections (-c) or a deeper --pipeline"
        )
    })
}

/// Warns if the server did no more than redirect, for example from `http` to `https`.
fn redirects(total: &Interval) -> Option<String> {
    const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];
    let count = |status| total.statuses.get(status).copied().unwrap_or_default();
    let redirected: u64 = REDIRECTS.iter().map(count).sum();
    (redirected > 0 && redirected == total.answered).then(|| {
        "every reply is a redirect, and the load follows none: give the URL that `curl -I` shows \
         as the location"
            .to_owned()
    })
}

/// Warns about addresses of the server that got no load.
fn skipped_addresses(plan: &Plan) -> Option<String> {
    let skipped: Vec<_> = plan.skipped_addresses.iter().map(ToString::to_string).collect();
    let why = match plan.workload {
        Workload::Streams(_) => "did not accept a connection",
        Workload::Datagrams(_) => "cannot be tried with datagrams",
    };
    (!skipped.is_empty()).then(|| {
        format!(
            "the server's name has further addresses without load: {} {why}",
            skipped.join(", ")
        )
    })
}

/// Warns about requests that were sent late, because their connections waited for replies or
/// because the load itself was late.
fn late_starts(connects: bool, total: &Interval) -> Option<String> {
    let Interval { sent, answered, late, delay, response, .. } = total;
    let [delay, latency] = [delay, response].map(|times| times.quantile(0.99) as f64 / 1e3);
    let own = delay > MIN_DELAY_MICROS.max(latency * MAX_DELAY_SHARE);
    let delayed = own.then(|| {
        format!(
            "the load itself sent requests late, by {delay:.0} µs at p99, with response times of \
             {latency:.0} µs; give it its own core (--pin), more threads, or a lower rate"
        )
    });
    let share = *late as f64 / (*sent).max(1) as f64;
    // With a limited number of requests per connection, requests also wait for connects.
    let blocked = (share > MAX_LATE_SHARE && !own && !connects && *answered > 0).then(|| {
        format!(
            "{late} of {sent} requests were sent more than 1 ms late, because their connections \
             waited for replies: response times include the wait, service times do not; use more \
             connections (-c) or a deeper --pipeline"
        )
    });
    delayed.or(blocked)
}

/// Warns if a percentile that is shown has too few responses.
pub(crate) fn too_few_responses(plan: &Plan, length: Duration, responses: u64) -> Option<String> {
    let (name, share) = Percentiles::SHARES[1..4]
        .iter()
        .find(|(_, share)| responses > 0 && responses < Percentiles::samples_for(*share))?;
    let needed = Percentiles::samples_for(*share);
    if plan.requests.is_some() {
        return Some(format!(
            "{name} depends on fewer than {MIN_SAMPLES_BEYOND} of {responses} responses: send \
             {needed} requests (-n), or do not rely on it"
        ));
    }
    let seconds = (length.as_secs_f64() * needed as f64 / responses as f64).ceil();
    Some(format!(
        "{name} depends on fewer than {MIN_SAMPLES_BEYOND} of {responses} responses: measure for \
         {seconds:.0} s (-d), or do not rely on it"
    ))
}

/// Warns if the load's threads waited for a core because other programs ran on it.
fn core_wait(measured: Measurement, threads: usize) -> Option<String> {
    let core_wait = measured.core_wait.unwrap_or_default().as_secs_f64();
    let share = measured.per_second(core_wait) / threads as f64;
    (share > MAX_WAIT_SHARE).then(|| {
        format!(
            "the load's threads waited for a core for {:.0} % of the time, because other programs \
             ran there; give the load its own core (--pin), or run it on another machine",
            share.min(1.0) * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Faults;
    use crate::plan::Datagrams;

    const SECOND: Duration = Duration::from_secs(1);

    fn plan(workload: impl Into<Workload>) -> Plan {
        Plan { pin: Some(0), ..Plan::new("127.0.0.1:7000".parse().unwrap(), workload) }
    }

    fn measured(length: Duration, share: f64, interrupted: bool) -> Measurement {
        Measurement { length, cpu: length.mul_f64(share), interrupted, ..Measurement::default() }
    }

    fn warnings(plan: &Plan, measured: Measurement, recorded: Interval, failed: u64) -> String {
        let by_kind = (failed > 0).then(|| ("reset".to_owned(), failed)).into_iter().collect();
        let faults = Faults { by_kind, ..Faults::default() };
        all(plan, (&measured, &faults), &[recorded]).join("; ")
    }

    fn stream_failures(measured: Measurement, responses: u64, failed: u64) -> String {
        let response = [(1000, responses)].into_iter().collect();
        let recorded = Interval { answered: responses, response, ..Interval::default() };
        warnings(&plan(Streams::default()), measured, recorded, failed)
    }

    #[test]
    fn saturated_load_and_failures_are_warnings() {
        assert_eq!(stream_failures(measured(SECOND, 0.5, false), 10_000, 0), "");
        assert!(
            stream_failures(Measurement::default(), 0, 1)
                .contains("some connections could not be made")
        );
        let busy = stream_failures(measured(SECOND, 0.97, false), 10_000, 2);
        assert!(
            busy.contains("97 % of its core") && busy.contains("2 of 50 connections"),
            "{busy}"
        );
        assert!(stream_failures(measured(SECOND, 0.5, false), 0, 0).starts_with("no response"));
        let plan = plan(Streams { reconnect: true, ..Streams::default() });
        let measured = measured(SECOND, 0.5, false);
        let none = Interval::default();
        assert!(
            warnings(&plan, measured, none, 3)
                .starts_with("connections failed, or could not be opened again, 3 times")
        );
        assert!(
            warnings(&plan, measured, Interval::default(), 1)
                .starts_with("a connection failed, or could not be opened again")
        );
    }

    #[test]
    fn interrupted_run_is_a_warning() {
        let before = stream_failures(Measurement::interrupted(), 0, 0);
        assert_eq!(
            before,
            "nothing was measured: the run was interrupted before the window opened"
        );
        let within = stream_failures(measured(SECOND * 3 / 2, 0.0, true), 10_000, 0);
        assert_eq!(within, "the run was interrupted after 1.500 of 10.000 s");
    }

    #[test]
    fn lost_datagrams_are_a_warning() {
        let found = |length, lost| {
            let (plan, measured) = (plan(Datagrams::default()), measured(length, 0.5, false));
            let datagrams = Some(DatagramCounts { lost, ..DatagramCounts::default() });
            warnings(&plan, measured, Interval { sent: 1000, datagrams, ..Interval::default() }, 0)
        };
        assert_eq!(found(SECOND, 0), "");
        assert!(found(SECOND, 1).starts_with("0.100 % of the datagrams were lost"));
        let datagrams = Some(DatagramCounts { lost: 20, corrupt: 24, ..DatagramCounts::default() });
        let (plan, measured) = (plan(Datagrams::default()), measured(SECOND, 0.5, false));
        let total = Interval { sent: 20, datagrams, ..Interval::default() };
        assert!(warnings(&plan, measured, total, 0).contains("measures only echo servers"));
        assert!(found(Duration::ZERO, 1).contains("some sockets could not be opened"));
    }

    #[test]
    fn nothing_but_redirects_is_a_warning() {
        let found = |statuses: &[(u16, u64)]| {
            let recorded = Interval {
                answered: 10_000,
                response: [(1000, 10_000)].into_iter().collect(),
                statuses: statuses.iter().copied().collect(),
                ..Interval::default()
            };
            warnings(&plan(Streams::default()), measured(SECOND, 0.1, false), recorded, 0)
        };
        assert!(found(&[(301, 9_999), (308, 1)]).starts_with("every reply is a redirect"));
        for others in [&[(302, 9_999), (200, 1)][..], &[(302, 9_999)], &[(304, 10_000)], &[]] {
            assert_eq!(found(others), "", "{others:?}");
        }
    }

    #[test]
    fn waiting_for_a_core_is_a_warning() {
        let found = |ms| {
            let core_wait = Some(Duration::from_millis(ms));
            stream_failures(Measurement { core_wait, ..measured(SECOND, 0.1, false) }, 50_000, 0)
        };
        assert_eq!(found(40), "");
        assert!(found(400).contains("waited for a core for 40 % of the time"));
    }

    #[test]
    fn late_starts_warning_gives_the_reason() {
        let found = |delay_us: u64, late| {
            let times = |nanos| [(nanos, 50_000)].into_iter().collect();
            let (response, delay) = (times(1_000_000), times(delay_us * 1000));
            let (sent, answered) = (50_000, 50_000);
            let recorded =
                Interval { sent, answered, late, response, delay, ..Interval::default() };
            warnings(&plan(Streams::default()), measured(SECOND, 0.1, false), recorded, 0)
        };
        assert_eq!(found(90, 400), "");
        assert!(found(90, 600).starts_with("600 of 50000 requests were sent more than 1 ms late"));
        assert!(found(400, 0).starts_with("the load itself sent requests late, by 4"));
        assert!(
            !found(5000, 600).contains("waited for replies"),
            "the warning gives replies as the reason, but the load itself was late"
        );
    }

    #[test]
    fn requests_that_were_due_but_not_sent_are_a_warning() {
        let found = |unsent| {
            let recorded = Interval {
                sent: 50_000,
                answered: 50_000,
                late: 600,
                unsent,
                response: [(1000, 50_000)].into_iter().collect(),
                ..Interval::default()
            };
            warnings(&plan(Streams::default()), measured(SECOND, 0.1, false), recorded, 0)
        };
        assert!(found(400).starts_with("600 of 50000 requests were sent more than 1 ms late"));
        assert!(found(600).starts_with("600 of 50600 requests that were due were never sent"));
    }

    #[test]
    fn planned_number_of_requests_that_was_not_reached_is_a_warning() {
        let found = |sent, interrupted| {
            let plan = Plan { requests: Some(10_000), ..plan(Streams::default()) };
            let recorded = Interval { sent, answered: sent, ..Interval::default() };
            warnings(&plan, measured(SECOND, 0.1, interrupted), recorded, 0)
        };
        assert_eq!(found(10_000, false), "");
        assert!(
            found(9999, false).starts_with("only 9999 of 10000 requests were sent within 1.000 s")
        );
        assert!(
            found(9999, true).starts_with("the run was interrupted after 9999 of 10000 requests")
        );
        assert!(found(900, false).contains("send 1000 requests (-n)"), "{}", found(900, false));
    }

    #[test]
    fn too_few_responses_are_a_warning() {
        let found = |responses| stream_failures(measured(SECOND, 0.5, false), responses, 0);
        assert_eq!(found(10_000), "");
        assert!(
            found(5000)
                .starts_with("p99.9 depends on fewer than 10 of 5000 responses: measure for 2 s")
        );
        assert!(found(9000).contains("measure for 2 s"), "the time should be rounded up");
        assert!(found(900).starts_with("p99 depends on"));
        assert!(
            found(5).starts_with("p90 depends on fewer than 10 of 5 responses: measure for 20 s")
        );
    }
}
