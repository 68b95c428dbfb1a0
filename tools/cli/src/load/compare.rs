//! `annulus load compare`: compares recorded runs.

use crate::output::{self, Target, note};
use crate::text::{Listing, printable, table, thousands, wrapped};
use crate::usage::UsageError;
use annulus_load::compare::{self, CompareError, Comparison, Metric, MetricRatio, Options, Side};
use annulus_load::counted;
use annulus_load::recording::Recording;
use annulus_load::stats::Verdict;
use annulus_page::text;
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const AFTER_HELP: &str = "\
Each side is one or more runs recorded by `annulus load --json`. In 95 % of
comparisons, all intervals of the ratios B ÷ A contain the true ratio: equal
sides are called different, by any figure, in at most 5 %. Only several runs of
each side show what varies from run to run. Use at least five, measured
alternately, because fewer have no intervals. A single run must last at least
20 s, and its interval covers only what varies within the run.

\"better\" or \"worse\" means that the whole interval is beyond the margin,
\"same\" that it is within the margin, and \"undecided\" anything else. The exit
status is 1 if the condition of --fail-if is met, 2 if the runs cannot be read or
compared or the result cannot be written, and 0 otherwise.

Examples:
  annulus load compare before.json after.json
  annulus load compare a1.json a2.json a3.json --with b1.json b2.json b3.json
  annulus load compare old/*.json --with new/*.json --fail-if worse";

const JSON_FORMAT: &str = "annulus-load-comparison";
const JSON_VERSION: u64 = 2;

/// Compare runs: ratios with intervals, and a verdict for each
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct CompareArgs {
    /// The runs of side A; without --with, one run of A and one of B
    #[arg(value_name = "RECORDING", required = true)]
    runs: Vec<PathBuf>,
    /// The runs of side B
    #[arg(long, value_name = "RECORDING", num_args = 1..)]
    with: Vec<PathBuf>,
    /// Ignore differences up to this percentage
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
    margin: f64,
    /// Exit with 1 if any figure of B is different from A, or worse
    #[arg(long, value_name = "WHAT")]
    fail_if: Option<FailIf>,
    /// Write the comparison as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
}

/// The condition that makes the exit status 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailIf {
    /// Any difference
    Different,
    /// A lower rate, a longer latency, or more CPU time of the load generator
    Worse,
}

/// A comparison and the files that it compares.
#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    version: u64,
    files: [&'a [PathBuf]; 2],
    #[serde(flatten)]
    comparison: &'a Comparison,
}

pub(super) fn run(args: CompareArgs) -> Result<ExitCode> {
    let files = sides(&args.runs, &args.with)?;
    if let Some(output) = &args.json {
        check_distinct(output, args.runs.iter().chain(&args.with))?;
    }
    let [a, b] = [open(files[0])?, open(files[1])?];
    let options = Options { margin: args.margin / 100.0 };
    let comparison = compare::compare(&a, &b, &options).map_err(|error| named(error, files))?;
    let json = args.json.map(Target::open).transpose()?;
    let document =
        Document { format: JSON_FORMAT, version: JSON_VERSION, files, comparison: &comparison };
    output::deliver_comparison(json, &document, text(&comparison))?;
    Ok(status(&comparison, args.fail_if))
}

/// Splits the arguments into the files of A and of B.
fn sides<'a>(runs: &'a [PathBuf], with: &'a [PathBuf]) -> Result<[&'a [PathBuf]; 2], UsageError> {
    let sides = match (runs, with) {
        ([_, _], []) => [&runs[..1], &runs[1..]],
        (_, []) => {
            let text = format!(
                "without --with two recordings are compared, not {}: put the runs of B after --with",
                runs.len()
            );
            return Err(UsageError(text));
        }
        _ => [runs, with],
    };
    for (name, side) in ["A", "B"].into_iter().zip(sides) {
        let twice = side.iter().enumerate().find(|(place, file)| side[..*place].contains(file));
        if let Some((_, file)) = twice {
            let text = format!("{} is given twice in {name}: give each run once", file.display());
            return Err(UsageError(text));
        }
    }
    Ok(sides)
}

fn open(files: &[PathBuf]) -> Result<Vec<Recording>, UsageError> {
    files.iter().map(|file| open_recording(file)).collect()
}

/// A file that cannot be read must not have the exit status of a worse result.
fn open_recording(path: &Path) -> Result<Recording, UsageError> {
    let named = |error| UsageError(format!("cannot read {}: {error}", path.display()));
    Recording::open(path).map_err(named)
}

/// Returns an error if the output is one of the inputs.
fn check_distinct<'a>(
    output: &Target,
    inputs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), UsageError> {
    let Target::File(output) = output else { return Ok(()) };
    // A file whose metadata cannot be read does not exist yet, or is reported when it is read.
    let file = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    let Some(written) = file(output) else { return Ok(()) };
    let is_same = |input: &&PathBuf| file(input) == Some(written);
    match inputs.into_iter().find(is_same) {
        Some(_) => Err(UsageError(format!(
            "{} is one of the recordings to compare: write to another file",
            output.display()
        ))),
        None => Ok(()),
    }
}

/// Adds the file to an error that a single run caused.
fn named(error: CompareError, [a, b]: [&[PathBuf]; 2]) -> UsageError {
    UsageError(match error {
        CompareError::NothingMeasured(side, run) => {
            let files = if side == 'A' { a } else { b };
            format!("{}: {error}", files[run - 1].display())
        }
        other => other.to_string(),
    })
}

/// Returns the exit status; if it is not 0, prints why.
fn status(comparison: &Comparison, fail_if: Option<FailIf>) -> ExitCode {
    let (what, fails): (_, fn(Verdict) -> bool) = match fail_if {
        None => return ExitCode::SUCCESS,
        Some(FailIf::Different) => ("different from", Verdict::is_different),
        Some(FailIf::Worse) => ("worse than", |verdict| verdict == Verdict::Worse),
    };
    let found: Vec<_> = comparison.ratios.iter().filter(|ratio| fails(ratio.verdict)).collect();
    if found.is_empty() {
        return ExitCode::SUCCESS;
    }
    let found: Vec<_> = found.iter().map(|ratio| ratio.metric.name()).collect();
    note(format_args!("annulus: B is {what} A: {}", found.join(", ")));
    ExitCode::FAILURE
}

/// Formats the comparison in at most 80 columns.
fn text(comparison: &Comparison) -> String {
    let mut text = Listing::new();
    text.indent(4);
    text.row("A", &side(&comparison.a));
    text.row("B", &side(&comparison.b));
    for plan in &comparison.plans {
        let [a, b] = [&plan.a, &plan.b].map(|values| values.join(", "));
        text.row("≠", &printable(&format!("{}: {a} | {b}", plan.what)));
    }
    text.line("");
    let mut text = text.finish();
    text += &table(1, &rows(comparison));
    text += "\n";
    text += &wrapped("", &comparison.sentence());
    text.extend(comparison.warnings.iter().map(|warning| wrapped("! ", &printable(warning))));
    text
}

fn side(side: &Side) -> String {
    let Side { label, runs, seconds, responses, .. } = side;
    let label = label.as_ref().map_or(String::new(), |label| format!("{}: ", printable(label)));
    let runs = counted(*runs, "run");
    format!("{label}{runs}, {seconds:.1} s, {} answers", thousands(*responses))
}

fn rows(comparison: &Comparison) -> Vec<Vec<String>> {
    let head = ["", "A", "B", "B ÷ A", "verdict"].map(String::from).into();
    let row = |ratio: &MetricRatio| {
        let shown = |value| match ratio.metric {
            Metric::Rate => text::number(value) + "/s",
            _ => text::nanoseconds(value),
        };
        let value = |side: Option<f64>| side.map_or("–".into(), shown);
        vec![
            ratio.metric.to_string(),
            value(ratio.a),
            value(ratio.b),
            ratio.ratio.map_or("–".into(), |ratio| ratio.to_string()),
            ratio.verdict.to_string(),
        ]
    };
    std::iter::once(head).chain(comparison.ratios.iter().map(row)).collect()
}
