//! `annulus bench map`: what each workload gains, in one picture.

use super::args::CoreArgs;
use super::measure::measure_rows;
use super::subject::{self, Options, Subject};
use crate::output::{self, Target, note};
use crate::text::{table, wrapped};
use annulus_lab::describe::Selection;
use annulus_lab::map::{Map, MapRow, MarkKind, RowDefinition};
use anyhow::{Context, Result};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The names of the files that the command writes.
const PICTURE_FILE: &str = "map.svg";
const JSON_FILE: &str = "map.json";

/// How long each comparison may take to decide its rows.
pub(super) const MAX_TIME: Duration = Duration::from_secs(2 * 60);

const AFTER_HELP: &str = "\
Each row is a cell of another comparison (annulus bench list): the best of our
drivers ÷ tokio, by CPU time per request. Results go to DIR/NAME.jsonl as they
are measured, the picture to DIR/map.svg, and every figure to DIR/map.json. It
takes about half an hour on two cores, and seven minutes with --quick, after the
programs are built.

Exit status: 0 everything was measured; 1 something failed, and the rest was
measured; 2 usage error; 128 + N ended by signal N.

Examples:
  annulus bench map --quick
  annulus bench map --rows 'echo,static files' --out results
  annulus bench map --from docs/results --out pages";

/// Measure what each workload gains, in one picture
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct MapArgs {
    /// Measure only our drivers and tokio, in few rounds
    #[arg(short, long)]
    quick: bool,
    /// How often to measure each contender in each cell [default: until the verdict is decided, for
    /// about two minutes per run; with --quick: as often as a verdict requires]
    #[arg(short, long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: Option<u64>,
    /// Only the rows of these workloads [default: all]
    #[arg(long, value_name = "WORKLOAD,…", value_delimiter = ',')]
    rows: Vec<String>,
    /// Draw the results in this directory, and measure nothing
    #[arg(long, value_name = "DIR",
          conflicts_with_all = ["quick", "rounds", "seed", "awake"])]
    from: Option<PathBuf>,
    /// The directory for the results; an interrupted run resumes there [default: a new one]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the map as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// The seed for the order of slices and the payload
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    cores: CoreArgs,
}

pub(super) fn run(args: MapArgs) -> Result<ExitCode> {
    let rows = RowDefinition::named(&args.rows)?;
    // An unwritable path is reported before the measurement.
    let json = args.json.clone().map(Target::open).transpose()?;
    let (results, out, failure) = match &args.from {
        Some(from) => (from.clone(), args.out.clone().unwrap_or(from.clone()), None),
        None => {
            let subjects = subjects(&rows, &args.options()?)?;
            let (directory, failure) = measure_rows(subjects, args.out.clone(), "map")?;
            (directory.clone(), directory, failure)
        }
    };
    let map = match (Map::read(&rows, &results), failure) {
        // The run was interrupted or failed before its first result, which was reported.
        (Err(_), Some(failure)) => return Ok(failure),
        (map, _) => map?,
    };
    write(&map, &out)?;
    output::deliver(json, &map, Some(text(&map)))?;
    note(format_args!("annulus: the picture is {}", out.join(PICTURE_FILE).display()));
    Ok(failure.unwrap_or(ExitCode::SUCCESS))
}

impl MapArgs {
    fn options(&self) -> Result<Options> {
        Ok(Options {
            quick: self.quick,
            rounds: self.rounds,
            seed: self.seed,
            cores: self.cores.choose()?,
            precision: None,
            max_time: Some(MAX_TIME),
            only: Selection::default(),
        })
    }
}

/// Returns the comparisons that the rows need, each with only their contenders and cells.
pub(super) fn subjects(rows: &[RowDefinition], options: &Options) -> Result<Vec<Subject>> {
    let mut runs: Vec<(&str, Vec<String>)> = Vec::new();
    for row in rows {
        let patterns = row.patterns(options.quick);
        match runs.iter_mut().find(|(name, _)| *name == row.run) {
            Some((_, known)) => known.extend(patterns),
            None => runs.push((&row.run, patterns)),
        }
    }
    let subject = |(name, patterns): &(&str, Vec<String>)| {
        let only = Selection::new(patterns.iter().map(String::as_str));
        subject::named(name, &Options { only, ..options.clone() })
    };
    runs.iter().map(subject).collect()
}

/// Writes the picture and the JSON.
fn write(map: &Map, directory: &Path) -> Result<()> {
    let cannot = |path: &Path| format!("cannot write {}", path.display());
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let [picture, json] = [PICTURE_FILE, JSON_FILE].map(|name| directory.join(name));
    fs::write(&picture, map.svg()).with_context(|| cannot(&picture))?;
    let text = serde_json::to_string_pretty(map).expect("serialization failed") + "\n";
    fs::write(&json, text).with_context(|| cannot(&json))
}

