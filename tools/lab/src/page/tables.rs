//! Tables: distances, the tables of a document, all figures, memory.

use annulus_page::{HEATS, Matrix, MatrixCell, MatrixRow, text};

use crate::bench::{
    Arrivals, Column, Envelope, Footprint, Metric, NOT_MEASURED, Report, range_names,
};
use crate::suite::{PUBLISHED_LABEL, TableReport};

/// Contenders within this distance are marked like the best.
const MAX_NEAR_BEST: f64 = 1.02;

/// The upper bound of each colour but the last. A cell gets the first colour whose bound its
/// distance does not exceed, or else the last colour.
const HEAT_STEPS: [f64; HEATS - 1] = [MAX_NEAR_BEST, 1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0];

/// Returns the distance of every contender from the best of each cell, by one metric.
pub(super) fn heat_map(report: &Report, envelope: &Envelope) -> Option<Matrix> {
    let metric = report.settings.metrics.iter().find(|metric| metric.key == envelope.metric)?;
    let cells = report.settings.cells.iter().enumerate();
    let rows: Vec<MatrixRow> = cells
        .map(|(index, cell)| {
            let cells = envelope.contenders.iter().map(|of| {
                let failed = report.row(&of.contender, cell).is_some_and(|row| row.failed > 0);
                heat_cell(of.cells[index].map(|distance| distance.median), failed)
            });
            MatrixRow {
                names: vec![cell.to_string()],
                cells: cells.collect(),
                ..MatrixRow::default()
            }
        })
        .collect();
    let names = envelope.contenders.iter().map(|of| of.contender.clone());
    let head = [String::new()].into_iter().chain(names);
    Some(Matrix {
        title: format!("{}: × the best of each row", metric.label()),
        note: format!(
            "1 is the best, 2 is twice as bad; bold is within {} of the best. These are medians: the verdicts say which \
             differences count. {}.",
            text::percent(MAX_NEAR_BEST - 1.0),
            report.environment.machine()
        ),
        key: steps(),
        head: head.collect(),
        rows,
    })
}

fn heat_cell(distance: Option<f64>, failed: bool) -> MatrixCell {
    let Some(distance) = distance else {
        return MatrixCell::from(if failed { "failed" } else { NOT_MEASURED }.to_owned());
    };
    let heat = HEAT_STEPS.iter().position(|step| distance <= *step).unwrap_or(HEATS - 1);
    let mark = if failed { " !" } else { "" };
    MatrixCell {
        text: times(distance) + mark,
        heat: Some(heat),
        is_strong: distance <= MAX_NEAR_BEST,
    }
}

fn steps() -> Vec<String> {
    let up_to = HEAT_STEPS.iter().map(|step| format!("≤ {}", text::number(*step)));
    up_to.chain([format!("> {}", text::number(HEAT_STEPS[HEAT_STEPS.len() - 1]))]).collect()
}

/// Formats a distance with two decimals, or fewer if it is large.
fn times(distance: f64) -> String {
    if distance < 10.0 { format!("{distance:.2}") } else { text::number(distance) }
}

/// Returns a table of a document, with the published figures above the measured ones.
pub(super) fn published(table: &TableReport) -> Matrix {
    let mut lines = table.lines().into_iter();
    let head = lines.next().unwrap_or_default();
    let rows = lines.map(|mut line| {
        let cells = line.split_off(line.len().min(2)).into_iter().map(MatrixCell::from).collect();
        let is_muted = line.get(1).is_some_and(|label| label == PUBLISHED_LABEL);
        MatrixRow { names: line, cells, is_muted }
    });
    let unit = if table.unit.is_empty() { String::new() } else { format!(", {}", table.unit) };
    Matrix {
        title: format!("{}{unit}", table.title),
        note: table.caption.clone().unwrap_or_default(),
        head,
        rows: rows.collect(),
        ..Matrix::default()
    }
}

/// Returns the table of every figure, for all contenders and the control.
pub(super) fn all(report: &Report) -> Matrix {
    let measured = |metric: &Metric| report.rows().any(|row| row.value(&metric.key).is_some());
    let mut shown = report.columns(Column::is_on_page);
    shown.retain(|(metric, _)| measured(metric));
    let baseline = &report.settings.contenders.baseline;
    let head = ["", ""].map(String::from).into_iter();
    let head = head.chain(shown.iter().map(|(metric, column)| column.title(metric, baseline)));
    let head: Vec<String> = head.chain(["failed".to_owned()]).collect();
    let mut rows = Vec::new();
    for cell in &report.settings.cells {
        for (place, row) in report.rows().filter(|row| row.cell == *cell).enumerate() {
            let first = if place == 0 { cell.to_string() } else { String::new() };
            let cells = shown.iter().map(|&(metric, column)| report.shown(row, metric, column));
            let failed = if row.failed > 0 { row.failed.to_string() } else { String::new() };
            rows.push(MatrixRow {
                names: vec![first, row.contender.clone()],
                cells: cells.chain([failed]).map(MatrixCell::from).collect(),
                is_muted: report.controls.iter().any(|control| control.contender == row.contender),
            });
        }
    }
    let note = "Medians of the rounds; ÷ is the ratio within the rounds, with its 95 % interval. The control is the first contender, measured a second time.";
    Matrix { title: "Every figure".into(), note: note.into(), head, rows, ..Matrix::default() }
}

/// Returns the memory of each contender, if it was read.
pub(super) fn memory(report: &Report) -> Option<Matrix> {
    let head = ["", "resident before", "after", "idle", "virtual before", "after", "idle"];
    let row = |footprint: &Footprint| MatrixRow {
        names: vec![footprint.contender.clone()],
        cells: footprint.shown().into_iter().map(MatrixCell::from).collect(),
        is_muted: false,
    };
    (!report.memory.is_empty()).then(|| Matrix {
        title: "Memory in MiB".into(),
        note: "Before the first slice, after the last, and after idling for a while.".into(),
        head: head.map(String::from).into(),
        rows: report.memory.iter().map(row).collect(),
        ..Matrix::default()
    })
}

/// Returns how many requests left the load together in each cell, if the load counted it.
pub(super) fn arrivals(report: &Report) -> Option<Matrix> {
    let row = |found: &Arrivals| MatrixRow {
        names: vec![found.cell.to_string()],
        cells: found.shares.map(percent_of_requests).map(MatrixCell::from).into(),
        is_muted: false,
    };
    (!report.arrivals.is_empty()).then(|| Matrix {
        title: "Requests that arrived together, in % of all requests".into(),
        note: "The load sends a group of requests in one turn of its loop, so they reach the server at once. Of all \
               contenders together."
            .into(),
        head: [String::new()].into_iter().chain(range_names()).collect(),
        rows: report.arrivals.iter().map(row).collect(),
        ..Matrix::default()
    })
}

fn percent_of_requests(share: f64) -> String {
    if share == 0.0 { String::new() } else { text::number(100.0 * share) }
}
