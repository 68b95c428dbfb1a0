//! `annulus bench NAME`: measures comparisons by name and keeps the results.

use super::args::{CoreArgs, max_rounds, parse_nonzero_time, parse_pattern};
use super::echo::parse_precision;
use super::page;
use super::results::report_text;
use super::run::{Progress, take_lock};
use super::servers::ServerArgs;
use super::subject::{self, Options, Subject};
use super::tables;
use crate::duration;
use crate::output::{self, JsonFile, Target, note};
use crate::usage::UsageError;
use annulus_lab::bench::Report;
use annulus_lab::describe::{Description, Selection, Setup};
use annulus_lab::distinct;
use annulus_lab::interrupt;
use annulus_lab::results::{self, Results};
use annulus_lab::scratch::Scratch;
use annulus_lab::suite::SuiteReport;
use anyhow::{Result, bail};
use clap::Args;
use std::env;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The parent of results directories.
const RESULTS_PARENT: &str = "lab-results";

/// The exit status of a run in which no verdict is decided.
const UNDECIDED_STATUS: u8 = 3;

pub(super) const AFTER_HELP: &str = "\
Every slice is written to DIR/NAME.jsonl as soon as it is measured. A run that
was interrupted or killed resumes from there if it is started again with the
same --out. At the end, pages and an index.html are written beside the file
(annulus bench page); annulus bench serve shows them during the run. Contenders
that are missing here, for example for lack of a toolchain, are reported and
left out.

A suite is the tables of a published document: they are printed as there, with
the published figures above the measured ones. Do not compare absolute figures
of different machines: compare within a table.

With --load or --load-command, your own servers are compared. A server is given
as the command that starts it, split as in a shell, or as the HOST:PORT or
unix:/path of a running one. In commands, {port} is a free port and {dir} an
empty directory; in loads, {port} and {address} belong to the server, and {path}
to its Unix socket. A server is ready once it accepts connections. It must stay
in the foreground; when the run ends, it is stopped with everything it started.
CPU time covers all its processes; for a server that was already running, it is
known only if that belongs to this user. The first server is measured twice, as
a control. A file with [[server]] and [[load]] does the same; for examples see
tools/lab/catalogue.

The book's pages on measuring and on comparison files explain all of it.

Exit status: 0 everything was measured; 1 something failed (see the results),
and the rest was measured; 2 usage error; 3 no verdict is decided; 128 + N
ended by signal N.

Examples:
  annulus bench list
  annulus bench quick                     all, in about 90 minutes
  annulus bench http --only tokio,uring,/plain*
  annulus bench tcp --only 'uring/50x*' --precision 0.02
  annulus bench 'python3 -m http.server {port}' 'busybox httpd -f -p {port}' \\
    --load 'http://127.0.0.1:{port}/' --connections 4
  annulus bench 'my-server {port}' 'other-server {port}' --sweep \\
    --limit 'p99<5ms' --load 'http://127.0.0.1:{port}/'
  annulus bench unix:/run/a unix:/run/b \\
    --load 'http://localhost/ --unix-socket {path}'";

/// The subjects of a run and how to measure them.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// Suites (bench list), files, or servers of your own
    ///
    /// Suites, comparisons of programs, or files; all, or quick for a short run of each; with
    /// --load, servers
    #[arg(required = true, value_name = "NAME|FILE|COMMAND")]
    names: Vec<String>,
    /// Shorten each to a few minutes
    ///
    /// By fewer cells and rounds
    #[arg(short, long)]
    quick: bool,
    /// Rounds to measure
    ///
    /// In a round, each contender is measured once in each cell. By default until the verdict is decided, for about half an hour in all; for a sweep 5 times;
    /// for your own servers 15 times, and up to 30 until intervals are within ± 3 %; with --quick as
    /// often as a verdict requires
    #[arg(short, long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: Option<u64>,
    /// How long each comparison may take to decide its verdicts [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = parse_nonzero_time,
          conflicts_with_all = ["quick", "rounds", "precision", "load", "load_command"])]
    max_time: Option<Duration>,
    /// Measure more rounds, at most 100, until half the width of every deciding interval is at most
    /// this, such as 0.03
    #[arg(long, value_name = "RATIO", value_parser = parse_precision)]
    precision: Option<f64>,
    /// Measure only these contenders and cells
    ///
    /// A pattern is CONTENDER/CELL, CONTENDER or /CELL; * matches any text. Write a cell as it is
    /// printed, or as its values: 50x128. Every contender that matches a pattern is measured in every
    /// cell that matches one. A pattern that matches nothing is an error
    #[arg(long, value_name = "CONTENDER/CELL,…", value_delimiter = ',', value_parser = parse_pattern)]
    only: Vec<String>,
    /// Where results go
    ///
    /// An interrupted run resumes from the results there [default: a new directory, lab-results/DATE-NAME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write every figure as JSON
    ///
    /// An array with a report for each suite or comparison, to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// The seed for the order of slices and the payload
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print every figure, not only the deciding ones
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    cores: CoreArgs,
    #[command(flatten)]
    servers: ServerArgs,
}

