//! The report of a load as text.

use crate::text::{Listing, thousands};
use annulus_load::{
    DatagramFigures, Figures, LatencySummary, PerConnectionFigures, Protocol, Report, Schedule,
    ServerAddress, StreamFigures, TimeSummary,
};

/// The report; `None` if nothing was measured.
pub(super) fn report(server: &ServerAddress, report: &Report) -> Option<String> {
    let is_measured = match &report.figures {
        Figures::PerConnection(figures) => figures.completed > 0,
        Figures::Streams(_) | Figures::Datagrams(_) => report.seconds > 0.0,
    };
    is_measured.then(|| {
        let mut text = Listing::new();
        match &report.figures {
            Figures::Streams(figures) => streams(&mut text, report, figures),
            Figures::PerConnection(figures) => per_connection(&mut text, report, figures),
            Figures::Datagrams(figures) => datagrams(&mut text, server, report, figures),
        }
        text.row("client CPU", &format!("{:.1} % of a core", report.client_cpu_share * 100.0));
        text.row("driver", &report.driver);
        failures(&mut text, report);
        if let Figures::PerConnection(figures) = &report.figures {
            text.line("");
            totals(report, figures).iter().for_each(|line| text.line(line));
        }
        text.finish()
    })
}

fn streams(text: &mut Listing, report: &Report, figures: &StreamFigures) {
    let Report { address, clients, seconds, protocol, .. } = report;
    let is_echo = protocol == Protocol::Echo.name();
    let mut what = match is_echo {
        true => format!("{clients} clients × {} bytes", thousands(report.length as u64)),
        false => format!("{clients} clients of {protocol}"),
    };
    if figures.pipeline > 1 {
        what += &format!(", {} in flight each", figures.pipeline);
    }
    text.row("server", &format!("{address}, {what}"));
    if let Some(tls) = &report.tls {
        text.row("TLS", tls);
    }
    text.row("schedule", &figures.schedule);
    text.row("requests/s", &thousands(figures.requests_per_second.round() as u64));
    text.row("responses", &format!("{} in {seconds:.3} s", thousands(figures.responses)));
    if !is_echo {
        let outcome = |(name, count): (&String, &u64)| format!("{name} {}", thousands(*count));
        let outcomes: Vec<_> = figures.outcomes.iter().map(outcome).collect();
        text.row("of these", &outcomes.join(", "));
    }
    latency(text, &figures.latency_us);
    if figures.schedule != Schedule::default().to_string() {
        starts(text, figures);
    }
}

/// How late messages were sent, and what that is of the latencies.
fn starts(text: &mut Listing, figures: &StreamFigures) {
    let StreamFigures { sent, late, delay_us, .. } = figures;
    row_of(text, "service µs", &figures.service_us);
    let late = format!("{} of {} by more than 1 ms", thousands(*late), thousands(*sent));
    let own =
        format!("the load's own delay: p99 {:.1} µs, max {:.1} µs", delay_us.p99, delay_us.max);
    text.row("sent late", &late);
    text.row("", &own);
}

fn per_connection(text: &mut Listing, report: &Report, figures: &PerConnectionFigures) {
    let Report { address, clients, seconds, .. } = report;
    let PerConnectionFigures { threads, completed, .. } = figures;
    let length = thousands(report.length as u64);
    text.row(
        "server",
        &format!("{address}, {clients} clients on {threads} threads, {length} bytes a connection"),
    );
    let rate = thousands(figures.connections_per_second.round() as u64);
    let connections = format!("{} in {seconds:.3} s, {rate} a second", thousands(*completed));
    text.row("connections", &connections);
    let names = ["average", "min", "p50", "p90", "p99", "max"];
    text.row("µs", &names.map(|name| format!("{name:<11}")).concat());
    text.row("echo", &times(&figures.echo_us));
    text.row("with connect", &times(&figures.total_us));
}

