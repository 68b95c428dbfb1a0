//! `annulus bench page`: results as pages, Markdown, CSV and JSON.

use crate::output::{self, note};
use annulus_lab::page::{self, Written};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXPLAIN: &str = "\
Each file of results, finished or not, gets NAME.html, one page that loads
nothing and runs no script, NAME.md, the same without the pictures, every figure
as NAME.csv, and every verdict as NAME.json. An index.html and an index.md list
all runs, with how far each contender is from the best of each cell. They are
beside the file, or in --out.

Examples:
  annulus bench page lab-results/2026-11-23-quick
  annulus bench page old.jsonl new.jsonl --out pages";

/// Make pages with charts of results, and Markdown, CSV and JSON
#[derive(Args, Debug)]
#[command(after_help = EXPLAIN)]
pub(super) struct PageArgs {
    /// Files of results, as annulus bench writes them, or directories of them
    #[arg(required = true, value_name = "DIR|FILE")]
    results: Vec<PathBuf>,
    /// The directory of the pages, which is made if it is missing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: PageArgs) -> Result<ExitCode> {
    let mut files = Vec::new();
    for path in &args.results {
        files.extend(named(path)?);
    }
    let Written { pages, unreadable } = page::write(&files, args.out.as_deref())?;
    unreadable.iter().for_each(|why| note(format_args!("annulus: {why}")));
    let lines = pages.iter().map(|page| format!("{}\n", page.display()));
    output::print(&lines.collect::<String>())?;
    Ok(if unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes the pages of all results in a directory, beside them.
pub(super) fn beside(directory: &Path) -> Result<()> {
    let files = page::files(directory).unwrap_or_default();
    if !files.is_empty() {
        page::write(&files, None)?;
    }
    Ok(())
}

/// The file, or the files of results in the directory.
fn named(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        ensure!(path.exists(), "there is no {}: name results of annulus bench", path.display());
        return Ok(vec![path.to_owned()]);
    }
    let files = page::files(path).with_context(|| format!("cannot read {}", path.display()))?;
    if files.is_empty() {
        bail!("no results (*.jsonl) in {}: name a directory of annulus bench", path.display());
    }
    Ok(files)
}
