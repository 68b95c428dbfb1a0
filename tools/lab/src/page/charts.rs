//! The charts of a run: ratios with their intervals, a row per cell; for a sweep, latency against
//! rate.

use std::ops::Range;

use annulus_load::stats::Verdict;
use annulus_page::{Axis, ChartCurve, CurveChart, Figure, IntervalChart, IntervalRow, text};

use crate::bench::{Better, Cell, CellVerdict, Curve, CurvePoint, Report, SweepReport};

/// The series, and so the colour, of a row with each verdict. Dashed lines and hollow dots mark
/// undecided and void cells.
const BETTER_SERIES: usize = 0;
const WORSE_SERIES: usize = 1;
const SAME_SERIES: usize = 5;
const UNDECIDED_SERIES: usize = 11;
const VOID_SERIES: usize = 9;

/// Ratios beyond these are drawn at the edge, so that they do not make the others unreadable.
const RATIO_LIMITS: (f64, f64) = (0.1, 10.0);

/// Returns the chart of the subject against its best rival in each cell, by the primary metric;
/// `None` without a primary metric or a rival.
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
             orange worse. Hollow marks count for neither side: grey undecided, pink void. All verdicts together are \
             right in 95 % of runs{costs}. {}.",
            report.environment.machine()
        ),
        x: Axis::linear("← better   ratio   worse →", range, text::number),
        marks: vec![1.0],
        rows,
    };
    (!chart.rows.is_empty()).then(|| chart.figure())
}

/// Returns the picture of each load of a sweep: p50 and p99 of all servers against the rate, and
/// where each breaks the limit.
pub(super) fn curves(report: &Report) -> Vec<Figure> {
    let Some(sweep) = &report.sweep else { return Vec::new() };
    let figures = sweep.loads().into_iter().map(|load| curve_chart(sweep, load).figure());
    figures.filter(|figure| figure.has_data).collect()
}

fn curve_chart(sweep: &SweepReport, load: &Cell) -> CurveChart {
    let of_load = sweep.curves.iter().filter(|curve| curve.load == *load && !curve.is_control);
    let limit = sweep.limit.as_ref();
    let curves: Vec<ChartCurve> = of_load
        .enumerate()
        .flat_map(|(colour, curve)| {
            let name = &curve.contender;
            let [p99, p50] =
                [points(curve, |point| point.p99_us), points(curve, |point| point.p50_us)];
            let broken =
                curve.kept.as_ref().filter(|kept| kept.broken_at.is_some() && kept.up_to > 0.0);
            let breaks = limit.and(broken).map(|kept| kept.up_to);
            let kept = limit.zip(curve.kept.as_ref()).map(|(limit, kept)| match kept.up_to {
                0.0 => format!(", never {}", limit.words()),
                rate => format!(", {} up to {}/s", limit.words(), text::number(rate)),
            });
            let name = |figure: &str| format!("{name} {figure}");
            let p99 = ChartCurve {
                name: name("p99") + &kept.unwrap_or_default(),
                points: p99,
                colour,
                is_dashed: false,
                breaks_at: breaks,
            };
            let p50 = ChartCurve {
                name: name("p50"),
                points: p50,
                is_dashed: true,
                breaks_at: None,
                ..p99.clone()
            };
            [p99, p50]
        })
        .collect();
    let limit = limit.map(|limit| (limit.micros() * 1e3, format!("limit: {}", limit.words())));
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let fastest = all().map(|point| point.0).fold(0.0, f64::max);
    let heights = all().map(|point| point.1).chain(limit.iter().map(|limit| limit.0));
    let range = heights.fold(f64::INFINITY..0.0, |range: Range<f64>, height| {
        range.start.min(height)..range.end.max(height)
    });
    CurveChart {
        title: format!("Latency against rate: {load}"),
        note: "Requests were due at this rate, whether or not the server kept up; latency counts from when they were due. \
               Each server has 10 % to 120 % of its own peak. A vertical line marks where a server breaks the limit."
            .into(),
        x: Axis::linear("requests due per second (further right is better)", 0.0..fastest, text::short),
        y: Axis::logarithmic("latency, logarithmic (lower is better)", range, text::nanoseconds),
        limit,
        curves,
    }
}

/// Returns the points of a latency, in ns.
fn points(curve: &Curve, latency: fn(&CurvePoint) -> Option<f64>) -> Vec<(f64, f64)> {
    let point = |point: &CurvePoint| Some((point.offered, latency(point)? * 1e3));
    curve.points.iter().filter_map(point).collect()
}
