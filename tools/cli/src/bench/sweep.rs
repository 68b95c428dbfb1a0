//! A sweep over rates as text: the answer in words, and a table for each server.

use super::results::warnings;
use crate::text::{table, wrapped};
use annulus_lab::bench::{Curve, CurvePoint, NOT_MEASURED, Report, SweepReport};
use annulus_load::counted;
use annulus_load::stats::median;
use annulus_page::text::{nanoseconds, number};

/// Formats the answer, the rates and latencies of each server, the noise and the warnings.
pub(super) fn sweep_text(report: &Report, sweep: &SweepReport) -> String {
    let answer: String = sweep.sentences().iter().map(|line| wrapped("", line)).collect();
    let mut text = answer;
    for load in sweep.loads() {
        text += &format!("\n{load}\n");
        for curve in sweep.curves.iter().filter(|curve| curve.load == *load && !curve.is_control) {
            text += "\n";
            text += &curve_text(sweep, curve);
        }
    }
    text + &noise(sweep) + &run(report) + &warnings(report)
}

fn curve_text(sweep: &SweepReport, curve: &Curve) -> String {
    let name = &curve.contender;
    let Some(peak) = curve.peak else {
        let why = curve.peak_error.as_deref().unwrap_or("not measured yet");
        return wrapped("", &format!("{name}: {why}"));
    };
    let limit = sweep.limit.as_ref().map(|limit| limit.words());
    let mut titles = vec!["of peak", "due/s", "answered/s", "p50", "p99", "CPU µs"];
    titles.extend(limit.as_deref());
    let has_failed = curve.points.iter().any(|point| point.failed > 0);
    titles.extend(has_failed.then_some("failed"));
    let mut rows = vec![titles.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for point in &curve.points {
        rows.push(row(point, has_failed));
    }
    let failures = curve.points.iter().filter_map(|point| {
        let why = point.error.as_deref()?;
        let slices = counted(point.failed, "slice");
        Some(wrapped("! ", &format!("{} %: {slices} failed: {why}", point.percent)))
    });
    let title = wrapped("", &format!("{name}: peak {}/s", number(peak)));
    [title, table(1, &rows)].into_iter().chain(failures).collect()
}

fn row(point: &CurvePoint, has_failed: bool) -> Vec<String> {
    let shown = |value: Option<f64>, text: fn(f64) -> String| {
        value.map_or_else(|| NOT_MEASURED.to_owned(), text)
    };
    let micros = |micros: f64| nanoseconds(micros * 1e3);
    let mut row = vec![
        format!("{} %", point.percent),
        number(point.offered),
        shown(point.answered, number),
        shown(point.p50_us, micros),
        shown(point.p99_us, micros),
        shown(point.cpu_us, number),
    ];
    row.extend(point.keeps_limit.map(|keeps| if keeps { "yes" } else { "no" }.to_owned()));
    row.extend(has_failed.then(|| point.failed.to_string()));
    row
}

/// Formats the median factor by which the control's p99 differs from the first server's at the same
/// percentage of the peak.
fn noise(sweep: &SweepReport) -> String {
    let ratios = sweep.curves.iter().filter(|curve| curve.is_control).flat_map(|control| {
        let first = sweep.curves.iter().find(|curve| curve.load == control.load);
        let pairs = control.points.iter().zip(first.map_or(&[][..], |first| &first.points));
        pairs
            .filter_map(|(one, other)| Some((one.p99_us? / other.p99_us?).ln().abs()))
            .collect::<Vec<_>>()
    });
    let ratio = median(&ratios.collect::<Vec<_>>()).map(f64::exp);
    let text = |ratio: f64| {
        format!("the p99 of one server, measured twice, differs by {:.2} × in the median", ratio)
    };
    ratio.map_or(String::new(), |ratio| format!("\n{}", wrapped("noise: ", &text(ratio))))
}

fn run(report: &Report) -> String {
    let settings = &report.settings;
    let rounds = settings.plan.rounds.least;
    wrapped("", &format!("{}: {rounds} rounds{}", settings.plan.name, settings.terms))
}
