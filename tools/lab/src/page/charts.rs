//! The chart of a run: ratios with their intervals, a row per cell.

use std::ops::Range;

use annulus_load::stats::Verdict;
use annulus_page::{Axis, Figure, IntervalChart, IntervalRow, text};

use crate::bench::{Report, RivalComparison};

/// The colours of a row: better, worse, and everything else.
const ROW_COLOURS: [usize; 3] = [2, 1, 5];

/// Returns the chart of the subject against its best rival in each cell, by the primary metric;
/// `None` with a single contender.
pub(super) fn ratios(report: &Report) -> Option<Figure> {
    let metric = report.settings.primary()?;
    let name = &report.against.first()?.contender;
    let row = |against: &RivalComparison| {
        let name = format!("{}: {}", against.cell, against.rival);
        let interval = against.cost.interval.map(|found| found.low..found.high);
        let series = match against.verdict {
            Verdict::Better => ROW_COLOURS[0],
            Verdict::Worse => ROW_COLOURS[1],
            _ => ROW_COLOURS[2],
        };
        IntervalRow { name, value: against.cost.median, interval, series }
    };
    let rows: Vec<IntervalRow> = report.against.iter().map(row).collect();
    let ends = rows.iter().flat_map(|row| {
        let interval = row.interval.clone().unwrap_or(row.value..row.value);
        // A very wide interval must not make the others unreadable.
        [interval.start, interval.end, row.value].map(|end| end.clamp(0.1, 10.0))
    });
    let range =
        ends.fold(0.9..1.1, |range: Range<f64>, end| range.start.min(end)..range.end.max(end));
    let chart = IntervalChart {
        title: format!("{}: {name} ÷ its best rival in each cell", metric.noun),
        note: format!(
            "{name} is better left of 1 and worse right of 1. Cells with that verdict are green or orange, all others grey. The \
             intervals are jointly valid in 95 % of runs. A row names the best rival, a contender that is not annulus."
        ),
        x: Axis::linear("ratio of costs", range, text::number),
        marks: vec![1.0],
        rows,
    };
    (!chart.rows.is_empty()).then(|| chart.figure())
}
