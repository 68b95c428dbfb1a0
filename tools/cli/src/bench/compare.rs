//! `annulus bench compare`: shows whether a new run is worse than an old one.

use crate::output::{self, Target, note};
use crate::text::{table, wrapped};
use crate::usage::UsageError;
use annulus_lab::bench::Bench;
use annulus_lab::compare::{self, Change, Options, RunComparison};
use annulus_lab::page;
use annulus_lab::results::{EXTENSION, Results, run_name};
use annulus_load::stats::Verdict;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const AFTER_HELP: &str = "\
Compares two results files, or all files of the same name in two directories.
Every contender in both is compared in every cell, by every metric that decides
a verdict. A figure is worse or better if the whole interval of NEW ÷ OLD is
beyond the margin, beyond the interval of the control in both runs, and beyond
how far either run drifted by itself. In 95 % of comparisons, all intervals
contain the true ratio.

One run of each cannot show what changes from one run to the next, such as the
clock of the processor. With --reference and a contender that is the same in
both, such as a peer, the rest are compared by their ratios to it.

Exit status: 0 nothing is worse; 1 a figure is worse; 2 the runs cannot be
compared, or the result cannot be written.

Examples:
  annulus bench compare old/tcp.jsonl new/tcp.jsonl
  annulus bench compare old new --margin 5 --reference tokio
  annulus bench compare old new --json - | jq '.comparisons[].changes[]'";

const JSON_FORMAT: &str = "annulus-lab-comparison";
const JSON_VERSION: u64 = 2;

/// Compare two runs: which figures are worse or better, cell by cell
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct CompareArgs {
    /// The results to compare with: a file, or a directory of files
    old: PathBuf,
    /// The new results, of the same kind
    new: PathBuf,
    /// Ignore differences up to this percentage
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
    margin: f64,
    /// A contender that is the same in both runs, to which the rest are compared
    #[arg(long, value_name = "CONTENDER")]
    reference: Option<String>,
    /// Show every figure, not only those that changed
    #[arg(long)]
    all: bool,
    /// Write the comparison as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
}

/// The comparisons and the paths given on the command line.
#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    version: u64,
    old: &'a Path,
    new: &'a Path,
    comparisons: &'a [RunComparison],
}

pub(super) fn run(args: CompareArgs) -> Result<ExitCode> {
    let pairs: Vec<[Results; 2]> = pairs(&args.old, &args.new)?
        .iter()
        .map(|pair| Ok([read(&pair[0])?, read(&pair[1])?]))
        .collect::<Result<_, UsageError>>()?;
    let options = Options { margin: args.margin / 100.0, reference: args.reference.clone() };
    let comparisons = compared(&pairs, &options)?;
    let json = args.json.map(Target::open).transpose()?;
    let document = Document {
        format: JSON_FORMAT,
        version: JSON_VERSION,
        old: &args.old,
        new: &args.new,
        comparisons: &comparisons,
    };
    let shown = comparisons.iter().zip(&pairs);
    let text: String = shown.map(|(found, pair)| text(found, pair[1].bench(), args.all)).collect();
    output::deliver_comparison(json, &document, text)?;
    Ok(status(&comparisons))
}

/// Returns the pairs of files to compare: the given two, or the files of runs that are in both
/// directories under the same name.
fn pairs(old: &Path, new: &Path) -> Result<Vec<[PathBuf; 2]>, UsageError> {
    match (old.is_dir(), new.is_dir()) {
        (false, false) => Ok(vec![[old.to_owned(), new.to_owned()]]),
        (true, true) => {
            let (old_files, new_files) = (files(old)?, files(new)?);
            let same = |old: PathBuf| {
                let new = new_files.iter().find(|new| run_name(new) == run_name(&old))?.clone();
                Some([old, new])
            };
            let pairs: Vec<[PathBuf; 2]> = old_files.into_iter().filter_map(same).collect();
            if pairs.is_empty() {
                let (old, new) = (old.display(), new.display());
                let text = format!(
                    "{old} and {new} have no .{EXTENSION} or .{EXTENSION}.gz file of the same name"
                );
                return Err(UsageError(text));
            }
            Ok(pairs)
        }
        (_, _) => Err(UsageError(format!(
            "cannot compare {} with {}: give two files, or two directories",
            old.display(),
            new.display()
        ))),
    }
}

