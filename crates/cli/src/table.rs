//! A load's report as a table.

use crate::page::Page;
use annulus_load::{LatencySummary, Report};
use std::collections::BTreeMap;
use std::fmt::Display;

pub(crate) fn of_report(report: &Report) -> String {
    let mut page = Page::new();
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
pub(crate) fn latency(page: &mut Page, l: &LatencySummary) {
    let names = ["min", "mean", "p50", "p90", "p99", "p99.9", "max"];
    let values = [l.min, l.mean, l.p50, l.p90, l.p99, l.p99_9, l.max];
    page.row("latency µs", &names.map(|name| format!("{name:<9}")).concat());
    page.row("", &values.map(|value| format!("{value:<9.1}")).concat());
}

/// What the clients took, and what they ran on.
pub(crate) fn client(page: &mut Page, cpu_share: f64, driver: &str) {
    page.row("client CPU", &format!("{:.1} % of a core", cpu_share * 100.0));
    page.row("driver", driver);
}

/// How many failures of which kind, and why else not to believe it.
pub(crate) fn failings(page: &mut Page, errors: &BTreeMap<String, u64>, doubts: &[impl Display]) {
    if errors.is_empty() {
        page.row("errors", "none");
    }
    for (kind, count) in errors {
        page.row("errors", &format!("{kind}: {count}"));
    }
    doubts.iter().for_each(|doubt| page.row("doubt", &doubt.to_string()));
}

/// A number with its thousands apart.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }
}
