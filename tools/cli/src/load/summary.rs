//! The figures of a recording as text.

use crate::text::{Listing, printable, thousands};
use annulus_load::recording::{
    ClassSummary, GroupSizes, PartInfo, Percentiles, Recording, ServerUsage, Summary, WorkloadKind,
};
use annulus_page::text;
use std::collections::BTreeMap;

pub(super) fn text(recording: &Recording) -> String {
    let mut text = Listing::new();
    let summary = recording.summary();
    text.row("server", &server(recording));
    if let Some(request) = &recording.run.request {
        text.row("request", &printable(request));
    }
    if let Some(tls) = &recording.run.tls {
        text.row("TLS", &printable(tls));
    }
    if !recording.run.schedule.is_empty() {
        text.row("schedule", &printable(&recording.run.schedule));
    }
    let rate = text::number(summary.requests_per_second);
    let answered = format!("{} in {:.3} s", thousands(summary.responses), recording.seconds);
    match recording.run.workload {
        WorkloadKind::Datagrams => {
            let bytes = recording.run.length.unwrap_or_default() as f64;
            let megabytes = summary.requests_per_second * bytes / 1e6;
            text.row("echoes/s", &format!("{rate}, {megabytes:.1} MB/s one way"));
            text.row("echoes", &answered);
        }
        _ => {
            text.row("requests/s", &rate);
            text.row("responses", &answered);
            text.row("sent", &sent(&summary));
            if summary.unsent > 0 {
                let were = if summary.unsent == 1 { "was" } else { "were" };
                let unsent = counted(summary.unsent, "request");
                text.row("never sent", &format!("{unsent} that {were} due"));
            }
        }
    }
    if let Some(datagrams) = summary.datagrams {
        text.row("sent", &thousands(summary.sent));
        datagrams.named().iter().for_each(|(name, count)| text.row(name, &thousands(*count)));
        if summary.cut_off > 0 {
            text.row("cut off", &thousands(summary.cut_off));
        }
    }
    add_outcomes(&mut text, &summary, &recording.run.protocol);
    if let Some(refusal) = &recording.first_refusal {
        text.row("refused", &format!("first: {}", printable(refusal)));
    }
    let [received, sent] = [summary.bytes_received_per_second, summary.bytes_sent_per_second];
    text.row("bytes", &format!("{} received, {} sent", bytes(received), bytes(sent)));
    if summary.together.groups > 0 {
        text.row("together", &together(&summary.together));
    }
    add_latencies(&mut text, &summary);
    recording.class_summaries().iter().for_each(|class| add_class(&mut text, class));
    for part in &recording.run.parts {
        text.row("part", &summary_of_part(part));
    }
    text.row("client CPU", &format!("{:.1} % of a core", recording.cpu_share() * 100.0));
    recording.server.iter().for_each(|server| add_server(&mut text, server));
    if !recording.run.driver.is_empty() {
        text.row("driver", &printable(&recording.run.driver));
    }
    if recording.errors.is_empty() {
        text.row("errors", "none");
    }
    for (kind, count) in &recording.errors {
        text.row("errors", &format!("{}: {}", printable(kind), thousands(*count)));
    }
    recording.warnings.iter().for_each(|warning| text.row("warning", &printable(warning)));
    text.finish()
}

