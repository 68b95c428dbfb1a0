//! The tables of a run beside its latencies: outcomes, and the run itself.

use super::summary::{started, time};
use crate::recording::{ClassSummary, DatagramCounts, Recording};
use annulus_page::{Block, Table, text};
use std::collections::BTreeMap;

/// Replies by what they say, failures by kind, datagrams, and classes of requests. Tables without rows are left out.
pub(super) fn outcomes(recording: &Recording) -> Vec<Block> {
    let total = recording.total();
    let tables = [
        (!total.outcomes.is_empty()).then(|| counts("replies", &total.outcomes)),
        (!recording.errors.is_empty())
            .then(|| counts("failures of the whole run", &recording.errors)),
        total.datagrams.map(datagrams),
        (!recording.classes.is_empty()).then(|| classes(recording)),
    ];
    let first = recording.first_error.as_ref();
    let first = first.map(|error| Block::Text(format!("The first failure: {error}")));
    let refusal = recording.first_refusal.as_ref();
    let refusal = refusal.map(|text| Block::Text(format!("The first refusal: {text}")));
    tables.into_iter().flatten().map(Block::Table).chain(first).chain(refusal).collect()
}

fn counts(title: &str, counts: &BTreeMap<String, u64>) -> Table {
    let row = |(name, count): (&String, &u64)| vec![name.clone(), text::number(*count as f64)];
    Table { head: vec![title.into(), "count".into()], rows: counts.iter().map(row).collect() }
}

fn datagrams(counts: DatagramCounts) -> Table {
    let row = |(name, count): (&str, u64)| vec![name.to_owned(), text::number(count as f64)];
    Table { head: vec!["datagrams".into(), "count".into()], rows: counts.named().map(row).into() }
}

fn classes(recording: &Recording) -> Table {
    let head = ["request", "sent", "answered", "failed", "replies", "p50", "p99"];
    let row = |class: ClassSummary| {
        let counts =
            [class.sent, class.responses, class.failed].map(|count| text::number(count as f64));
        let replies = class.outcomes.iter();
        let replies =
            replies.map(|(name, count)| format!("{name} {}", text::number(*count as f64)));
        let replies = replies.collect::<Vec<_>>().join(", ");
        let latency = class.latency_us;
        let times = [latency.p50, latency.p99].map(|micros| micros.map_or("–".into(), time));
        std::iter::once(class.name).chain(counts).chain([replies]).chain(times).collect()
    };
    let rows = recording.class_summaries().into_iter().map(row).collect();
    Table { head: head.map(String::from).into(), rows }
}

/// The command, what was planned, and where it ran.
pub(super) fn run(recording: &Recording) -> Vec<Block> {
    let run = &recording.run;
    let command = run.command.iter().map(|word| text::quoted(word)).collect::<Vec<_>>().join(" ");
    let mut blocks = Vec::new();
    if !command.is_empty() {
        blocks.push(Block::Code(command));
    }
    let seconds = |value: f64| format!("{} s", text::number(value));
    let rows = [
        ("server", run.address.clone()),
        ("workload", run.workload.to_string()),
        ("protocol", run.protocol.clone()),
        ("bytes a message", run.length.map_or(String::new(), |length| text::number(length as f64))),
        ("clients", text::number(run.clients as f64)),
        ("in flight per connection", text::number(run.pipeline as f64)),
        ("schedule", run.schedule.clone()),
        ("threads of the load", text::number(run.threads as f64)),
        ("driver", run.driver.clone()),
        ("warm-up", seconds(run.warm_up)),
        ("planned time", seconds(run.duration)),
        ("measured time", seconds(recording.seconds)),
        ("began", started(run).unwrap_or_default()),
        ("host", run.machine.host.clone()),
        ("kernel", run.machine.kernel.clone()),
        ("annulus", run.annulus.clone()),
        ("seed", run.seed.to_string()),
    ];
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    let rows = rows.map(|(name, value)| vec![name.to_owned(), value]).collect();
    blocks.push(Block::Table(Table { head: Vec::new(), rows }));
    blocks
}