pub(super) fn run(args: RunArgs) -> Result<ExitCode> {
    let options = args.options()?;
    args.servers.check(&args.names)?;
    let server_comparison = || subject::server_comparison(&args.servers, &args.names, &options);
    let servers = args.servers.are_given().then(server_comparison).transpose()?;
    let names = if servers.is_some() { Vec::new() } else { args.named()? };
    let directory = args.directory(servers.as_ref());
    let mut failed = Vec::new();
    let mut open: Vec<Subject> = servers.into_iter().collect();
    for name in &names {
        match subject::named(name, &options) {
            Ok(subject) => open.push(subject),
            Err(error) if names.len() == 1 || error.is::<UsageError>() => return Err(error),
            Err(error) => failed.push(report_failure(name, error)),
        }
    }
    if failed.is_empty() {
        let setups: Vec<&Setup> = open.iter().map(|subject| &subject.setup).collect();
        options.only.check(&setups)?;
    }
    let _lock = take_lock()?;
    // An unwritable path is reported before the measurement.
    let json = args.json.clone().map(Target::open).transpose()?;
    let mut output = Output::new(json.as_ref(), args.verbose);
    let decided = measure_all((open, &mut output), &directory, &mut failed)?;
    page::write_beside(&directory)?;
    output::deliver(json, &output.reports, None)?;
    if let Some(status) = interrupt::status() {
        note_resuming(&directory);
        return Ok(status.into());
    }
    if !failed.is_empty() {
        bail!("failed: {}; the results are in {}", failed.join(", "), directory.display());
    }
    note(format_args!("annulus: the results are in {}", directory.display()));
    Ok(if decided { ExitCode::SUCCESS } else { UNDECIDED_STATUS.into() })
}

/// How to show the results of comparisons, and the reports of those that were measured.
struct Output {
    prints_text: bool,
    is_verbose: bool,
    reports: Vec<Report>,
}

impl Output {
    /// Text is printed unless JSON goes to standard output.
    fn new(json: Option<&JsonFile>, is_verbose: bool) -> Output {
        let prints_text = !json.is_some_and(JsonFile::is_stdout);
        Output { prints_text, is_verbose, reports: Vec::new() }
    }
}

/// Measures one comparison. The results are kept only if `out` names a directory.
pub(super) fn measure_one(
    setup: Setup,
    out: Option<PathBuf>,
    (json, is_verbose): (Option<Target>, bool),
) -> Result<ExitCode> {
    let _lock = take_lock()?;
    // An unwritable path is reported before the measurement.
    let json = json.map(Target::open).transpose()?;
    let mut output = Output::new(json.as_ref(), is_verbose);
    let scratch = Scratch::within(&env::temp_dir())?;
    let directory = out.as_deref().unwrap_or(scratch.path());
    let is_compared = setup.contenders.len() > 1;
    let subject = Subject { name: setup.plan.name.clone(), setup, suite: None };
    let done = measure((subject, &mut output), directory, (1, 1), Duration::ZERO)?;
    output::deliver(json, &output.reports.first(), None)?;
    if out.is_some() {
        page::write_beside(directory)?;
    }
    scratch.remove()?;
    match (done.failure, interrupt::status()) {
        (Some(failure), _) => bail!(failure),
        (None, Some(status)) => Ok(status.into()),
        (None, None) if is_compared && !done.is_decided => Ok(UNDECIDED_STATUS.into()),
        (None, None) => Ok(ExitCode::SUCCESS),
    }
}

