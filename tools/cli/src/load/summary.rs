//! The figures of a recording as text.

use crate::text::{Listing, thousands};
use annulus_load::recording::{
    ClassSummary, Percentiles, Phases, Recording, Summary, WorkloadKind,
};
use std::collections::BTreeMap;

/// The figures of a recording.
pub(super) fn of(recording: &Recording) -> String {
    let mut text = Listing::new();
    let summary = recording.summary();
    text.row("server", &server(recording));
    if let Some(tls) = &recording.run.tls {
        text.row("TLS", &printable(tls));
    }
    if !recording.run.schedule.is_empty() {
        text.row("schedule", &printable(&recording.run.schedule));
    }
    let rate = thousands(summary.requests_per_second.round() as u64);
    let answered = format!("{} in {:.3} s", thousands(summary.responses), recording.seconds);
    match recording.run.workload {
        WorkloadKind::PerConnection => {
            text.row("connections", &format!("{answered}, {rate} a second"));
        }
        WorkloadKind::Datagrams => {
            let bytes = recording.run.length.unwrap_or_default() as f64;
            let megabytes = summary.requests_per_second * bytes / 1e6;
            text.row("echoes/s", &format!("{rate}, {megabytes:.1} MB/s one way"));
            text.row("echoes", &answered);
        }
        _ => {
            text.row("requests/s", &rate);
            text.row("responses", &answered);
        }
    }
    if let Some(datagrams) = summary.datagrams {
        text.row("sent", &thousands(summary.sent));
        datagrams.named().iter().for_each(|(name, count)| text.row(name, &thousands(*count)));
    }
    outcomes(&mut text, &summary, &recording.run.protocol);
    if let Some(refusal) = &recording.first_refusal {
        text.row("refused", &format!("first: {}", printable(refusal)));
    }
    latencies(&mut text, &summary, recording.run.workload);
    summary.phases_us.iter().for_each(|took| phases(&mut text, took));
    recording.class_summaries().iter().for_each(|class| of_class(&mut text, class));
    text.row("client CPU", &format!("{:.1} % of a core", recording.cpu_share() * 100.0));
    if !recording.run.driver.is_empty() {
        text.row("driver", &printable(&recording.run.driver));
    }
    if recording.errors.is_empty() {
        text.row("errors", "none");
    }
    for (kind, count) in &recording.errors {
        text.row("errors", &format!("{}: {}", printable(kind), thousands(*count)));
    }
    recording.doubts.iter().for_each(|doubt| text.row("doubt", &printable(doubt)));
    if recording.run.workload == WorkloadKind::PerConnection && summary.responses > 0 {
        text.line("");
        totals(recording).iter().for_each(|line| text.line(line));
    }
    text.finish()
}

fn server(recording: &Recording) -> String {
    let run = &recording.run;
    let mut what = format!("{}, {} clients", printable(&run.address), thousands(run.clients));
    if run.protocol != "echo" && !run.protocol.is_empty() {
        what += &format!(" of {}", printable(&run.protocol));
    }
    if let Some(length) = run.length {
        what += &format!(" × {} bytes", thousands(length));
    }
    if run.pipeline > 1 {
        what += &format!(", {} in flight each", run.pipeline);
    }
    what
}

/// The figures of a class of requests.
fn of_class(text: &mut Listing, class: &ClassSummary) {
    let times = [("p50", class.latency_us.p50), ("p99", class.latency_us.p99)];
    let times = times
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| format!("{name} {value:.1} µs")));
    let failed = (class.failed > 0).then(|| format!("{} failed", thousands(class.failed)));
    let rest: Vec<_> = [counts(&class.outcomes)].into_iter().chain(times).chain(failed).collect();
    let rest = rest.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    let responses = thousands(class.responses);
    text.row("requests", &format!("{}: {responses} responses: {rest}", printable(&class.name)));
}

/// Replies by what they say, on a line.
fn counts(outcomes: &BTreeMap<String, u64>) -> String {
    let counts = outcomes.iter();
    let counts = counts.map(|(name, count)| format!("{} {}", printable(name), thousands(*count)));
    counts.collect::<Vec<_>>().join(", ")
}

fn outcomes(text: &mut Listing, summary: &Summary, protocol: &str) {
    if !summary.outcomes.is_empty() && protocol != "echo" {
        text.row("of these", &counts(&summary.outcomes));
    }
    if summary.late > 0 {
        let [late, sent] = [summary.late, summary.sent].map(thousands);
        text.row(
            "late",
            &format!("{late} of {sent} requests were sent over 1 ms after they were due"),
        );
    }
}