fn datagrams(
    text: &mut Listing,
    server: &ServerAddress,
    report: &Report,
    figures: &DatagramFigures,
) {
    let server = match server {
        ServerAddress::Inet(address) => format!("udp://{address}"),
        ServerAddress::Unix(path) => format!("unix-datagram:{}", path.display()),
    };
    let Report { clients, seconds, .. } = report;
    let (length, window) = (thousands(report.length as u64), figures.window);
    let how = if figures.segments { ", as segments" } else { "" };
    let what = format!("{clients} clients × {length} bytes, {window} in flight each{how}");
    text.row("server", &format!("{server}, {what}"));
    let rate = thousands(figures.datagrams_per_second.round() as u64);
    text.row("echoes/s", &format!("{rate}, {:.1} MB/s one way", figures.megabytes_per_second));
    text.row("sent", &format!("{} in {seconds:.3} s", thousands(figures.sent)));
    for (name, count) in [
        ("received", figures.received),
        ("lost", figures.lost),
        ("late", figures.late),
        ("duplicated", figures.duplicated),
        ("reordered", figures.reordered),
        ("corrupt", figures.corrupt),
    ] {
        text.row(name, &thousands(count));
    }
    latency(text, &figures.latency_us);
}

fn latency(text: &mut Listing, l: &LatencySummary) {
    let names = ["min", "mean", "p50", "p90", "p99", "p99.9", "max"];
    text.row("latency µs", &names.map(|name| format!("{name:<9}")).concat());
    row_of(text, "", l);
}

fn row_of(text: &mut Listing, name: &str, l: &LatencySummary) {
    let values = [l.min, l.mean, l.p50, l.p90, l.p99, l.p99_9, l.max];
    // Long times need no fraction, and would touch each other with one.
    let column = |value| match value {
        100_000.0.. => format!("{value:<9.0}"),
        _ => format!("{value:<9.1}"),
    };
    text.row(name, &values.map(column).concat());
}

fn times(times: &TimeSummary) -> String {
    let TimeSummary { average, min, p50, p90, p99, max, .. } = *times;
    [average, min, p50, p90, p99, max].map(|figure| format!("{figure:<11.1}")).concat()
}

/// Failures by kind, and the doubts.
fn failures(text: &mut Listing, report: &Report) {
    if report.errors.is_empty() {
        text.row("errors", "none");
    }
    for (kind, count) in &report.errors {
        text.row("errors", &format!("{kind}: {count}"));
    }
    report.doubts.iter().for_each(|doubt| text.row("doubt", doubt));
}

/// The totals as BenchEcho prints them: of the echoes of all connections, and of the whole run.
fn totals(report: &Report, figures: &PerConnectionFigures) -> [String; 7] {
    let TimeSummary { sum, average, p99, .. } = figures.echo_us;
    let elapsed = report.seconds * 1e6;
    [
        "all echo sync:".into(),
        format!("sum:{sum:.0}us"),
        format!("average:{average:.0}us"),
        format!("p99:{p99:.0}us"),
        "all echo async:".into(),
        format!("sum:: {elapsed:.0} us ({:.6} ms)", elapsed / 1e3),
        format!("average:{:.0}us", figures.elapsed_us_per_connection),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The example in the description of BenchEcho.
    #[test]
    fn totals_have_the_published_form() {
        let echo = TimeSummary {
            sum: 1_655_333.0,
            average: 16_553.33,
            p99: 23_459.0,
            ..TimeSummary::default()
        };
        let figures = PerConnectionFigures {
            connections: 100,
            threads: 4,
            completed: 100,
            connections_per_second: 100.0 / 0.037_482,
            elapsed_us_per_connection: 374.82,
            echo_us: echo,
            total_us: echo,
        };
        let server: ServerAddress = "127.0.0.1:7000".parse().unwrap();
        let report = Report {
            address: server.to_string(),
            clients: 100,
            length: 16_384,
            protocol: "echo".into(),
            tls: None,
            seconds: 0.037_482,
            interrupted: false,
            figures: Figures::PerConnection(figures),
            errors: BTreeMap::new(),
            first_error: None,
            client_cpu_share: 0.5,
            driver: "uring".into(),
            doubts: Vec::new(),
            recording: None,
        };
        let text = super::report(&server, &report).unwrap();
        let document = "\nall echo sync:\nsum:1655333us\naverage:16553us\np99:23459us\n\
                        all echo async:\nsum:: 37482 us (37.482000 ms)\naverage:375us\n";
        assert!(text.ends_with(document), "{text}");
        assert!(
            text.contains("16,384 bytes a connection") && text.contains("2,668 a second"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
