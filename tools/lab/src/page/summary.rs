//! What a reader is to grasp at once.

use annulus_page::{Notice, Tile, text};
use serde_json::Value as Json;

use super::Document;
use super::charts::label;
use super::distance_map::DistanceMap;
use super::tables::times;
use crate::bench::{Better, Report, VerdictOutcome};

impl Document<'_> {
    pub(super) fn title(&self) -> String {
        match self.suite {
            Some(suite) => format!("{} ({})", suite.suite.title, suite.suite.document),
            None => match self.report.settings.parameters.get("title").and_then(Json::as_str) {
                Some(title) if title != self.name => format!("{}: {title}", self.name),
                _ => self.name.to_owned(),
            },
        }
    }

    /// The verdict on the whole run, in a sentence or three.
    pub fn verdict(&self) -> String {
        let report = self.report;
        let mut sentences = Vec::new();
        if !self.is_finished {
            let measured = report.samples.len();
            sentences
                .push(format!("Unfinished: {measured} of {} slices.", report.settings.planned()));
        }
        sentences.extend(report.summary.sentences.iter().cloned());
        let failed = failed(report);
        if failed > 0 {
            sentences.push(format!("{}.", counted(failed, "slice failed", "slices failed")));
        }
        if sentences.is_empty() {
            sentences.push("Nothing was compared.".into());
        }
        sentences.join(" ")
    }

    pub(super) fn tiles(&self) -> Vec<Tile> {
        let report = self.report;
        let distances = DistanceMap::all(report);
        let mut tiles = Vec::new();
        match distances.first().filter(|of| of.contenders.len() > 1) {
            Some(first) => tiles.extend(comparison(first)),
            None => tiles.extend(best(report)),
        }
        if !report.verdicts.is_empty() {
            tiles.push(won(report));
        }
        let planned = report.settings.planned();
        let rounds = report.samples.iter().map(|slice| slice.round + 1).max().unwrap_or(0);
        let all = report.samples.len();
        let cells = report.settings.cells.len();
        let doubts_note = if report.doubts.is_empty() { "" } else { "listed below" };
        tiles.extend([
            tile(
                "failed slices",
                failed(report).to_string(),
                format!("of {}", text::number(all as f64)),
            ),
            tile("doubts", report.doubts.len().to_string(), doubts_note.into()),
            tile("rounds", rounds.to_string(), counted(cells, "cell", "cells")),
        ]);
        if !self.is_finished {
            let share = all as f64 / planned.max(1) as f64;
            tiles.push(tile(
                "measured so far",
                text::percent(share.min(1.0)),
                "of the slices".into(),
            ));
        }
        tiles
    }

    /// Doubts, failures, and what was left out.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let report = self.report;
        let own = || report.doubts.iter().cloned().chain(report.failures());
        let mut texts: Vec<String> = match self.suite {
            Some(suite) => suite.notes.clone(),
            None => Vec::new(),
        };
        texts.extend(own().filter(|text| !texts.contains(text)).collect::<Vec<_>>());
        texts.retain(|text| !report.settings.contenders.missing.contains(text));
        texts.into_iter().map(|text| Notice { text, advice: String::new() }).collect()
    }
}

fn tile(label: &str, value: String, note: String) -> Tile {
    Tile { label: label.into(), value, note }
}

/// The contender that is closest to the best over all cells.
fn comparison(distances: &DistanceMap<'_>) -> Vec<Tile> {
    let Some(of) = distances.closest() else { return Vec::new() };
    let by = label(distances.metric);
    vec![
        tile("closest to the best", of.contender.to_owned(), format!("by {by}, over all cells")),
        tile("on average", format!("{} ×", times(of.mean)), "the best of each cell".into()),
        tile("at worst", format!("{} ×", times(of.worst.ratio)), of.worst.cell.to_string()),
        tile("best or tied", format!("{} of {}", of.best_or_tied, of.cells), "cells".into()),
    ]
}

/// Without others to compare with: the best figure of each metric that is compared.
fn best(report: &Report) -> Vec<Tile> {
    let metrics = report.settings.metrics.iter().filter(|metric| !label(metric).is_empty());
    let tiles = metrics.filter_map(|metric| {
        let values =
            report.results.iter().filter_map(|row| Some((row.value(&metric.key)?, &row.cell)));
        let (value, cell) = values.reduce(|a, b| match metric.better {
            Better::Lower if b.0 < a.0 => b,
            Better::Higher if b.0 > a.0 => b,
            _ => a,
        })?;
        Some(tile(&format!("best {}", label(metric)), metric.format.text(value), cell.to_string()))
    });
    tiles.take(3).collect()
}

/// In how many cells there is a winner, and how often each contender is it.
fn won(report: &Report) -> Tile {
    let wins =
        report.verdicts.iter().filter(|verdict| verdict.outcome == VerdictOutcome::Win).count();
    let winners = || report.verdicts.iter().filter_map(|verdict| verdict.winner.as_ref());
    let names = report.settings.contenders.specs.iter().map(|spec| &spec.name);
    let counts = names.map(|name| (winners().filter(|winner| *winner == name).count(), name));
    let mut by: Vec<(usize, &String)> = counts.filter(|(count, _)| *count > 0).collect();
    by.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let by: Vec<String> = by.iter().map(|(count, name)| format!("{name} {count}")).collect();
    let note =
        if by.is_empty() { "undecided or alone in the others".into() } else { by.join(", ") };
    tile("cells with a winner", format!("{wins} of {}", report.verdicts.len()), note)
}

pub(super) fn failed(report: &Report) -> usize {
    report.rows().map(|row| row.failed).sum()
}

fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}
