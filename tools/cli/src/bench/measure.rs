//! `annulus bench NAME`: measures comparisons by name, and keeps the results.

use super::args::Pins;
use super::echo::parse_precision;
use super::page;
use super::results::report_text;
use super::run::{Progress, RunLock};
use super::servers::ServerArgs;
use super::subject::{self, Options, Subject};
use super::tables;
use crate::duration;
use crate::output::{self, Target, note};
use crate::usage::UsageError;
use annulus_lab::describe::{Description, Selection, Setup};
use annulus_lab::distinct;
use annulus_lab::results::{self, COMPRESSED_EXTENSION, EXTENSION, Results};
use annulus_lab::scratch::Scratch;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The parent of the directories of results.
const RESULTS_PARENT: &str = "lab-results";

/// The exit status of a run in which nothing is decided.
const UNDECIDED_STATUS: u8 = 3;

pub(super) const AFTER_HELP: &str = "\
Every slice is in the file DIR/NAME.jsonl as soon as it is measured. A run
that was interrupted, or killed, goes on from there if it is started again
with the same --out. At the end there are pages beside it, and an index.html
(annulus bench page); annulus bench serve shows them before. What is missing
here, such as a toolchain, is left out and named.

A file with kind and [[table]] is a suite: the tables of a document, with the
published figures and with the parameters of each cell. All of its servers run, and are
measured in turn in short slices, round after round. Its tables are printed as
in the document, the published figures above the measured ones. Absolute
figures of different machines cannot be compared: compare within a table.

With --load or --load-command, servers of your own are compared. A server is a
command that starts it, split as a shell does, or the HOST:PORT or unix:/path
of one that runs. In commands, {port} is a free port and {dir} an empty
directory; in loads, {port} and {address} are the server's, and {path} that of
its Unix socket. A server is ready once it accepts connections. It must stay in
the foreground, and ends with the run, with all that it has started. CPU time
is that of all its processes; of one that runs already it is known if it is
this user's. The first server is measured twice as a control. A file with
[[server]] and [[load]] is the same; those in tools/lab/catalogue are examples.

A pattern of --only is CONTENDER/CELL, CONTENDER or /CELL; * stands for any
text. A cell is written as it is printed, or as its values: 50x128. Every
contender that a pattern names is measured in every cell that one names.

Exit status: 0 everything was measured; 1 something failed, which the results
name, and the rest was measured; 2 wrong usage; 3 nothing is decided; 128 + N
ended by signal N.

Examples:
  annulus bench list
  annulus bench quick                     all, in about an hour
  annulus bench nop --quick               about a minute
  annulus bench http --only tokio,uring,/plain*
  annulus bench tcp udp --out results
  annulus bench tcp --only 'uring/50x*' --precision 0.02
  annulus bench my/suite.toml
  annulus bench 'python3 -m http.server {port}' 'busybox httpd -f -p {port}' \\
    --load 'http://127.0.0.1:{port}/' --connections 4
  annulus bench 127.0.0.1:8080 'caddy run' --port 8081 --connections 1,50 \\
    --load-command 'wrk -t1 -c {connections} -d {seconds} http://{address}/'
  annulus bench unix:/run/a unix:/run/b \\
    --load 'http://localhost/ --unix-socket {path}'";

