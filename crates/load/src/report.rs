//! What a run found.

use crate::affinity;
use crate::measured::Measured;
use crate::metrics::Totals;
use crate::mode::Mode;
use crate::plan::Plan;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Above this share of its cores the client may have been the bottleneck.
const SATURATED: f64 = 0.9;

/// The result of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The server's address.
    pub address: String,
    /// Connections.
    pub clients: usize,
    /// Bytes a message.
    pub length: usize,
    /// Messages in flight at a connection.
    pub pipeline: usize,
    /// Messages a second that were asked for, where it was an open loop.
    pub rate: Option<f64>,
    /// Requests that were settled within the window: answered or failed.
    pub requests: u64,
    /// Complete and correct responses within the window.
    pub responses: u64,
    /// The measured time; 0 where measuring never began.
    pub seconds: f64,
    /// Whether the run was interrupted: the figures are of what there was until then.
    pub interrupted: bool,
    /// Responses over measured time.
    pub requests_per_second: f64,
    /// Latency in µs, from the intended start of a message to the last byte of its response.
    pub latency_us: LatencySummary,
    /// Failures of the whole run by kind: `connect refused`, `connect timeout`, `no local port`, `connect failed`,
    /// `reset`, `closed early`, `wrong bytes`, `too many bytes`, `reply timeout`, `input/output error`. A client that
    /// fails stays down, so each counts at most once a client.
    pub errors: BTreeMap<String, u64>,
    /// The first failure in words.
    pub first_error: Option<String>,
    /// CPU time the load itself used within the window, over its length: of one thread where the clients are tasks, of
    /// all threads where they are threads.
    pub client_cpu_share: f64,
    /// What the load ran on, and why.
    pub driver: String,
    /// What speaks against these figures.
    pub doubts: Vec<String>,
    /// Every latency of the window, in ns.
    #[serde(skip)]
    pub histogram: Histogram<u64>,
}

/// The usual figures of a latency distribution, in µs; all zero where nothing was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// The shortest.
    pub min: f64,
    /// The average.
    pub mean: f64,
    /// Half took no longer.
    pub p50: f64,
    /// Nine in ten took no longer.
    pub p90: f64,
    /// 99 in 100 took no longer.
    pub p99: f64,
    /// 999 in 1000 took no longer.
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
}

impl Report {
    pub(crate) fn new(
        plan: &Plan,
        driver: String,
        measured: Measured,
        take_totals: Totals,
    ) -> Report {
        let (seconds, responses) = (measured.length.as_secs_f64(), take_totals.histogram.len());
        let share = share(measured);
        Report {
            address: plan.address.to_string(),
            clients: plan.clients,
            length: plan.length,
            pipeline: plan.pipeline,
            rate: plan.rate,
            requests: responses + take_totals.failed,
            responses,
            seconds,
            requests_per_second: if seconds > 0.0 { responses as f64 / seconds } else { 0.0 },
            latency_us: LatencySummary::new(&take_totals.histogram),
            interrupted: measured.interrupted,
            doubts: doubts(plan, measured, responses, take_totals.faults.by_kind.values().sum()),
            errors: take_totals.faults.by_kind,
            first_error: take_totals.faults.first,
            client_cpu_share: share,
            driver,
            histogram: take_totals.histogram,
        }
    }
}

impl LatencySummary {
    /// Sums up a histogram of nanoseconds.
    pub fn new(histogram: &Histogram<u64>) -> LatencySummary {
        if histogram.is_empty() {
            return LatencySummary::default();
        }
        let at = |quantile| micros(histogram.value_at_quantile(quantile) as f64);
        LatencySummary {
            min: micros(histogram.min() as f64),
            mean: micros(histogram.mean()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: micros(histogram.max() as f64),
        }
    }
}

/// Nanoseconds as µs, to the nanosecond.
fn micros(nanos: f64) -> f64 {
    nanos.round() / 1000.0
}

fn share(measured: Measured) -> f64 {
    if measured.length.is_zero() {
        0.0
    } else {
        measured.cpu.as_secs_f64() / measured.length.as_secs_f64()
    }
}

fn doubts(plan: &Plan, measured: Measured, responses: u64, failed: u64) -> Vec<String> {
    let cut_short = interruption(measured, plan.duration);
    if measured.length.is_zero() {
        let nothing = "nothing was measured: not every client could connect and stay";
        return vec![cut_short.unwrap_or_else(|| nothing.into())];
    }
    let threads = if plan.mode == Mode::Threads { plan.clients } else { 1 };
    let mut doubts: Vec<String> = cut_short.into_iter().collect();
    doubts.extend(saturation(share(measured), plan.pin, threads));
    if failed > 0 {
        doubts.push(format!("{failed} of {} clients failed and stayed down", plan.clients));
    }
    if responses == 0 {
        doubts.push("no response came within the measured time".into());
    }
    doubts
}

/// The doubt about a run that was interrupted.
pub(crate) fn interruption(measured: Measured, planned: Duration) -> Option<String> {
    let (seconds, planned) = (measured.length.as_secs_f64(), planned.as_secs_f64());
    measured.interrupted.then(|| match measured.length.is_zero() {
        true => "nothing was measured: the run was interrupted before".into(),
        false => format!("the run was interrupted after {seconds:.3} of {planned:.3} s"),
    })
}

/// The doubt that the load itself may have set the pace: its threads used up the cores that they may use.
pub(crate) fn saturation(share: f64, pin: Option<usize>, threads: usize) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_answered_is_all_zero() {
        let histogram = Histogram::new(3).unwrap();
        assert_eq!(LatencySummary::new(&histogram), LatencySummary::default());
    }

    #[test]
    fn latencies_are_in_microseconds() {
        let mut histogram = Histogram::new(3).unwrap();
        (1..=1000).for_each(|n| histogram.record(n * 1000).unwrap());
        let summary = LatencySummary::new(&histogram);
        assert_eq!(summary.min, 1.0);
        for (found, wanted) in [
            (summary.mean, 500.5),
            (summary.p50, 500.0),
            (summary.p90, 900.0),
            (summary.p99, 990.0),
            (summary.p99_9, 999.0),
            (summary.max, 1000.0),
        ] {
            assert!((found / wanted - 1.0).abs() < 0.001, "{found} is not near {wanted}");
        }
    }

    #[test]
    fn a_busy_client_and_failures_are_doubts() {
        let plan = Plan::new("127.0.0.1:7000".parse().unwrap());
        let measured = |share: f64| {
            let length = Duration::from_secs(1);
            Measured { length, cpu: length.mul_f64(share), interrupted: false }
        };
        assert_eq!(doubts(&plan, measured(0.5), 1, 0), Vec::<String>::new());
        assert!(doubts(&plan, Measured::default(), 0, 1)[0].contains("not every client could"));
        let busy = doubts(&plan, measured(0.97), 1, 2).join("; ");
        assert!(busy.contains("97%") && busy.contains("2 of 50 clients"), "{busy}");
        assert!(doubts(&plan, measured(0.5), 0, 0)[0].starts_with("no response came"));
    }

    #[test]
    fn an_interruption_is_a_doubt() {
        let plan = Plan::new("127.0.0.1:7000".parse().unwrap());
        let before = doubts(&plan, Measured::interrupted(), 0, 0);
        assert_eq!(before, ["nothing was measured: the run was interrupted before"]);
        let length = Duration::from_millis(1500);
        let within = Measured { length, interrupted: true, ..Measured::default() };
        let doubts = doubts(&plan, within, 1, 0);
        assert_eq!(doubts, ["the run was interrupted after 1.500 of 60.000 s"]);
    }
}