/// Measures the comparisons of which `name` consists, without printing their reports. Returns the
/// directory with the results, and the exit status if not everything was measured.
pub(super) fn measure_rows(
    subjects: Vec<Subject>,
    out: Option<PathBuf>,
    name: &str,
) -> Result<(PathBuf, Option<ExitCode>)> {
    let directory = out.unwrap_or_else(|| new_directory(name));
    let _lock = take_lock()?;
    let mut output = Output { prints_text: false, is_verbose: false, reports: Vec::new() };
    let mut failed = Vec::new();
    measure_all((subjects, &mut output), &directory, &mut failed)?;
    page::write_beside(&directory)?;
    if let Some(status) = interrupt::status() {
        note_resuming(&directory);
        return Ok((directory, Some(status.into())));
    }
    note(format_args!("annulus: the results are in {}", directory.display()));
    Ok((directory, (!failed.is_empty()).then_some(ExitCode::FAILURE)))
}

/// Says how to resume, unless nothing has been measured.
fn note_resuming(directory: &Path) {
    if directory.exists() {
        let directory = directory.display();
        note(format_args!("annulus: to resume, run the same command with --out {directory}"));
    }
}

/// Prints why a comparison or one of its slices failed, and returns its name for the list of failed
/// ones.
fn report_failure(name: &str, why: impl Display) -> String {
    let why = format!("{why:#}");
    let named = if begins_with(&why, name) { String::new() } else { format!("{name}: ") };
    note(format_args!("annulus: {named}{why}"));
    name.to_owned()
}

/// Adds the name of a comparison to an error, unless the error begins with it: a comparison of one
/// server has the server's name.
fn error_of(name: &str, error: anyhow::Error) -> anyhow::Error {
    if begins_with(&error.to_string(), name) { error } else { error.context(name.to_owned()) }
}

fn begins_with(text: &str, name: &str) -> bool {
    text.strip_prefix(name).is_some_and(|rest| rest.starts_with(':'))
}

/// Measures every comparison, and adds the names of failed ones to `failed`.
/// Returns true if `subjects` is empty, or if [`MeasureOutcome::is_decided`] is true for any of
/// them.
fn measure_all(
    (subjects, output): (Vec<Subject>, &mut Output),
    directory: &Path,
    failed: &mut Vec<String>,
) -> Result<bool> {
    let (of, mut decided) = (subjects.len(), subjects.is_empty());
    let mut later: Duration = subjects.iter().map(|subject| subject.setup.cost()).sum();
    if of > 1 {
        note(format_args!("annulus: {of} to measure, about {} or more", duration::shown(later)));
    }
    for (index, subject) in subjects.into_iter().enumerate() {
        later = later.saturating_sub(subject.setup.cost());
        let name = subject.name.clone();
        match measure((subject, &mut *output), directory, (index + 1, of), later) {
            Ok(MeasureOutcome { failure, is_decided }) => {
                decided |= is_decided;
                failed.extend(failure.map(|why| report_failure(&name, why)));
            }
            Err(error) if of == 1 || error.is::<UsageError>() => return Err(error),
            Err(error) => failed.push(report_failure(&name, error)),
        }
        if interrupt::status().is_some() {
            break;
        }
    }
    Ok(decided)
}

struct MeasureOutcome {
    /// Why the first failed slice failed.
    failure: Option<String>,
    /// Whether a verdict is decided. Also true for published tables, and if there are no verdicts.
    is_decided: bool,
}