/// The subjects of a run, and how they are measured.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// Suites, comparisons of programs, or files; all, or quick for all in a short
    /// run each; with --load servers
    #[arg(required = true, value_name = "NAME|FILE|COMMAND")]
    names: Vec<String>,
    /// Shorten each to a minute or a few: fewer cells, shorter slices, fewer
    /// rounds
    #[arg(long)]
    quick: bool,
    /// How often each contender is measured in each cell [default: 15, of
    /// servers of your own up to 30, until intervals are within ± 3 %; quick: as
    /// often as a verdict needs]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: Option<u64>,
    /// Measure further rounds until half the width of every interval of what
    /// decides is at most this, such as 0.03
    #[arg(long, value_name = "RATIO", value_parser = parse_precision)]
    precision: Option<f64>,
    /// The most rounds that --precision may take
    #[arg(long, value_name = "COUNT", default_value_t = 100, requires = "precision",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds_max: u64,
    /// Measure only these contenders and cells
    #[arg(long, value_name = "CONTENDER/CELL,…", value_delimiter = ',')]
    only: Vec<String>,
    /// The directory of the results; a run that was interrupted goes on from
    /// what is there [default: a new one, lab-results/DATE-NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The seed of the order of slices and of the payload
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print every figure, not only what decides
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    pins: Pins,
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
            Err(error) => failed.push(report_failure(name, &error)),
        }
    }
    let lock = RunLock::take()?;
    let output = Output { json: None, is_verbose: args.verbose };
    let decided = measure_all((open, &output), &directory, &lock, &mut failed)?;
    page::write_beside(&directory)?;
    if lock.is_stopped() {
        note(format_args!("annulus: to go on, run the same with --out {}", directory.display()));
        return Ok(lock.status());
    }
    if !failed.is_empty() {
        bail!("failed: {}; the results are in {}", failed.join(", "), directory.display());
    }
    note(format_args!("annulus: the results are in {}", directory.display()));
    Ok(if decided { ExitCode::SUCCESS } else { ExitCode::from(UNDECIDED_STATUS) })
}

/// How the results of a comparison are shown.
pub(super) struct Output {
    pub(super) json: Option<Target>,
    pub(super) is_verbose: bool,
}