/// Adds the server's usage, according to its agent.
fn add_server(text: &mut Listing, server: &ServerUsage) {
    let share = server.cpu_seconds / server.seconds.max(1e-9) * 100.0;
    let per_request = server.cpu_us_per_request.map(|cpu| format!("{} per request, ", micros(cpu)));
    let per_request = per_request.unwrap_or_default();
    text.row("server CPU", &format!("{per_request}{share:.1} % of a core"));
    let mebibytes = |bytes: u64| text::number(bytes as f64 / f64::from(1 << 20));
    let [memory, peak] = [server.resident_bytes, server.peak_resident_bytes].map(mebibytes);
    let processes = match server.processes {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    text.row("server mem", &format!("{memory} MiB resident, at most {peak}, in {processes}"));
    let switches = thousands(server.switches);
    let calls = match (server.read_calls, server.write_calls) {
        (Some(read), Some(write)) => {
            format!("{} of read and {} of write", thousands(read), thousands(write))
        }
        _ => "unknown".to_owned(),
    };
    text.row("server calls", &format!("{calls}; {switches} context switches"));
    server.unavailable.iter().for_each(|why| text.row("", &printable(why)));
    text.row("observed", &printable(&format!("{} on {}", server.process, server.host)));
}

fn summary_of_part(part: &PartInfo) -> String {
    let name = format!("{} {}", part.part, printable(&part.host));
    if let Some(why) = &part.missing {
        return format!("{name}: missing: {}", printable(why));
    }
    let share = if part.seconds > 0.0 { part.cpu_seconds / part.seconds * 100.0 } else { 0.0 };
    let responses = thousands(part.responses);
    format!("{name}: {responses} in {:.3} s, {share:.1} % of a core", part.seconds)
}

/// Formats what became of the requests. The sums on both sides of the colon are equal.
fn sent(summary: &Summary) -> String {
    let Summary { sent, responses, failed, retried, cut_off, in_flight_at_start, .. } = summary;
    let some = |count: &u64, what: &str| match count {
        0 => String::new(),
        count => format!(", {} {what}", thousands(*count)),
    };
    let [sent, responses] = [sent, responses].map(|count| thousands(*count));
    format!(
        "{sent}{}: {responses} answered{}{}{}",
        some(in_flight_at_start, "in flight at the start"),
        some(failed, "failed"),
        some(retried, "to be sent again"),
        some(cut_off, "cut off at the end"),
    )
}

/// Formats a count and a noun phrase. The first word gets a plural s unless the count is 1.
fn counted(count: u64, what: &str) -> String {
    let (first, rest) = what.split_at(what.find(' ').unwrap_or(what.len()));
    format!("{} {first}{}{rest}", thousands(count), if count == 1 { "" } else { "s" })
}

/// Formats how many requests were sent together: the share of each range of group sizes.
fn together(sizes: &GroupSizes) -> String {
    let range = |&(least, count): &(u64, u64)| {
        let most = (2 * least - 1).min(sizes.max);
        let range = if least == most { least.to_string() } else { format!("{least}–{most}") };
        format!("{range}: {}", text::percent(count as f64 / sizes.groups as f64))
    };
    let ranges = sizes.histogram.iter().map(range).collect::<Vec<_>>().join(", ");
    let (mean, groups) = (text::number(sizes.mean), counted(sizes.groups, "group of requests"));
    format!("{ranges} of {groups}, {mean} on average")
}

/// Formats bytes per second in a suitable unit.
fn bytes(per_second: f64) -> String {
    let (divisor, unit) = match per_second {
        ..1e3 => (1.0, "B"),
        ..999.5e3 => (1e3, "kB"),
        ..999.5e6 => (1e6, "MB"),
        _ => (1e9, "GB"),
    };
    format!("{} {unit}/s", text::number(per_second / divisor))
}

fn server(recording: &Recording) -> String {
    let run = &recording.run;
    let kind = if run.workload == WorkloadKind::Datagrams { "socket" } else { "connection" };
    let mut what = format!("{}, {}", printable(&run.address), counted(run.connections, kind));
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

fn add_class(text: &mut Listing, class: &ClassSummary) {
    let times = [("p50", class.latency_us.p50), ("p99", class.latency_us.p99)];
    let times = times
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| format!("{name} {}", micros(value))));
    let failed = (class.failed > 0).then(|| format!("{} failed", thousands(class.failed)));
    let rest: Vec<_> = [counts(&class.outcomes)].into_iter().chain(times).chain(failed).collect();
    let rest = rest.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    let responses = thousands(class.responses);
    text.row("requests", &format!("{}: {responses} responses: {rest}", printable(&class.name)));
}

/// Formats the number of replies per outcome.
fn counts(outcomes: &BTreeMap<String, u64>) -> String {
    let counts = outcomes.iter();
    let counts = counts.map(|(name, count)| format!("{} {}", printable(name), thousands(*count)));
    counts.collect::<Vec<_>>().join(", ")
}

fn add_outcomes(text: &mut Listing, summary: &Summary, protocol: &str) {
    if !summary.statuses.is_empty() {
        let statuses = summary.statuses.iter();
        let statuses = statuses.map(|(status, count)| format!("{} × {status}", thousands(*count)));
        text.row("status", &statuses.collect::<Vec<_>>().join(", "));
    }
    let is_known = summary.statuses.values().sum::<u64>() == summary.responses;
    if !is_known && !summary.outcomes.is_empty() && protocol != "echo" {
        text.row("of these", &counts(&summary.outcomes));
    }
    if summary.late > 0 {
        let [late, sent] = [summary.late, summary.sent].map(thousands);
        text.row("late", &format!("{late} of {sent} requests, sent over 1 ms after they were due"));
    }
}

/// Adds response and service times: min, mean, max, and each percentile with enough samples.
fn add_latencies(text: &mut Listing, summary: &Summary) {
    let (response, service) = (&summary.latency_us, &summary.service_us);
    if response.samples == 0 {
        return;
    }
    let has_service = service.samples > 0;
    let line = |name: &str, of: &dyn Fn(&Percentiles) -> Option<f64>| {
        let cell = |figures| of(figures).map_or("–".to_owned(), micros);
        let second = if has_service { cell(service) } else { String::new() };
        format!("{name:<9}{:>14}{second:>14}", cell(response)).trim_end().to_owned()
    };
    let second = if has_service { "service" } else { "" };
    text.row("latency", format!("{:<9}{:>14}{second:>14}", "", "response").trim_end());
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
        text.row("samples", &format!("{samples}: too few for {name}, which needs {least}"));
    }
}

/// Formats µs in a suitable unit.
fn micros(value: f64) -> String {
    text::nanoseconds(value * 1e3)
}
