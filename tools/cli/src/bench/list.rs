//! `annulus bench list`: lists all suites and comparisons with their sizes and approximate times.

use super::args::Pins;
use super::subject::{self, Options, Subject};
use crate::duration;
use crate::output::{self, Target};
use crate::text::{Listing, table};
use annulus_lab::describe::{Description, Selection};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

const AFTER_HELP: &str = "\
The time is for a run with the minimum number of rounds, without building the
contenders (annulus bench build). Some may be missing here; a run lists them.

Examples:
  annulus bench list
  annulus bench list my/suite.toml";

/// List suites and comparisons, with their sizes and times
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ListArgs {
    /// Names or files [default: all]
    #[arg(value_name = "NAME|FILE")]
    names: Vec<String>,
    /// Write the list as JSON, with times in seconds, to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
}

/// An entry of the list: the subject with default and with quick options.
struct ListEntry {
    word: String,
    usual: Subject,
    quick: Subject,
}

pub(super) fn run(args: &ListArgs) -> Result<ExitCode> {
    let all = || Description::names().map(str::to_owned).collect();
    let names = if args.names.is_empty() { all() } else { args.names.clone() };
    let listed = names.into_iter().map(listed).collect::<Result<Vec<ListEntry>>>()?;
    let titles = ["", "kind", "cells", "contenders", "time", "quick"].map(String::from).to_vec();
    let rows: Vec<Vec<String>> = [titles].into_iter().chain(listed.iter().map(row)).collect();
    let mut text = table(2, &rows);
    let mut titles = Listing::new();
    for one in &listed {
        if let Some(title) = &one.usual.setup.shown.title {
            titles.row(&one.word, title);
        }
    }
    text += &format!("\n{}", titles.finish());
    let json = args.json.clone().map(Target::open).transpose()?;
    output::deliver(json, &listed.iter().map(as_json).collect::<Vec<_>>(), Some(text))?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(ListEntry { word, usual, quick }: &ListEntry) -> serde_json::Value {
    serde_json::json!({
        "name": word,
        "title": usual.setup.shown.title,
        "kind": usual.kind(),
        "cells": usual.setup.loads.len(),
        "contenders": usual.setup.contenders.len(),
        "seconds": usual.setup.cost().as_secs_f64().round(),
        "quick_seconds": quick.setup.cost().as_secs_f64().round(),
    })
}

fn listed(word: String) -> Result<ListEntry> {
    let subject = |quick| {
        let cores = Pins::default().choose()?;
        let (precision, only) = (None, Selection::default());
        subject::named(&word, &Options { quick, rounds: None, seed: 1, cores, precision, only })
    };
    let (usual, quick) = (subject(false)?, subject(true)?);
    Ok(ListEntry { word, usual, quick })
}

fn row(ListEntry { word, usual, quick }: &ListEntry) -> Vec<String> {
    let cost = |subject: &Subject| duration::shown(subject.setup.cost());
    let (cells, contenders) = (usual.setup.loads.len(), usual.setup.contenders.len());
    let (cells, contenders) = (cells.to_string(), contenders.to_string());
    vec![word.clone(), usual.kind(), cells, contenders, cost(usual), cost(quick)]
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
