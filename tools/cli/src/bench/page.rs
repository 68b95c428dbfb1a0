//! `annulus bench page`: writes results as pages, Markdown, CSV and JSON.

use crate::output::{self, Target, note};
use crate::usage::UsageError;
use annulus_lab::page::{self, Form, WrittenPages};
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const AFTER_HELP: &str = "\
Each results file, finished or not, gets NAME.html (one page that loads nothing
and runs no script), NAME.md (the same without the pictures), NAME.csv (every
figure) and NAME.json (every verdict); --forms selects some of them. index.html
and index.md list all runs, with the number of cells for each verdict. Results
files may be compressed with gzip (NAME.jsonl.gz).

Exit status: 0 everything was written; 1 some results cannot be read, and the
rest was written, or writing failed; 2 usage error.

Examples:
  annulus bench page lab-results/2026-11-23-quick
  annulus bench page old.jsonl new.jsonl --out pages
  annulus bench page docs/results --forms html,md";

/// Write pages with charts, Markdown, CSV and JSON from results files
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct PageArgs {
    /// Results files written by annulus bench, or directories of them
    #[arg(required = true, value_name = "DIR|FILE")]
    results: Vec<PathBuf>,
    /// Write to this directory instead of beside each file; it is created if needed
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the paths of the pages as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// The forms to write
    #[arg(long, value_name = "FORM,…", value_delimiter = ',', default_value = "html,md,csv,json",
          value_parser = form)]
    forms: Vec<Form>,
}

fn form(text: &str) -> Result<Form, String> {
    let known = Form::ALL.into_iter().find(|form| form.extension() == text);
    known.ok_or_else(|| "known forms are html, md, csv and json".to_owned())
}

pub(super) fn run(args: PageArgs) -> Result<ExitCode> {
    let mut files = Vec::new();
    for path in &args.results {
        files.extend(named(path)?);
    }
    // An unwritable path is reported before the pages are written.
    let json = args.json.map(Target::open).transpose()?;
    let WrittenPages { pages, unreadable } = page::write(&files, args.out.as_deref(), &args.forms)?;
    unreadable.iter().for_each(|why| note(format_args!("annulus: {why}")));
    let lines = pages.iter().map(|page| format!("{}\n", page.display()));
    output::deliver(json, &pages, Some(lines.collect()))?;
    Ok(if unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the pages of all results in a directory, beside them.
pub(super) fn write_beside(directory: &Path) -> Result<()> {
    let files = page::files(directory).unwrap_or_default();
    if !files.is_empty() {
        page::write(&files, None, &Form::ALL)?;
    }
    Ok(())
}

/// Returns the file itself, or the results files in the directory.
fn named(path: &Path) -> Result<Vec<PathBuf>, UsageError> {
    let shown = path.display();
    if !path.is_dir() {
        let missing =
            || UsageError(format!("{shown} does not exist: give results of annulus bench"));
        return path.exists().then(|| vec![path.to_owned()]).ok_or_else(missing);
    }
    let files =
        page::files(path).map_err(|why| UsageError(format!("cannot read {shown}: {why}")))?;
    if files.is_empty() {
        return Err(UsageError(format!(
            "no results (*.jsonl, *.jsonl.gz) in {shown}: give a directory written by annulus bench"
        )));
    }
    Ok(files)
}
