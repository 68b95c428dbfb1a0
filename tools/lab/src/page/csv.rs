//! Comma-separated values: a row for each figure.

use super::Document;
use crate::bench::{Cell, Figure, Metric, Row};

/// The columns after the numbers of a metric.
const LAST_COLUMNS: [&str; 4] = ["slices", "failed", "error", "finished"];

impl Document<'_> {
    /// Returns a row for each contender, cell and metric, below a row of column names: the
    /// contender, each parameter of the cells, the metric, its value with the interval of its
    /// median, its best round, the ratio to the baseline with its interval, how many slices were
    /// accepted and failed, the first error, and whether the run is finished. Missing values are
    /// empty.
    pub fn csv(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.report.settings.cells.iter().flat_map(Cell::parameters) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let numbers = Figure::default().numbers().map(|(name, _)| name);
        let head = ["contender"].into_iter().chain(names.iter().copied());
        let head = head.chain(["metric"]).chain(numbers).chain(LAST_COLUMNS);
        let mut text = line(head.map(str::to_owned));
        for row in self.report.rows() {
            for Metric { key, .. } in &self.report.settings.metrics {
                let figure = row.figures.get(key).copied().unwrap_or_default();
                let numbers = figure.numbers().map(|(_, value)| number(value));
                let cells = first(row, &names).chain([key.clone()]).chain(numbers);
                text += &line(cells.chain(self.last(row)));
            }
        }
        text
    }

    fn last(&self, row: &Row) -> [String; 4] {
        let error = row.error.clone().unwrap_or_default();
        [row.slices.to_string(), row.failed.to_string(), error, self.is_finished.to_string()]
    }
}

/// Returns the first fields of a row: its contender, and the values of these parameters in its
/// cell.
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

/// Joins fields to a line. Fields with a comma, a quotation mark or a line break are quoted.
fn line(cells: impl Iterator<Item = String>) -> String {
    let quoted = |cell: String| match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    };
    cells.map(quoted).collect::<Vec<_>>().join(",") + "\n"
}
