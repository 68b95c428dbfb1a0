//! The chart of a run: ratios with their intervals, a row per cell.

use std::ops::Range;

use annulus_load::stats::Verdict;
use annulus_page::{Axis, Figure, IntervalChart, IntervalRow, text};

use crate::bench::{Better, CellVerdict, Report};

/// The colour of a row with each verdict. Dashed lines and hollow dots are cells that count for
/// neither side.
const BETTER_SERIES: usize = 0;
const WORSE_SERIES: usize = 1;
const SAME_SERIES: usize = 5;
const UNDECIDED_SERIES: usize = 11;
const VOID_SERIES: usize = 9;

/// Ratios beyond these are drawn at the edge, so that they do not make the others unreadable.
const RATIO_LIMITS: (f64, f64) = (0.1, 10.0);

/// Returns the chart of the subject against its best rival in each cell, by the primary metric;
/// `None` with a single contender.
pub(super) fn ratios(report: &Report) -> Option<Figure> {
    let metric = report.settings.primary()?;
    let row = |found: &CellVerdict| {
        let rival = found.rival.as_ref()?;
        let series = match found.verdict {
            Verdict::Better => BETTER_SERIES,
            Verdict::Worse => WORSE_SERIES,
            Verdict::Same => SAME_SERIES,
            Verdict::Undecided => UNDECIDED_SERIES,
            Verdict::Void => VOID_SERIES,
        };
        let name = format!("{}: {rival}, {}", found.cell, found.verdict);
        let interval = found.cost.and_then(|cost| cost.interval);
        Some(IntervalRow {
            name,
            value: found.cost.map(|cost| cost.median),
            interval: interval.map(|found| found.low..found.high),
            series,
        })
    };
    let rows: Vec<IntervalRow> = report.verdicts.iter().filter_map(row).collect();
    let ends = rows.iter().filter_map(|row| Some((row, row.value?))).flat_map(|(row, value)| {
        let interval = row.interval.clone().unwrap_or(value..value);
        [interval.start, interval.end, value].map(|end| end.clamp(RATIO_LIMITS.0, RATIO_LIMITS.1))
    });
    let range =
        ends.fold(0.9..1.1, |range: Range<f64>, end| range.start.min(end)..range.end.max(end));
    let subject = report.subject();
    let costs =
        if metric.better == Better::Lower { "" } else { ", inverted so that less is better" };
    let chart = IntervalChart {
        title: format!("{}: {subject} ÷ its best rival in each cell", metric.noun),
        note: format!(
            "Left of 1, {subject} is better; right of 1, it is worse. Filled marks are verdicts: blue better, grey same, \
             orange worse. Hollow marks count for neither side: grey undecided, pink void. The intervals are jointly valid \
             in 95 % of runs{costs}. {}.",
            host(report)
        ),
        x: Axis::linear("← better   ratio   worse →", range, text::number),
        marks: vec![1.0],
        rows,
    };
    (!chart.rows.is_empty()).then(|| chart.figure())
}

/// Returns the machine of a run in a few words: its processor, its cores and its kernel.
pub(super) fn host(report: &Report) -> String {
    let environment = &report.environment;
    let cores = match environment.cores.len() {
        1 => "1 core".to_owned(),
        count => format!("{count} cores"),
    };
    let parts = [environment.cpu.clone(), cores, format!("Linux {}", environment.kernel)];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}
