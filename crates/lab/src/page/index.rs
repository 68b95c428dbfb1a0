//! The index of several runs.

use annulus_page::{Block, Entry, Link, Page, Section, Tile};

use super::summary::failed;
use super::{Document, Form, address};

/// A run in an index.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The name of its file of results, without what follows the dot.
    pub name: String,
    title: String,
    note: String,
    text: String,
    /// Whether all of it was measured; none if it cannot be read.
    is_finished: Option<bool>,
    failed: usize,
    doubts: usize,
}

impl Listed {
    /// A run that can be shown.
    pub fn new(document: &Document<'_>) -> Listed {
        let state = if document.is_finished { "finished" } else { "unfinished" };
        Listed {
            name: document.name.to_owned(),
            title: document.title(),
            note: format!("{state}, began {}", document.report.environment.time),
            text: document.verdict(),
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
            is_finished: None,
            failed: 0,
            doubts: 0,
        }
    }

    /// Whether all of it was measured, or nothing more can be.
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished != Some(false)
    }

    fn entry(&self) -> Entry {
        let is_readable = self.is_finished.is_some();
        let href = if is_readable { address(&self.name, Form::Html) } else { String::new() };
        let link = Link { href, text: self.title.clone() };
        Entry { link, note: self.note.clone(), text: self.text.clone() }
    }
}

/// The page that lists these runs, as HTML. The runs are in files beside it.
pub fn index(title: &str, runs: &[Listed]) -> String {
    let count = |is: fn(&&Listed) -> bool| runs.iter().filter(is).count().to_string();
    let sum = |of: fn(&Listed) -> usize| runs.iter().map(of).sum::<usize>().to_string();
    let tile = |label: &str, value| Tile { label: label.into(), value, note: String::new() };
    Page {
        title: title.to_owned(),
        tiles: vec![
            tile("runs", runs.len().to_string()),
            tile("finished", count(|run| run.is_finished == Some(true))),
            tile("unfinished", count(|run| run.is_finished == Some(false))),
            tile("unreadable", count(|run| run.is_finished.is_none())),
            tile("failed slices", sum(|run| run.failed)),
            tile("doubts", sum(|run| run.doubts)),
        ],
        sections: vec![Section {
            heading: "Runs".into(),
            blocks: vec![Block::Entries(runs.iter().map(Listed::entry).collect())],
        }],
        ..Page::default()
    }
    .html()
}
