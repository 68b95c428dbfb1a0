//! A load's report as a table.

use crate::text::Listing;
use annulus_lab::bench::grouped;
use annulus_load::{LatencySummary, Report};
use std::collections::BTreeMap;
use std::fmt::Display;

pub(crate) fn of_report(report: &Report) -> String {
    let mut page = Listing::new();
    page.row("server", &format!("{}, {}", report.address, what(report)));
    page.row("requests/s", &thousands(report.requests_per_second.round() as u64));
    let (responses, seconds) = (thousands(report.responses), report.seconds);
    page.row("responses", &format!("{responses} in {seconds:.3} s"));
    latency(&mut page, &report.latency_us);
    client(&mut page, report.client_cpu_share, &report.driver);
    failings(&mut page, &report.errors, &report.doubts);
    page.finish()
}

/// What was asked of the server.
fn what(report: &Report) -> String {
    let mut what =
        format!("{} clients × {} bytes", report.clients, thousands(report.length as u64));
    if report.pipeline > 1 {
        what += &format!(", {} in flight each", report.pipeline);
    }
    if let Some(rate) = report.rate {
        what += &format!(", at {rate} a second");
    }
    what
}

/// The usual figures of a latency.
pub(crate) fn latency(page: &mut Listing, l: &LatencySummary) {
    let names = ["min", "mean", "p50", "p90", "p99", "p99.9", "max"];
    let values = [l.min, l.mean, l.p50, l.p90, l.p99, l.p99_9, l.max];
    page.row("latency µs", &names.map(|name| format!("{name:<9}")).concat());
    page.row("", &values.map(|value| format!("{value:<9.1}")).concat());
}

/// What the clients took, and what they ran on.
pub(crate) fn client(page: &mut Listing, cpu_share: f64, driver: &str) {
    page.row("client CPU", &format!("{:.1} % of a core", cpu_share * 100.0));
    page.row("driver", driver);
}

/// How many failures of which kind, and why else not to believe it.
pub(crate) fn failings(
    page: &mut Listing,
    errors: &BTreeMap<String, u64>,
    doubts: &[impl Display],
) {
    if errors.is_empty() {
        page.row("errors", "none");
    }
    for (kind, count) in errors {
        page.row("errors", &format!("{kind}: {count}"));
    }
    doubts.iter().for_each(|doubt| page.row("doubt", &doubt.to_string()));
}

/// A number with its thousands separated.
pub(crate) fn thousands(number: u64) -> String {
    grouped(number as f64, 0)
}
