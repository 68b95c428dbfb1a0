//! The index of several runs.

use annulus_page::{Block, Entry, Link, Matrix, MatrixCell, MatrixRow, Page, Section};

use super::tables::{heat_cell, steps};
use super::{Document, Form, address};
use crate::bench::{Distances, OWN_CONTENDERS, Report};
use crate::environment::Environment;

/// A run in an index.
#[derive(Clone, Debug)]
pub struct IndexEntry {
    /// The name of its results file, without the extension.
    pub name: String,
    title: String,
    note: String,
    text: String,
    /// The mean distance of each contender from the best, over the cells with a verdict.
    means: Vec<(String, f64)>,
    /// Whether the run is finished; `None` if the file cannot be read.
    is_finished: Option<bool>,
}

impl IndexEntry {
    /// Creates the entry of a readable run.
    pub fn new(document: &Document<'_>) -> IndexEntry {
        let state = if document.is_finished { "finished" } else { "unfinished" };
        let Environment { time, kernel, cpu, version, commit, .. } = &document.report.environment;
        let commit = commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})"));
        IndexEntry {
            name: document.name.to_owned(),
            title: document.title(),
            note: format!(
                "{state}, began {time}, Linux {kernel}, {cpu}, annulus {version}{commit}"
            ),
            text: document.verdict(),
            means: means(document.report),
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
            means: Vec::new(),
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

fn means(report: &Report) -> Vec<(String, f64)> {
    let mean = |of: &Distances| Some((of.contender.clone(), of.mean?.median));
    let first = report.envelopes.first();
    first.map_or(Vec::new(), |envelope| envelope.contenders.iter().filter_map(mean).collect())
}

/// Returns a row for each run, with the mean distance of each contender from the best of each cell.
/// Contenders of a single run are listed in its row.
fn matrix(runs: &[IndexEntry]) -> Option<Matrix> {
    let count = |name: &str| {
        runs.iter().filter(|run| run.means.iter().any(|(known, _)| known == name)).count()
    };
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in runs.iter().flat_map(|run| &run.means) {
        if count(name) > 1 && !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    columns.sort_by_key(|name| !OWN_CONTENDERS.contains(name));
    let row = |run: &IndexEntry| {
        let cell = |name: &&str| {
            let mean = run.means.iter().find(|(known, _)| known == name).map(|(_, mean)| *mean);
            MatrixCell {
                is_strong: OWN_CONTENDERS.contains(name) && mean.is_some(),
                ..heat_cell(mean, false)
            }
        };
        let others = run.means.iter().filter(|(name, _)| !columns.contains(&name.as_str()));
        let others: Vec<String> = others.map(|(name, mean)| format!("{name} {mean:.2}")).collect();
        MatrixRow {
            names: vec![run.name.clone()],
            cells: columns.iter().map(cell).chain([others.join(", ").into()]).collect(),
            is_muted: false,
        }
    };
    let rows: Vec<MatrixRow> = runs.iter().filter(|run| !run.means.is_empty()).map(row).collect();
    let head = [""].into_iter().chain(columns.iter().copied()).chain(["others"]);
    (!rows.is_empty()).then(|| Matrix {
        title: "× the best of each cell, on average".into(),
        note: "1 is the best in every cell. Only cells with a verdict count; annulus is bold."
            .into(),
        key: steps(),
        head: head.map(str::to_owned).collect(),
        rows,
    })
}

/// Returns the page that lists these runs, as Markdown or HTML. The pages of the runs are in files
/// beside it.
pub fn index(title: &str, runs: &[IndexEntry], form: Form) -> String {
    let entries = runs.iter().map(|run| run.entry(form)).collect();
    let compared = matrix(runs).map(|of| Section::new("By contender", vec![Block::Matrix(of)]));
    let list = Section::new("Runs", vec![Block::Entries(entries)]);
    let page = Page {
        title: title.to_owned(),
        sections: compared.into_iter().chain([list]).collect(),
        ..Page::default()
    };
    if form == Form::Markdown { page.markdown() } else { page.html() }
}
