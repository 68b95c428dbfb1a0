//! A suite with its published and its measured figures.

use annulus_page::text::grouped;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::run::{SuitePlan, SuiteRun, figure};
use crate::bench::{self, NOT_MEASURED};
use crate::tables::{Question, Suite, Table};

/// The label of a line of published figures in [`TableReport::lines`].
pub const PUBLISHED_LABEL: &str = "published";

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteReport {
    /// The name of the suite.
    #[serde(rename = "suite")]
    pub name: String,
    /// The suite. In JSON it lacks its tables, since `tables` has them.
    #[serde(flatten, serialize_with = "without_tables")]
    pub suite: Suite,
    /// The plan of the run.
    #[serde(flatten)]
    pub plan: SuitePlan,
    /// The tables, with published and measured figures.
    pub tables: Vec<TableReport>,
    /// Missing contenders, failures, and warnings about the figures.
    pub notes: Vec<String>,
    /// The report from which the figures are taken.
    pub comparison: bench::Report,
}

/// One table.
#[derive(Clone, Debug, Serialize)]
pub struct TableReport {
    /// The title of the table.
    pub title: String,
    /// The unit of the figures.
    pub unit: String,
    /// The title of the column of row names.
    pub corner: String,
    /// An explanation for the reader.
    pub caption: Option<String>,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows of the table.
    pub rows: Vec<RowReport>,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct RowReport {
    /// The name of the row in the document.
    pub name: String,
    /// The decimals of each column.
    #[serde(skip)]
    pub decimals: Vec<usize>,
    /// The published figure of each column, if it has one.
    pub published: Vec<Option<f64>>,
    /// The measured figures.
    pub measured: Vec<MeasuredRow>,
}

/// The measured figures of a row: all of one contender or, if each column has its own contender, of
/// several.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredRow {
    /// The contender; `None` if each column has its own.
    pub server: Option<String>,
    /// A figure per column; `null` if it is missing.
    pub figures: Vec<Option<f64>>,
}

impl SuiteReport {
    pub(super) fn new(run: &SuiteRun, report: &bench::Report) -> SuiteReport {
        let SuiteRun { name, suite, plan, notes } = run.clone();
        let mut notes = notes;
        notes.extend(report.warnings.iter().cloned().chain(report.failures()));
        notes.extend(report.results.iter().filter_map(lost));
        SuiteReport {
            tables: suite.tables.iter().map(|table| TableReport::new(table, report)).collect(),
            name,
            suite,
            // The rounds may have been changed after the suite was set up.
            plan: SuitePlan { rounds: report.settings.plan.rounds.least, ..plan },
            notes,
            comparison: report.clone(),
        }
    }

    /// Returns true if no figure was measured.
    pub fn is_empty(&self) -> bool {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        let mut figures = rows.flat_map(|row| &row.measured).flat_map(|line| &line.figures);
        figures.all(Option::is_none)
    }
}

fn without_tables<S: Serializer>(suite: &Suite, serializer: S) -> Result<S::Ok, S::Error> {
    let Suite { title, document, kind, machine, commands, tables: _ } = suite;
    let mut map = serializer.serialize_map(Some(5))?;
    map.serialize_entry("title", title)?;
    map.serialize_entry("document", document)?;
    map.serialize_entry("kind", kind)?;
    map.serialize_entry("machine", machine)?;
    map.serialize_entry("commands", commands)?;
    map.end()
}

/// Returns a note about datagrams that a server lost.
fn lost(row: &bench::Row) -> Option<String> {
    let lost = row.value("lost").filter(|lost| *lost > 0.0)?;
    Some(format!("{} at {}: {lost} datagrams were lost", row.contender, row.cell))
}

impl TableReport {
    /// Returns the lines of the table as in its document: the titles, then for each row the
    /// published line, if there is one, and the measured lines. A line begins with the name of its
    /// row, which only the first line of a row shows, and with `published`, the server, or
    /// `measured`.
    pub fn lines(&self) -> Vec<Vec<String>> {
        let titles = [self.corner.clone(), String::new()].into_iter().chain(self.columns.clone());
        [titles.collect()].into_iter().chain(self.rows.iter().flat_map(RowReport::lines)).collect()
    }

    fn new(table: &Table, report: &bench::Report) -> TableReport {
        TableReport {
            title: table.title.clone(),
            unit: table.unit.clone(),
            corner: table.corner.clone(),
            caption: table.caption.clone(),
            columns: table.columns.iter().map(|column| column.name.clone()).collect(),
            rows: (0..table.rows.len()).map(|row| RowReport::new(table, row, report)).collect(),
        }
    }
}

impl RowReport {
    fn lines(&self) -> Vec<Vec<String>> {
        let published = self.published.iter().any(Option::is_some);
        let published = published.then_some((PUBLISHED_LABEL, &self.published));
        let measured = self.measured.iter();
        let measured =
            measured.map(|line| (line.server.as_deref().unwrap_or("measured"), &line.figures));
        // Only the first line of a row shows its name.
        let names = [self.name.as_str()].into_iter().chain(std::iter::repeat(""));
        let line = |((label, figures), name): ((&str, &Vec<Option<f64>>), &str)| {
            let figures = figures.iter().zip(&self.decimals);
            let text = |(figure, &decimals): (&Option<f64>, &usize)| {
                figure.map_or(NOT_MEASURED.into(), |figure| grouped(figure, decimals))
            };
            [name, label].map(String::from).into_iter().chain(figures.map(text)).collect()
        };
        published.into_iter().chain(measured).zip(names).map(line).collect()
    }

    fn new(table: &Table, row: usize, report: &bench::Report) -> RowReport {
        let columns = 0..table.columns.len();
        let questions: Vec<Question> =
            columns.clone().map(|column| table.ask(row, column)).collect();
        let measured = |server: Option<&String>| MeasuredRow {
            server: server.cloned(),
            figures: questions
                .iter()
                .map(|question| figure(report, question, server.unwrap_or(&question.servers[0])))
                .collect(),
        };
        RowReport {
            name: table.rows[row].name.clone(),
            decimals: questions.iter().map(|question| question.figure.decimals()).collect(),
            published: columns.map(|column| table.published(row, column)).collect(),
            measured: if table.has_servers_in_columns() {
                vec![measured(None)]
            } else {
                questions[0].servers.iter().map(|server| measured(Some(server))).collect()
            },
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bench::tests::{bench, record};
    use crate::cores::Cores;
    use crate::describe::suites::small;
    use crate::echo;
    use crate::environment::Environment;

    /// Returns the report of a suite with one server measured in one cell.
    pub(crate) fn small_report() -> SuiteReport {
        let mut bench = bench(&["uring"]);
        bench.cells = vec![echo::cell(1, 128)];
        let report = bench::Report::new(&bench, &record(2, 15, |_, _| 2.0), &Environment::read());
        let plan = SuitePlan { cores: Cores::new(0, 0), quick: false, rounds: 15, seed: 1 };
        SuiteRun::new("small", small(), plan).report(&report)
    }

    #[test]
    fn table_lines_match_the_document() {
        let report = small_report();
        let lines = report.tables[0].lines();
        let expected = [
            ["connections", "", "1", "50"],
            ["128", "published", "5", "–"],
            ["", "uring", "500,000", "–"],
            ["big", "go", "–", "–"],
        ];
        assert_eq!(lines, expected.map(|line| line.map(String::from).to_vec()));
    }
}
