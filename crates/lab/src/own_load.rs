//! Our load as the client of a slice.

use annulus_load::{Figures, Observer, Plan, Report};

use crate::bench::{CLIENT_CPU_SHARE, Sample};

/// Runs a load. A slice with any error is not accepted: the requests that remain are faster than they should be.
pub(crate) fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Sample, String> {
    let report = annulus_load::run(plan, observer).map_err(|error| error.to_string())?;
    if !report.errors.is_empty() {
        let errors = report.errors.iter().map(|(kind, count)| format!("{count} × {kind}"));
        let first = report.first_error.as_deref().unwrap_or("no more is known");
        return Err(format!("{} ({first})", errors.collect::<Vec<_>>().join(", ")));
    }
    if let Some(replies) = report.only_refusals() {
        return Err(format!("every reply is a refusal ({replies}): check what is asked for"));
    }
    sample(&report).ok_or_else(|| "no request was answered within the slice; make it longer".into())
}

/// The figures of a slice; `None` if nothing was answered.
fn sample(report: &Report) -> Option<Sample> {
    // Of datagrams, those echoed within the window, whose length and CPU time are known.
    let (operations, [mean_us, p50_us, p99_us]) = match &report.figures {
        Figures::Streams(figures) => {
            let latency = figures.latency_us;
            (figures.responses, [latency.mean, latency.p50, latency.p99])
        }
        Figures::PerConnection(figures) => {
            let times = figures.echo_us;
            (figures.completed, [times.average, times.p50, times.p99])
        }
        Figures::Datagrams(figures) => {
            let latency = figures.latency_us;
            (figures.echoes, [latency.mean, latency.p50, latency.p99])
        }
    };
    let mut sample = Sample::from([
        ("operations", operations as f64),
        ("ns", report.seconds * 1e9),
        ("mean_us", mean_us),
        ("p50_us", p50_us),
        ("p99_us", p99_us),
        (CLIENT_CPU_SHARE, report.client_cpu_share),
    ]);
    match &report.figures {
        Figures::Streams(figures) => {
            sample.set("p99_9_us", figures.latency_us.p99_9);
            sample.set("service_p99_9_us", figures.service_us.p99_9);
        }
        Figures::Datagrams(figures) => sample.set("lost", figures.lost as f64),
        Figures::PerConnection(_) => {}
    }
    (operations > 0).then_some(sample)
}