/// Formats the map: the answer in words, and a table.
fn text(map: &Map) -> String {
    let answer = map.sentences.iter().filter(|line| !line.is_empty());
    let answer: String = answer.map(|line| wrapped("", line)).collect();
    let titles = ["", "", "÷ tokio", "verdict"].map(String::from).to_vec();
    let rows: Vec<Vec<String>> = [titles].into_iter().chain(map.rows.iter().map(row)).collect();
    let hosts: String = map.hosts.iter().map(|host| wrapped("", host)).collect();
    let missing: String = map.missing.iter().map(|why| wrapped("! ", why)).collect();
    [answer, "\n".into(), table(2, &rows), others(map), "\n".into(), hosts, missing].concat()
}

fn row(row: &MapRow) -> Vec<String> {
    let best = row.best();
    vec![row.workload.clone(), row.detail.clone(), best.shown_cost(), best.verdict.to_string()]
}

/// Formats our best contender of each row, and the ratios of the others that were measured.
fn others(map: &Map) -> String {
    let kinds: Vec<MarkKind> = MarkKind::ALL
        .into_iter()
        .skip(1)
        .filter(|kind| map.rows.iter().any(|row| ratio(row, *kind).is_some()))
        .collect();
    let titles = ["", "best"].into_iter().chain(kinds.iter().map(|kind| title(*kind)));
    let line = |row: &MapRow| {
        let is_alone = map.rows.iter().filter(|one| one.workload == row.workload).count() == 1;
        let detail = if is_alone { String::new() } else { format!(", {}", row.detail) };
        let names = [format!("{}{detail}", row.workload), row.best().contender.clone()];
        let ratios = kinds.iter().map(|kind| ratio(row, *kind).unwrap_or_else(|| "–".into()));
        names.into_iter().chain(ratios).collect()
    };
    let titles = titles.map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = [titles].into_iter().chain(map.rows.iter().map(line)).collect();
    format!("\n{}", table(1, &rows))
}

/// Returns the title of a column.
fn title(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Best => "best",
        MarkKind::Epoll => "epoll",
        MarkKind::Uring => "ring",
        MarkKind::Compio => "compio",
        MarkKind::Monoio => "monoio",
        MarkKind::C => "C",
        MarkKind::Expert => "expert",
    }
}

fn ratio(row: &MapRow, kind: MarkKind) -> Option<String> {
    let mark = row.marks.iter().find(|mark| mark.kind == kind)?;
    Some(format!("{:.2}", mark.cost.median))
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_lab::cores::Cores;
    use std::collections::BTreeSet;

    fn options(quick: bool) -> Options {
        let cores = Cores::new(0, 0);
        let only = Selection::default();
        Options { quick, rounds: None, seed: 1, cores, precision: None, max_time: None, only }
    }

    #[test]
    fn each_row_is_a_cell_of_the_catalogue_with_its_contenders() {
        for row in RowDefinition::all() {
            let shown = format!("{}, {}", row.workload, row.detail);
            for quick in [false, true] {
                let subjects = subjects(std::slice::from_ref(&row), &options(quick)).expect(&shown);
                let [subject] = subjects.as_slice() else { panic!("{shown}: no comparison") };
                assert_eq!(subject.setup.loads.len(), 1, "{shown}");
                let names = subject.setup.names();
                for name in [&row.against].into_iter().chain(&row.c).chain(&row.expert) {
                    let is_wanted = *name == row.against || !quick;
                    assert_eq!(names.contains(name), is_wanted, "{shown}: {name} in {names:?}");
                }
                assert!(row.ours.iter().any(|name| names.contains(name)), "{shown}: {names:?}");
            }
        }
    }

    #[test]
    fn rows_of_a_run_are_measured_together() {
        let rows = RowDefinition::all();
        for quick in [false, true] {
            let subjects = subjects(&rows, &options(quick)).expect("there are no comparisons");
            for subject in &subjects {
                let rows = rows.iter().filter(|row| row.run == subject.name);
                let cells: BTreeSet<&String> = rows.map(|row| &row.cell).collect();
                assert_eq!(subject.setup.loads.len(), cells.len(), "{}", subject.name);
            }
            let names: BTreeSet<&String> = subjects.iter().map(|subject| &subject.name).collect();
            assert_eq!(names.len(), subjects.len(), "a run is measured twice: {names:?}");
            assert_eq!(names, rows.iter().map(|row| &row.run).collect());
        }
    }
}