/// Returns the results files in a directory, sorted by name.
fn files(directory: &Path) -> Result<Vec<PathBuf>, UsageError> {
    page::files(directory)
        .map_err(|why| UsageError(format!("cannot read {}: {why}", directory.display())))
}

/// Reads a results file. A failure is a usage error, because exit status 1 means that something is
/// worse.
fn read(path: &Path) -> Result<Results, UsageError> {
    Results::read(path).map_err(|error| UsageError(error.to_string()))
}

/// Compares all pairs, with intervals adjusted for the number of all comparisons.
fn compared(pairs: &[[Results; 2]], options: &Options) -> Result<Vec<RunComparison>, UsageError> {
    options.check()?;
    let runs: Vec<[compare::Run<'_>; 2]> =
        pairs.iter().map(|pair| [as_run(&pair[0]), as_run(&pair[1])]).collect();
    let sizes: Vec<usize> =
        runs.iter().map(|&[old, new]| compare::size(old, new, options)).collect();
    let all: usize = sizes.iter().sum();
    let compare =
        |((&[old, new], size), pair): ((&[compare::Run<'_>; 2], usize), &[Results; 2])| {
            compare::compare(old, new, options, all - size)
                .map_err(|why| UsageError(format!("{}: {why}", pair[1].path().display())))
        };
    runs.iter().zip(sizes).zip(pairs).map(compare).collect()
}

fn as_run(results: &Results) -> compare::Run<'_> {
    compare::Run {
        bench: results.bench(),
        record: results.record(),
        environment: results.environment(),
    }
}

/// Returns the exit status; if it is not 0, prints why.
fn status(comparisons: &[RunComparison]) -> ExitCode {
    let worse: usize = comparisons.iter().map(|found| found.of(Verdict::Worse).count()).sum();
    if worse == 0 {
        return ExitCode::SUCCESS;
    }
    let figures = if worse == 1 { "1 figure is".into() } else { format!("{worse} figures are") };
    note(format_args!("annulus: {figures} worse than in the old run"));
    ExitCode::FAILURE
}

/// Formats a comparison in at most 80 columns: one table per cell.
fn text(comparison: &RunComparison, bench: &Bench, all: bool) -> String {
    let mut text = format!("{}\n", comparison.bench);
    text.extend(comparison.differences.iter().map(|line| wrapped("≠ ", line)));
    for cell in &bench.cells {
        let is_shown = |change: &&Change| {
            let is_changed = change.verdict.is_different();
            change.cell == *cell && (all || is_changed)
        };
        let rows: Vec<Vec<String>> =
            comparison.changes.iter().filter(is_shown).map(|change| row(change, bench)).collect();
        if !rows.is_empty() {
            let titles = ["", "", "old", "new", "new ÷ old", ""].map(String::from).into();
            let rows: Vec<Vec<String>> = [titles].into_iter().chain(rows).collect();
            text += &format!("\n{cell}\n{}", table(2, &rows));
        }
    }
    text += "\n";
    text += &wrapped("→ ", &comparison.sentence());
    text.extend(comparison.warnings.iter().map(|warning| wrapped("! ", warning)));
    text + "\n"
}

fn row(change: &Change, bench: &Bench) -> Vec<String> {
    let metric = bench.metrics.iter().find(|metric| metric.key == change.metric);
    let number = |value| metric.map_or_else(String::new, |metric| metric.format.text(value));
    let title = metric.map_or("", |metric| match metric.title.as_str() {
        "" => &metric.key,
        title => title,
    });
    vec![
        change.contender.clone(),
        title.to_owned(),
        number(change.old),
        number(change.new),
        change.ratio.to_string(),
        change.verdict.to_string(),
    ]
}
