//! `annulus bench list`: lists all suites and comparisons with their sizes and approximate times.

use super::args::CoreArgs;
use super::map;
use super::subject::{self, Options, Subject};
use crate::duration;
use crate::output;
use crate::text::{Listing, table};
use annulus_lab::describe::{Description, Selection};
use annulus_lab::map::RowDefinition;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;

const AFTER_HELP: &str = "\
The time is for a run with the minimum number of rounds, without building the
contenders (annulus bench build). Cells whose verdict is still undecided get
more rounds, for about half an hour in all. Some contenders may be missing here;
a run lists them.

Examples:
  annulus bench list
  annulus bench list my/suite.toml";

/// The name and the title of the map, which consists of cells of other comparisons.
const MAP_NAME: &str = "map";
const MAP_TITLE: &str = "what each workload gains: cells of the others, in one picture";

/// List suites and comparisons, with their sizes and times
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ListArgs {
    /// Names or files [default: all]
    #[arg(value_name = "NAME|FILE")]
    names: Vec<String>,
}

/// An entry of the list.
struct ListEntry {
    word: String,
    title: Option<String>,
    kind: String,
    cells: usize,
    contenders: usize,
    time: Duration,
    quick: Duration,
}

pub(super) fn run(args: &ListArgs) -> Result<ExitCode> {
    let all = || Description::names().map(str::to_owned).collect();
    let names = if args.names.is_empty() { all() } else { args.names.clone() };
    let mut listed = names.into_iter().map(listed).collect::<Result<Vec<ListEntry>>>()?;
    if args.names.is_empty() {
        listed.push(listed_map()?);
    }
    let titles =
        ["", "kind", "cells", "contenders", "at least", "quick"].map(String::from).to_vec();
    let rows: Vec<Vec<String>> = [titles].into_iter().chain(listed.iter().map(row)).collect();
    let mut text = table(2, &rows);
    let mut titles = Listing::new();
    for one in &listed {
        if let Some(title) = &one.title {
            titles.row(&one.word, title);
        }
    }
    text += &format!("\n{}", titles.finish());
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn options(quick: bool) -> Result<Options> {
    let (cores, only) = (CoreArgs::default().choose()?, Selection::default());
    let max_time = Some(subject::MAX_TIME);
    Ok(Options { quick, rounds: None, seed: 1, cores, precision: None, max_time, only })
}

fn listed(word: String) -> Result<ListEntry> {
    let subject = |quick| subject::named(&word, &options(quick)?);
    let (usual, quick) = (subject(false)?, subject(true)?);
    Ok(ListEntry {
        title: usual.setup.shown.title.clone(),
        kind: usual.kind(),
        cells: usual.setup.loads.len(),
        contenders: usual.setup.contenders.len(),
        time: usual.setup.cost(),
        quick: quick.setup.cost(),
        word,
    })
}

fn listed_map() -> Result<ListEntry> {
    let rows = RowDefinition::all();
    let subjects = |quick| {
        let options = Options { max_time: Some(map::MAX_TIME), ..options(quick)? };
        map::subjects(&rows, &options)
    };
    let cost = |subjects: &[Subject]| subjects.iter().map(|one| one.setup.cost()).sum();
    let (usual, quick) = (subjects(false)?, subjects(true)?);
    Ok(ListEntry {
        word: MAP_NAME.to_owned(),
        title: Some(MAP_TITLE.to_owned()),
        kind: "map".to_owned(),
        cells: usual.iter().map(|one| one.setup.loads.len()).sum(),
        contenders: usual.iter().map(|one| one.setup.contenders.len()).max().unwrap_or(0),
        time: cost(&usual),
        quick: cost(&quick),
    })
}

fn row(entry: &ListEntry) -> Vec<String> {
    let [cells, contenders] = [entry.cells, entry.contenders].map(|count| count.to_string());
    let [time, quick] = [entry.time, entry.quick].map(duration::shown);
    vec![entry.word.clone(), entry.kind.clone(), cells, contenders, time, quick]
}

impl Subject {
    /// Returns the kind, such as `suite, echo`.
    fn kind(&self) -> String {
        let kind = self.setup.shown.kind;
        match self.suite {
            Some(_) => format!("suite, {kind}"),
            None => kind.to_owned(),
        }
    }
}