/// Measures a comparison and prints its report. If it is already finished, nothing is measured
/// again. Existing results of a different comparison are an error.
fn measure(
    (subject, output): (Subject, &mut Output),
    directory: &Path,
    (number, of): (usize, usize),
    later: Duration,
) -> Result<MeasureOutcome> {
    let Subject { name, setup, mut suite } = subject;
    let path = results::path_of(directory, &name);
    let known = path.exists().then(|| Results::read(&path)).transpose()?;
    known.as_ref().map_or(Ok(()), |results| results.check_same_run(&setup))?;
    if let Some(results) = known.as_ref().filter(|results| results.is_finished()) {
        note(format_args!("annulus: {} is finished: remove it to measure again", path.display()));
        return deliver(results, output);
    }
    let known = known.map_or(0, |results| results.record().slices().len());
    let prepared = match setup.prepare() {
        // A signal ends the preparation early, so some contenders may be missing.
        _ if interrupt::status().is_some() => {
            return Ok(MeasureOutcome { failure: None, is_decided: false });
        }
        prepared => prepared.map_err(|error| error_of(&name, error))?,
    };
    match &mut suite {
        Some(run) => run.prepared(&prepared.bench),
        None => prepared
            .bench
            .contenders
            .missing
            .iter()
            .for_each(|why| note(format_args!("annulus: {why}"))),
    }
    let title = if of > 1 { format!("{name} ({number} of {of})") } else { name };
    let mut progress = Progress::new(title, known, later);
    let results = results::measure(prepared, suite, &path, &mut progress)?;
    drop(progress);
    deliver(&results, output)
}

/// Prints the tables of a suite or the report of a comparison, and keeps the report.
fn deliver(results: &Results, output: &mut Output) -> Result<MeasureOutcome> {
    let report = results.report();
    let suite = results.suite();
    if output.prints_text {
        output::print(&match &suite {
            Some(suite) => tables::text(suite),
            None => report_text(&report, output.is_verbose),
        })?;
    }
    if let Some(suite) = suite.filter(SuiteReport::is_empty) {
        bail!("suite {}: no cell could be measured here", suite.name);
    }
    let mut verdicts = report.verdicts.iter();
    let is_decided = results.suite().is_some()
        || report.verdicts.is_empty()
        || verdicts.any(|found| found.verdict.is_decided());
    let failure = report.failures().next();
    output.reports.push(report);
    Ok(MeasureOutcome { failure, is_decided })
}

impl RunArgs {
    fn options(&self) -> Result<Options> {
        Ok(Options {
            quick: self.quick || self.names.iter().any(|name| name == subject::QUICK_SUBJECTS),
            rounds: self.rounds,
            seed: self.seed,
            cores: self.cores.choose()?,
            precision: self.precision.map(|half_width| (half_width, max_rounds(self.rounds))),
            max_time: Some(self.max_time.unwrap_or(subject::MAX_TIME)),
            only: Selection::new(self.only.iter().map(String::as_str)),
        })
    }

    /// Returns true if the names contain `all` or `quick`.
    fn is_all(&self) -> bool {
        self.names
            .iter()
            .any(|name| [subject::ALL_SUBJECTS, subject::QUICK_SUBJECTS].contains(&name.as_str()))
    }

    /// Returns the named subjects. A duplicate is an error.
    fn named(&self) -> Result<Vec<String>, UsageError> {
        match self.names.as_slice() {
            [_] if self.is_all() => Ok(Description::names().map(str::to_owned).collect()),
            names if self.is_all() => {
                let text = format!("{}: give all or quick without other names", names.join(" "));
                Err(UsageError(text))
            }
            names => {
                distinct(names, |name| format!("'{name}'"))?;
                Ok(names.to_vec())
            }
        }
    }

    /// Returns the directory for the results: the given one, or a new one.
    fn directory(&self, servers: Option<&Subject>) -> PathBuf {
        if let Some(out) = &self.out {
            return out.clone();
        }
        let stem = |name: &String| {
            let file = Path::new(name).file_name()?.to_string_lossy().into_owned();
            Some(file.trim_end_matches(".toml").to_owned())
        };
        let names: Vec<String> = match servers {
            Some(servers) => vec![servers.name.clone()],
            None => self.names.iter().filter_map(stem).collect(),
        };
        new_directory(&names.join("+").replace(':', "-"))
    }
}

/// Returns the path of a directory for results that does not exist yet.
fn new_directory(name: &str) -> PathBuf {
    let date = jiff::Timestamp::now().strftime("%F");
    let first = format!("{date}-{name}");
    let others = (2..).map(|number| format!("{first}-{number}"));
    let mut all = [first.clone()].into_iter().chain(others);
    let free = all.find(|name| !Path::new(RESULTS_PARENT).join(name).exists());
    Path::new(RESULTS_PARENT).join(free.unwrap_or(first))
}