/// Response and service times, a line for each percentile that has enough samples.
fn latencies(text: &mut Listing, summary: &Summary, workload: WorkloadKind) {
    let (response, service) = (&summary.latency_us, &summary.service_us);
    let has_service = service.samples > 0;
    let line = |name: &str, of: &dyn Fn(&Percentiles) -> Option<f64>| {
        let cell = |figures| of(figures).map_or("–".to_owned(), |value| format!("{value:.1}"));
        let second = if has_service { cell(service) } else { String::new() };
        format!("{name:<9}{:>14}{second:>14}", cell(response)).trim_end().to_owned()
    };
    let [first, second] = match workload {
        WorkloadKind::PerConnection => ["with connect", "echo"],
        _ => ["response", "service"],
    };
    let second = if has_service { second } else { "" };
    text.row("latency µs", format!("{:<9}{first:>14}{second:>14}", "").trim_end());
    text.row("", &line("min", &|figures| Some(figures.min)));
    text.row("", &line("mean", &|figures| Some(figures.mean)));
    for (place, (name, share)) in Percentiles::SHARES.into_iter().enumerate() {
        if response.samples >= Percentiles::samples_for(share) {
            text.row("", &line(name, &|figures| figures.values()[place]));
        }
    }
    text.row("", &line("max", &|figures| Some(figures.max)));
    let missing = Percentiles::SHARES
        .iter()
        .find(|(_, share)| response.samples < Percentiles::samples_for(*share));
    if let Some((name, share)) = missing {
        let [samples, least] = [response.samples, Percentiles::samples_for(*share)].map(thousands);
        text.row("samples", &format!("{samples}: too few for {name}, which takes {least}"));
    }
}

/// How long the phases of connections took, a line for each.
fn phases(text: &mut Listing, phases: &Phases<Percentiles>) {
    let row = |cells: [String; 4]| cells.map(|cell| format!("{cell:>14}")).concat();
    let head = ["mean", "p50", "p99", "max"].map(String::from);
    text.row("phases µs", &format!("{:<9}{}", "", row(head)));
    for (name, took) in phases.named() {
        let cells = [Some(took.mean), took.p50, took.p99, Some(took.max)];
        let cells = cells.map(|value| value.map_or("–".into(), |value| format!("{value:.1}")));
        text.row("", &format!("{name:<9}{}", row(cells)));
    }
}

/// The totals as BenchEcho prints them, of the echoes of all connections and of the whole run; to three digits.
fn totals(recording: &Recording) -> [String; 7] {
    let (echo, elapsed) = (recording.total().service, recording.seconds * 1e6);
    let (count, average) = (echo.len() as f64, echo.mean() / 1e3);
    [
        "all echo sync:".into(),
        format!("sum:{:.0}us", average * count),
        format!("average:{average:.0}us"),
        format!("p99:{:.0}us", echo.quantile(0.99) as f64 / 1e3),
        "all echo async:".into(),
        format!("sum:: {elapsed:.0} us ({:.6} ms)", elapsed / 1e3),
        format!("average:{:.0}us", elapsed / count),
    ]
}

/// Text of a file without what a terminal would take for commands.
pub(super) fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_load::recording::{Interval, Latencies, RunInfo};

    /// The example in the description of BenchEcho.
    #[test]
    fn totals_have_the_published_form() {
        let service = Latencies::from_iter([(16_553_330, 98), (23_459_000, 2)]);
        let phases = Some(Phases { connect: service.clone(), ..Phases::default() });
        let (answered, response) = (100, service.clone());
        let interval = Interval { answered, response, service, phases, ..Interval::new(0.0, 0.04) };
        let workload = WorkloadKind::PerConnection;
        let run = RunInfo { workload, length: Some(16_384), clients: 100, ..RunInfo::default() };
        let (seconds, intervals) = (0.037_482, vec![interval]);
        let text = of(&Recording { seconds, intervals, ..Recording::new(run) });
        let document = "\nall echo sync:\nsum:1668997us\naverage:16690us\np99:23462us\n\
                        all echo async:\nsum:: 37482 us (37.482000 ms)\naverage:375us\n";
        assert!(text.ends_with(document), "{text}");
        for part in ["16,384 bytes", "2,668 a second", "with connect          echo", "  connect "] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
