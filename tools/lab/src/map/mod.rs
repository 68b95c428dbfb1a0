//! The map: what each workload gains, on one page (`annulus bench map`).
//!
//! Its rows are data ([`RowDefinition`]): each refers to a cell of another run, in which our best
//! driver meets tokio, with marks for other programs. The verdicts are the run's own
//! ([`CellVerdict`]), so that the same rule applies everywhere.

mod drivers;
mod picture;
mod rows;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;
use std::path::Path;

use annulus_load::stats::{Ratio, Verdict};
use anyhow::{Result, ensure};
use serde::Serialize;

use crate::bench::{CellVerdict, Footprint};
use crate::results::{self, Results};

pub use drivers::DriverComparison;
pub use rows::{MarkKind, RowDefinition, RowFigure};

/// The format and the version of the JSON.
const JSON_FORMAT: &str = "annulus-lab-map";
const JSON_VERSION: u64 = 1;

/// The map of the runs in a directory.
#[derive(Clone, Debug, Serialize)]
pub struct Map {
    format: &'static str,
    version: u64,
    /// Where a third or less is needed, where there is no difference, and where it loses.
    pub sentences: [String; 3],
    /// The machines of the runs, each in one line.
    pub hosts: Vec<String>,
    /// The rows.
    pub rows: Vec<MapRow>,
    /// The rows without a result, each with the reason in one line.
    pub missing: Vec<String>,
    /// Our drivers compared with each other in all cells of the runs.
    pub drivers: DriverComparison,
}

/// A row of the map.
#[derive(Clone, Debug, Serialize)]
pub struct MapRow {
    /// What the servers do.
    pub workload: String,
    /// The cell in a few words, with what the ratios refer to if that is not tokio.
    pub detail: String,
    /// The name of the run.
    pub run: String,
    /// The cell of the run.
    pub cell: String,
    /// What is compared, such as `CPU`.
    pub noun: String,
    /// What the ratios refer to.
    pub against: String,
    /// The marks, our best driver first.
    pub marks: Vec<MapMark>,
    /// What `against` is called if it is not tokio.
    #[serde(skip)]
    other_rival: Option<String>,
}

/// A contender of a row, relative to the one that ratios refer to.
#[derive(Clone, Debug, Serialize)]
pub struct MapMark {
    /// What the contender is.
    pub kind: MarkKind,
    /// The name of the contender in its run.
    pub contender: String,
    /// Its cost as a multiple of the cost of the row's `against`. The verdict is based on its
    /// interval.
    pub cost: Ratio,
    /// The run's verdict on the two.
    pub verdict: Verdict,
}

impl Map {
    /// Creates the map of these rows from the results in a directory, compressed or not.
    ///
    /// # Errors
    /// If a results file cannot be read, or no row has a result.
    pub fn read(rows: &[RowDefinition], directory: &Path) -> Result<Map> {
        let mut runs = BTreeMap::new();
        for row in rows {
            let path = results::path_of(directory, &row.run);
            if path.exists() && !runs.contains_key(&row.run) {
                runs.insert(row.run.clone(), Results::read(&path)?);
            }
        }
        let map = Map::of(rows, &runs);
        ensure!(
            !map.rows.is_empty(),
            "{} has no results of a row of the map; the first one is missing because: {}",
            directory.display(),
            map.missing.first().map_or("no row was selected", String::as_str)
        );
        Ok(map)
    }

    /// Creates the map of these rows from runs by name.
    fn of(rows: &[RowDefinition], runs: &BTreeMap<String, Results>) -> Map {
        let (mut found, mut missing, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            let results = runs.get(&row.run).ok_or_else(|| "its run has no results".to_owned());
            match results.and_then(|results| Ok((MapRow::of(row, results)?, results))) {
                Ok((row, results)) => {
                    let host = results.environment().machine();
                    if !hosts.contains(&host) {
                        hosts.push(host);
                    }
                    found.push(row);
                }
                Err(why) => {
                    missing.push(format!("{}, {} ({}): {why}", row.workload, row.detail, row.run));
                }
            }
        }
        Map {
            format: JSON_FORMAT,
            version: JSON_VERSION,
            sentences: words::sentences(&found),
            hosts,
            rows: found,
            missing,
            drivers: DriverComparison::of(runs),
        }
    }