/// Measures one comparison, whose results are kept only in a directory that is named.
pub(super) fn measure_one(setup: Setup, out: Option<PathBuf>, output: &Output) -> Result<ExitCode> {
    let lock = RunLock::take()?;
    // An unwritable path is reported before the measurement.
    output.json.clone().map(Target::open).transpose()?;
    let scratch = Scratch::within(&env::temp_dir())?;
    let directory = out.as_deref().unwrap_or(scratch.path());
    let is_compared = setup.contenders.len() > 1;
    let subject = Subject { name: setup.plan.name.clone(), setup, suite: None };
    let done = measure((subject, output), directory, &lock, (1, 1), Duration::ZERO)?;
    if out.is_some() {
        page::write_beside(directory)?;
    }
    scratch.remove()?;
    match done.failure {
        Some(failure) => bail!(failure),
        None if lock.is_stopped() => Ok(lock.status()),
        None if is_compared && !done.is_decided => Ok(ExitCode::from(UNDECIDED_STATUS)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Prints a failure; returns what failed.
fn report_failure(name: &str, error: &anyhow::Error) -> String {
    note(format_args!("annulus: {name}: {error:#}"));
    name.to_owned()
}

/// Measures every comparison that is not finished; adds the names of those that fail. Whether anything is decided.
fn measure_all(
    (subjects, output): (Vec<Subject>, &Output),
    directory: &Path,
    lock: &RunLock,
    failed: &mut Vec<String>,
) -> Result<bool> {
    let (of, mut decided) = (subjects.len(), subjects.is_empty());
    let mut later: Duration = subjects.iter().map(|subject| subject.setup.cost()).sum();
    if of > 1 {
        note(format_args!("annulus: {of} to measure, about {}", duration::shown(later)));
    }
    for (index, subject) in subjects.into_iter().enumerate() {
        later = later.saturating_sub(subject.setup.cost());
        let name = subject.name.clone();
        match measure((subject, output), directory, lock, (index + 1, of), later) {
            Ok(MeasureOutcome { failure, is_decided }) => {
                decided |= is_decided;
                failed.extend(failure.map(|_| name));
            }
            Err(error) if of == 1 || error.is::<UsageError>() => return Err(error),
            Err(error) => failed.push(report_failure(&name, &error)),
        }
        if lock.is_stopped() {
            break;
        }
    }
    Ok(decided)
}

/// How a comparison ended.
struct MeasureOutcome {
    /// The first slice that failed.
    failure: Option<String>,
    /// There is a verdict, or none is asked for: published tables are figures.
    is_decided: bool,
}

/// Measures a comparison, and prints its report. A finished one is left alone; one that differs from what is asked for is an error.
fn measure(
    (subject, output): (Subject, &Output),
    directory: &Path,
    lock: &RunLock,
    (number, of): (usize, usize),
    later: Duration,
) -> Result<MeasureOutcome> {
    let Subject { name, setup, mut suite } = subject;
    // The ending is appended: a part of the name that follows a dot stays.
    let path =
        [EXTENSION, COMPRESSED_EXTENSION].map(|ending| directory.join(format!("{name}.{ending}")));
    let [plain, compressed] = path;
    let path = if compressed.exists() { compressed } else { plain };
    let known = path.exists().then(|| Results::read(&path)).transpose()?;
    known.as_ref().map_or(Ok(()), |results| results.check_same_run(&setup))?;
    let is_finished = known.as_ref().is_some_and(Results::is_finished);
    if is_finished {
        note(format_args!("annulus: {} is finished: remove it to measure again", path.display()));
        return Ok(MeasureOutcome { failure: None, is_decided: true });
    }
    let known = known.map_or(0, |results| results.record().slices().len());
    let prepared = setup.prepare().with_context(|| name.clone())?;
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
    let mut progress = Progress::new(lock, title, known, later);
    let results = results::measure(prepared, suite, &path, &mut progress)?;
    drop(progress);
    deliver(&results, output)
}

/// Prints the tables.
fn deliver(results: &Results, output: &Output) -> Result<MeasureOutcome> {
    let report = results.report();
    match results.suite() {
        Some(suite) => {
            output::print(&tables::text(&suite))?;
            if suite.is_empty() {
                bail!("suite {}: nothing of it could be measured here", suite.name);
            }
        }
        None => {
            let json = output.json.clone().map(Target::open).transpose()?;
            output::deliver(json, &report, Some(report_text(&report, output.is_verbose)))?;
        }
    }
    let mut verdicts = report.verdicts.iter();
    let is_decided = results.suite().is_some()
        || report.verdicts.is_empty()
        || verdicts.any(|found| found.verdict.is_decided());
    Ok(MeasureOutcome { failure: report.failures().next(), is_decided })
}

impl RunArgs {
    fn options(&self) -> Result<Options> {
        Ok(Options {
            quick: self.quick || self.names.iter().any(|name| name == subject::QUICK_SUBJECTS),
            rounds: self.rounds,
            seed: self.seed,
            cores: self.pins.choose()?,
            precision: self.precision.map(|half_width| (half_width, self.rounds_max)),
            only: Selection::new(self.only.iter().map(String::as_str)),
        })
    }

    /// Whether everything is named.
    fn is_all(&self) -> bool {
        self.names
            .iter()
            .any(|name| [subject::ALL_SUBJECTS, subject::QUICK_SUBJECTS].contains(&name.as_str()))
    }

    /// The named subjects, each once.
    fn named(&self) -> Result<Vec<String>, UsageError> {
        match self.names.as_slice() {
            [_] if self.is_all() => Ok(Description::names().map(str::to_owned).collect()),
            names if self.is_all() => {
                let text = format!("{}: all and quick stand alone", names.join(" "));
                Err(UsageError(text))
            }
            names => {
                distinct(names, |name| format!("'{name}'"))?;
                Ok(names.to_vec())
            }
        }
    }

    /// The directory of the results: the named one, or a new one.
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
        let date = jiff::Timestamp::now().strftime("%F");
        let first = format!("{date}-{}", names.join("+").replace(':', "-"));
        let others = (2..).map(|number| format!("{first}-{number}"));
        let mut all = [first.clone()].into_iter().chain(others);
        let free = all.find(|name| !Path::new(RESULTS_PARENT).join(name).exists());
        Path::new(RESULTS_PARENT).join(free.unwrap_or(first))
    }
}
