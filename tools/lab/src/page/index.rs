//! The index of several runs.

use annulus_page::{Block, Entry, Link, Page, Section, Table, Tile};

use super::distance_map::DistanceMap;
use super::summary::failed;
use super::tables::times;
use super::{Document, Form, address};
use crate::bench::{Distances, Report, Standing};
use crate::environment::Environment;

/// A run in an index.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The name of its file of results, without what follows the dot.
    pub name: String,
    title: String,
    note: String,
    text: String,
    /// In which cells each contender is the best, tied with it, or behind it.
    standings: Vec<Vec<String>>,
    /// Whether all of it was measured; none if it cannot be read.
    is_finished: Option<bool>,
    failed: usize,
    doubts: usize,
}

impl Listed {
    /// A run that can be shown.
    pub fn new(document: &Document<'_>) -> Listed {
        let state = if document.is_finished { "finished" } else { "unfinished" };
        let Environment { time, kernel, cpu, version, commit, .. } = &document.report.environment;
        let commit = commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})"));
        Listed {
            name: document.name.to_owned(),
            title: document.title(),
            note: format!(
                "{state}, began {time}, Linux {kernel}, {cpu}, annulus {version}{commit}"
            ),
            text: document.verdict(),
            standings: standings(document.report),
            is_finished: Some(document.is_finished),
            failed: failed(document.report),
            doubts: document.report.doubts.len(),
        }
    }

    /// A run that cannot be read, with the reason.
    pub fn unreadable(name: &str, why: &str) -> Listed {
        Listed {
            name: name.to_owned(),
            title: name.to_owned(),
            note: "cannot be read".into(),
            text: why.to_owned(),
            standings: Vec::new(),
            is_finished: None,
            failed: 0,
            doubts: 0,
        }
    }

    /// Whether all of it was measured, or nothing more can be.
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

/// The contenders, each with the cells in which it is the best by what decides, and those in which it is not. Cells that were lost are named as
/// those that were won.
fn standings(report: &Report) -> Vec<Vec<String>> {
    let maps = DistanceMap::all(report);
    let map = maps.first().filter(|map| map.contenders.len() > 1);
    let contenders = map.into_iter().flat_map(|map| &map.contenders);
    contenders.map(|of| vec![of.contender.clone(), standing(report, of)]).collect()
}

fn standing(report: &Report, of: &Distances) -> String {
    const KINDS: [(Standing, &str); 6] = [
        (Standing::Best, "best"),
        (Standing::Tied, "tied"),
        (Standing::Behind, "behind"),
        (Standing::Failed, "failed"),
        (Standing::Undecided, "too few rounds"),
        (Standing::Worthless, "worthless"),
    ];
    let cells = || report.settings.cells.iter().zip(&of.cells);
    let parts = KINDS.into_iter().filter_map(|(kind, word)| {
        let found = cells().filter_map(|(cell, distance)| {
            let distance = distance.filter(|distance| distance.standing == kind)?;
            let by = format!(" ({} ×)", times(distance.ratio.median));
            Some(format!("{cell}{}", if kind == Standing::Behind { &by } else { "" }))
        });
        let found: Vec<String> = found.collect();
        (!found.is_empty()).then(|| format!("{word} in {}: {}", found.len(), found.join(", ")))
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// The page that lists these runs, as HTML or as Markdown. The runs are in files beside it.
pub fn index(title: &str, runs: &[Listed], form: Form) -> String {
    let count = |is: fn(&&Listed) -> bool| runs.iter().filter(is).count().to_string();
    let sum = |of: fn(&Listed) -> usize| runs.iter().map(of).sum::<usize>().to_string();
    let tile = |label: &str, value| Tile { label: label.into(), value, note: String::new() };
    let compared = runs.iter().filter(|run| !run.standings.is_empty()).map(|run| Section {
        heading: format!("{}: cells by contender", run.name),
        blocks: vec![Block::Table(Table { head: Vec::new(), rows: run.standings.clone() })],
    });
    let entries = runs.iter().map(|run| run.entry(form)).collect();
    let list = Section { heading: "Runs".into(), blocks: vec![Block::Entries(entries)] };
    let page = Page {
        title: title.to_owned(),
        tiles: vec![
            tile("runs", runs.len().to_string()),
            tile("finished", count(|run| run.is_finished == Some(true))),
            tile("unfinished", count(|run| run.is_finished == Some(false))),
            tile("unreadable", count(|run| run.is_finished.is_none())),
            tile("failed slices", sum(|run| run.failed)),
            tile("doubts", sum(|run| run.doubts)),
        ],
        sections: [list].into_iter().chain(compared).collect(),
        ..Page::default()
    };
    if form == Form::Markdown { page.markdown() } else { page.html() }
}