    /// Draws the map as an SVG file.
    pub fn svg(&self) -> String {
        picture::chart(self).svg()
    }
}

impl MapRow {
    /// Returns the row, or why it has no result.
    fn of(row: &RowDefinition, results: &Results) -> Result<MapRow, String> {
        let bench = results.bench();
        let selection = row.selection();
        let cell = bench.cells.iter().position(|cell| selection.has_cell(cell));
        let cell = cell.ok_or_else(|| format!("the run has no cell {}", row.cell))?;
        let is_measured = |name: &&str| bench.contenders.specs.iter().any(|one| one.name == **name);
        let ours: Vec<&str> = row.ours.iter().map(String::as_str).filter(is_measured).collect();
        if ours.is_empty() || !is_measured(&row.against.as_str()) {
            let missing =
                if ours.is_empty() { row.ours.join(" and ") } else { row.against.clone() };
            return Err(format!("the run has no contender {missing}"));
        }
        let mark = |kind, contenders: &[&str]| {
            let found = match row.figure {
                RowFigure::Cost => cost(results, cell, contenders, &row.against),
                RowFigure::IdleMemory => idle_memory(results.memory(), contenders, &row.against),
            };
            let (contender, cost, verdict) = found?;
            Some(MapMark { kind, contender, cost, verdict })
        };
        let best = mark(MarkKind::Best, &ours);
        let best = best.ok_or("the run has no figure of both sides")?;
        let drivers = ours.iter().filter(|name| **name != best.contender).map(|name| {
            let kind = if *name == "epoll" { MarkKind::Epoll } else { MarkKind::Uring };
            (*name, kind)
        });
        // Other programs may need many times the memory, which would shrink the axis.
        let others = row.others().filter(|_| row.figure == RowFigure::Cost);
        let others = drivers.chain(others.filter(|(name, _)| is_measured(name)));
        let others: Vec<MapMark> = others.filter_map(|(name, kind)| mark(kind, &[name])).collect();
        Ok(MapRow {
            workload: row.workload.clone(),
            detail: row.shown_detail(),
            run: row.run.clone(),
            cell: bench.cells[cell].to_string(),
            noun: match row.figure {
                RowFigure::Cost => bench.primary().map_or("", |metric| &metric.noun).to_owned(),
                RowFigure::IdleMemory => "idle memory".to_owned(),
            },
            against: row.against.clone(),
            marks: [vec![best], others].concat(),
            other_rival: row.other_rival().map(str::to_owned),
        })
    }

    /// Returns our best driver.
    pub fn best(&self) -> &MapMark {
        &self.marks[0]
    }
}

impl MapMark {
    /// Returns the cost with its interval as text.
    pub fn shown_cost(&self) -> String {
        let Ratio { median, interval } = self.cost;
        let interval =
            interval.map_or(String::new(), |of| format!(" [{:.2}, {:.2}]", of.low, of.high));
        format!("{median:.2}{interval}")
    }
}

/// Compares the best of some contenders with another one, by the primary metric of a run in a cell.
fn cost(
    results: &Results,
    cell: usize,
    contenders: &[&str],
    against: &str,
) -> Option<(String, Ratio, Verdict)> {
    let found = CellVerdict::named(results.bench(), results.record(), cell, contenders, against)?;
    Some((found.contender, found.cost?, found.verdict))
}

/// Compares the best of some contenders with another one, by memory after a while without load.
fn idle_memory(
    memory: &[Footprint],
    contenders: &[&str],
    against: &str,
) -> Option<(String, Ratio, Verdict)> {
    let idle = |name: &str| {
        let found = memory.iter().find(|footprint| footprint.contender == name)?;
        Some(found.idle?.resident_bytes as f64).filter(|bytes| *bytes > 0.0)
    };
    let known = contenders.iter().filter_map(|name| Some((*name, idle(name)?)));
    let (contender, bytes) = known.min_by(|one, other| one.1.total_cmp(&other.1))?;
    let cost = Ratio { median: bytes / idle(against)?, interval: None };
    Some((contender.to_owned(), cost, Verdict::Undecided))
}
