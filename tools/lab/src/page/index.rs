//! The index of several runs.

use annulus_page::{Block, Entry, Link, Matrix, MatrixRow, Page, Section};

use super::{Document, Form, address};
use crate::bench::Counts;
use crate::environment::Environment;

/// A run in an index.
#[derive(Clone, Debug)]
pub struct IndexEntry {
    /// The name of the results file, without the extension.
    pub name: String,
    title: String,
    note: String,
    text: String,
    /// The number of cells with each verdict; `None` if nothing was compared.
    counts: Option<Counts>,
    /// Whether the run is finished; `None` if the file cannot be read.
    is_finished: Option<bool>,
}

impl IndexEntry {
    /// Creates the entry of a readable run.
    pub fn new(document: &Document<'_>) -> IndexEntry {
        let state = if document.is_finished { "finished" } else { "unfinished" };
        let Environment { time, kernel, cpu, version, commit, .. } = &document.report.environment;
        let is_compared = !document.report.summary.sentences.is_empty();
        let commit = commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})"));
        IndexEntry {
            name: document.name.to_owned(),
            title: document.title(),
            note: format!(
                "{state}, began {time}, Linux {kernel}, {cpu}, annulus {version}{commit}"
            ),
            text: document.verdict(),
            counts: is_compared.then_some(document.report.summary.counts),
            is_finished: Some(document.is_finished),
        }
    }

    /// Creates the entry of a run that cannot be read, with the reason.
    pub fn unreadable(name: &str, why: &str) -> IndexEntry {
        IndexEntry {
            name: name.to_owned(),
            title: name.to_owned(),
            note: "cannot be read".into(),
            text: why.to_owned(),
            counts: None,
            is_finished: None,
        }
    }

    /// Returns true if the run is finished or cannot be read.
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished != Some(false)
    }

    fn entry(&self, form: Form) -> Entry {
        let is_readable = self.is_finished.is_some();
        let href = if is_readable { address(&self.name, form) } else { String::new() };
        let link = Link { href, text: self.title.clone() };
        Entry { link, note: self.note.clone(), text: self.text.clone() }
    }
}

/// Returns a row for each run, with the number of cells with each verdict.
fn matrix(runs: &[IndexEntry]) -> Option<Matrix> {
    let row = |run: &IndexEntry| {
        let Counts { better, same, worse, undecided, void } = run.counts?;
        let cells = [better, same, worse, undecided, void].map(|count| count.to_string().into());
        Some(MatrixRow {
            names: vec![run.name.clone()],
            cells: cells.into(),
            ..MatrixRow::default()
        })
    };
    let rows: Vec<MatrixRow> = runs.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Matrix {
        title: "Cells in which the subject is better or worse than its best rival".into(),
        note: "Undecided cells need more rounds; in void ones, nothing could be compared.".into(),
        head: ["", "better", "same", "worse", "undecided", "void"].map(str::to_owned).into(),
        rows,
        ..Matrix::default()
    })
}

/// Returns the page that lists these runs, as Markdown or HTML. The pages of the runs are in files
/// beside it.
pub fn index(title: &str, runs: &[IndexEntry], form: Form) -> String {
    let entries = runs.iter().map(|run| run.entry(form)).collect();
    let compared = matrix(runs).map(|of| Section::new("Verdicts", vec![Block::Matrix(of)]));
    let list = Section::new("Runs", vec![Block::Entries(entries)]);
    let page = Page {
        title: title.to_owned(),
        sections: compared.into_iter().chain([list]).collect(),
        ..Page::default()
    };
    if form == Form::Markdown { page.markdown() } else { page.html() }
}
