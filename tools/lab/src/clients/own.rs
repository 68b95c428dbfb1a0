//! The client of a slice that is annulus's own load of requests.

use annulus_load::recording::{Latencies, Recording, WorkloadKind};
use annulus_load::{Observer, Plan, Streams, Workload};

use crate::bench::{CLIENT_CPU_SHARE, RECEIVED_KEY, REFUSED_KEY, Sample, together};

pub(super) fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Sample, String> {
    let recording = annulus_load::run(plan, observer).map_err(|error| error.to_string())?;
    accept(&recording)?;
    sample(&recording, plan)
        .ok_or_else(|| "no request was answered within the slice; make it longer".into())
}

/// Rejects a slice with any error, because the remaining requests are faster than they should be.
/// Also rejects a slice in which every reply is a refusal.
fn accept(recording: &Recording) -> Result<(), String> {
    let errors = recording.errors.iter().map(|(kind, count)| format!("{count} × {kind}"));
    let errors = errors.collect::<Vec<_>>().join(", ");
    let first = recording.first_error.as_deref().unwrap_or("no details");
    match recording.only_refusals() {
        _ if !errors.is_empty() => Err(format!("{errors} ({first})")),
        Some(replies) => Err(format!("every reply is a refusal ({replies}): check the request")),
        None => Ok(()),
    }
}

/// Returns the figures of a slice, or `None` if nothing was answered.
fn sample(recording: &Recording, plan: &Plan) -> Option<Sample> {
    let (total, workload) = (recording.total(), recording.run.workload);
    // With a connection per message, latency excludes the connect, as in the published tables.
    let times = match plan.workload {
        Workload::Streams(Streams { requests_per_connection: Some(1), .. }) => &total.service,
        _ => &total.response,
    };
    let at = |times: &Latencies, share| times.quantile(share) as f64 / 1e3;
    let mut sample = Sample::from([
        ("operations", total.answered as f64),
        ("ns", recording.seconds * 1e9),
        ("mean_us", times.mean() / 1e3),
        ("p50_us", at(times, 0.5)),
        ("p99_us", at(times, 0.99)),
        (CLIENT_CPU_SHARE, recording.cpu_share()),
        (REFUSED_KEY, total.refused as f64),
        (RECEIVED_KEY, total.bytes_received as f64),
    ]);
    if workload == WorkloadKind::Streams {
        sample.set("p99_9_us", at(&total.response, 0.999));
        sample.set("service_p99_9_us", at(&total.service, 0.999));
    }
    together(total.together.buckets()).for_each(|(key, number)| sample.set(key, number));
    if let Some(datagrams) = total.datagrams {
        sample.set("lost", datagrams.lost as f64);
    }
    (total.answered > 0).then_some(sample)
}
