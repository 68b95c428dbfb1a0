//! A row for each figure, as comma-separated values.

use super::Document;
use super::values::Values;
use crate::bench::{Cell, Row};

/// The columns that follow the contender and the parameters of the cell.
const COLUMNS: [&str; 12] = [
    "metric",
    "value",
    "low",
    "high",
    "best",
    "ratio",
    "ratio_low",
    "ratio_high",
    "slices",
    "failed",
    "error",
    "finished",
];

impl Document<'_> {
    /// A row for each contender, cell and metric, below a row with the names of the columns: the contender, each parameter of the cells,
    /// the metric, its value with the interval of its median, its best round, the ratio to the baseline with its interval, and how many slices were
    /// accepted and failed, with the first reason. Missing values are empty.
    pub fn csv(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.report.settings.cells.iter().flat_map(Cell::parameters) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let head = ["contender"].into_iter().chain(names.iter().copied()).chain(COLUMNS);
        let mut text = line(head.map(str::to_owned));
        let values = Values::new(self.report);
        for row in self.report.rows() {
            let cell = self.report.settings.cells.iter().position(|cell| *cell == row.cell);
            for metric in &self.report.settings.metrics {
                let estimate = cell.and_then(|cell| values.estimate(metric, &row.contender, cell));
                let interval = estimate.and_then(|of| of.interval);
                let figure = row.figures.get(&*metric.key);
                let ratio = figure.and_then(|figure| figure.ratio);
                let ratio_interval = ratio.and_then(|ratio| ratio.interval);
                let numbers = [
                    estimate.map(|of| of.value),
                    interval.map(|of| of.low),
                    interval.map(|of| of.high),
                    figure.and_then(|figure| figure.best),
                    ratio.map(|of| of.median),
                    ratio_interval.map(|of| of.low),
                    ratio_interval.map(|of| of.high),
                ];
                let cells = first(row, &names).chain([metric.key.to_string()]);
                let cells = cells.chain(numbers.map(number)).chain(self.last(row));
                text += &line(cells);
            }
        }
        text
    }

    fn last(&self, row: &Row) -> [String; 4] {
        let error = row.error.clone().unwrap_or_default();
        [row.slices.to_string(), row.failed.to_string(), error, self.is_finished.to_string()]
    }
}

/// The contender, and the values of the parameters with these names.
fn first(row: &Row, names: &[&str]) -> impl Iterator<Item = String> {
    let parameter = |name: &&str| {
        let mut parameters = row.cell.parameters();
        parameters
            .find(|(known, _)| known == name)
            .map_or(String::new(), |(_, value)| value.to_string())
    };
    [row.contender.clone()].into_iter().chain(names.iter().map(parameter).collect::<Vec<_>>())
}

fn number(number: Option<f64>) -> String {
    number.filter(|number| number.is_finite()).map_or(String::new(), |number| number.to_string())
}

/// Cells with a comma, a quotation mark or an end of line are quoted.
fn line(cells: impl Iterator<Item = String>) -> String {
    let quoted = |cell: String| match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    };
    cells.map(quoted).collect::<Vec<_>>().join(",") + "\n"
}
