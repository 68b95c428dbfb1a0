//! The part of the page that a reader is to grasp at once: title and tiles.

use crate::recording::{Percentiles, Recording, RunInfo};
use annulus_page::{Notice, Table, Tile, text};

/// The label, or the server.
pub(super) fn title(run: &RunInfo) -> String {
    run.label.clone().unwrap_or_else(|| match run.address.is_empty() {
        true => "annulus load".into(),
        false => format!("Load on {}", run.address),
    })
}

/// When, how long, how much.
pub(super) fn subtitle(recording: &Recording) -> String {
    let Recording { run, seconds, .. } = recording;
    let mut parts = Vec::new();
    if run.label.is_some() {
        parts.push(run.address.clone());
    }
    parts.extend(started(run));
    parts.push(format!("{} s", text::number(*seconds)));
    parts.push(format!("{} clients", text::number(run.clients as f64)));
    parts.push(run.schedule.clone());
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// When measuring began, in UTC.
pub(super) fn started(run: &RunInfo) -> Option<String> {
    let started = jiff::Timestamp::from_second(run.started as i64).ok();
    started.filter(|_| run.started > 0.0).map(|at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

pub(super) fn tiles(recording: &Recording) -> Vec<Tile> {
    let summary = recording.summary();
    let latency = summary.latency_us;
    let rate = Tile {
        label: "answered a second".into(),
        value: text::number(summary.requests_per_second.round()),
        note: format!("{} in all", text::number(summary.responses as f64)),
    };
    let (label, count, all, noun) = match summary.datagrams {
        Some(datagrams) => ("lost", datagrams.lost, summary.sent, "datagrams"),
        None => ("failed", summary.failed, summary.requests, "requests"),
    };
    let share = text::percent(count as f64 / all.max(1) as f64);
    let note = format!("{share} of all {noun}");
    let failed = Tile { label: label.into(), value: text::number(count as f64), note };
    let cpu = Tile {
        label: "load's own CPU".into(),
        value: text::percent(recording.cpu_share()),
        note: "of a core".into(),
    };
    let percentiles = Percentiles::SHARES.into_iter().zip(latency.values());
    let percentiles = percentiles.filter(|((name, _), _)| ["p50", "p99", "p99.9"].contains(name));
    let latencies = percentiles.map(|((name, share), value)| percentile_tile(name, share, value));
    [rate].into_iter().chain(latencies).chain([failed, cpu]).collect()
}

fn percentile_tile(name: &str, share: f64, micros: Option<f64>) -> Tile {
    let missing =
        || format!("takes {} samples", text::number(Percentiles::samples_for(share) as f64));
    Tile {
        label: name.into(),
        value: micros.map_or("–".into(), time),
        note: if micros.is_some() { "response time".into() } else { missing() },
    }
}

pub(super) fn notices(recording: &Recording) -> Vec<Notice> {
    let notice = |text: &String| Notice { text: text.clone(), advice: String::new() };
    recording.warnings.iter().map(notice).collect()
}

/// Response and service time, row by row, and the phases of connections that carry one message each.
pub(super) fn percentiles(recording: &Recording) -> Table {
    let summary = recording.summary();
    let head = ["", "response time", "service time"].map(String::from).to_vec();
    let columns = [summary.latency_us, summary.service_us];
    let row = |name: &str, of: &dyn Fn(&Percentiles) -> Option<f64>| {
        let has_samples = |column: &&Percentiles| column.samples > 0;
        let cell = |column: &Percentiles| Some(column).filter(has_samples).and_then(of);
        let cells = columns.iter().map(|column| cell(column).map_or("–".into(), time));
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let mut rows =
        vec![row("minimum", &|column| Some(column.min)), row("mean", &|column| Some(column.mean))];
    let shares = Percentiles::SHARES.iter().enumerate();
    rows.extend(shares.map(|(place, (name, _))| row(name, &|column| column.values()[place])));
    rows.push(row("maximum", &|column| Some(column.max)));
    Table { head, rows }
}

/// Microseconds in the unit that suits them.
pub(super) fn time(micros: f64) -> String {
    text::nanoseconds(micros * 1e3)
}
