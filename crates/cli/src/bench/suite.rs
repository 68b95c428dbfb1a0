//! `annulus bench suite`: published tables, measured again.

use super::args::Pins;
use super::echo::catalogue;
use super::results::machine;
use super::run::{OutputArgs, RunLock};
use crate::output;
use crate::text::{table, wrapped};
use crate::usage::UsageError;
use annulus_lab::cores::Cores;
use annulus_lab::suite::{Plan, Run, SuiteReport, Suites};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::env;
use std::process::ExitCode;

const EXPLAIN: &str = "\
A suite is a file in suites/: the tables of a document, with the published
figures and with the parameters of each cell. All of its servers run, and are
measured in turn in short slices, round after round. The tables are printed as in
the document, the published figures above the measured ones. What is missing here
is a dash, with a line that says why and how to get it.

Absolute figures of different machines cannot be compared: compare within a
table, and between servers of one run.

Examples:
  annulus bench suite --list
  annulus bench suite nop --quick           about a minute
  annulus bench suite tcp --json tcp.json";

/// Measure a published table again
#[derive(Args, Debug)]
#[command(after_help = EXPLAIN)]
pub(crate) struct SuiteArgs {
    /// The name of a suite
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// List the suites
    #[arg(long, exclusive = true)]
    list: bool,
    /// Shorten it to about a minute: fewer cells, shorter slices, fewer rounds
    #[arg(long)]
    quick: bool,
    /// How often each server is measured in each cell [default: 15; quick: 3]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: Option<u64>,
    #[command(flatten)]
    pins: Pins,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: SuiteArgs) -> Result<ExitCode> {
    let here = env::current_dir().context("cannot read the current directory")?;
    let suites = Suites::find(&here)
        .context("no directory 'suites' here or above: run this within the repository")?;
    match &args.name {
        Some(name) if !args.list => measure(&suites, name, &args),
        _ => list(&suites).map(|()| ExitCode::SUCCESS),
    }
}

fn list(suites: &Suites) -> Result<()> {
    for name in suites.names() {
        let suite = suites.read(&name)?;
        output::print(&format!("{name:<12} {} ({})\n", suite.title, suite.document))?;
    }
    Ok(())
}

fn measure(suites: &Suites, name: &str, args: &SuiteArgs) -> Result<ExitCode> {
    let names = suites.names();
    if !names.iter().any(|known| known == name) {
        let all = names.join(", ");
        return Err(UsageError(format!("no suite '{name}': there are {all}")).into());
    }
    let suite = suites.read(name)?;
    let plan = Plan {
        cores: args.pins.choose()?,
        quick: args.quick,
        rounds: args.rounds.unwrap_or(if args.quick { 3 } else { 15 }) as usize,
        seed: args.output.seed,
    };
    let lock = RunLock::take(args.output.json.clone())?;
    let mut run = Run::new(name, &suite, plan);
    let prepared = run.prepare(catalogue()).with_context(|| format!("suite {name}"))?;
    let report = run.report(&lock.measure(prepared, |report| run.report(report))?);
    lock.deliver(&report, || text(&report))?;
    if report.is_empty() {
        bail!("suite {name}: nothing of it could be measured here");
    }
    Ok(lock.status())
}

/// The tables of the document, with the published figures above the measured ones.
fn text(report: &SuiteReport) -> String {
    let mut text = heading(report);
    for one in &report.tables {
        let unit = if one.unit.is_empty() { String::new() } else { format!(", {}", one.unit) };
        text += &format!("\n{}", wrapped("", &format!("{}{unit}", one.title)));
        text += &table(2, &one.lines());
        text += &one.caption.iter().map(|caption| wrapped("", caption)).collect::<String>();
    }
    let blank = if report.notes.is_empty() { "" } else { "\n" };
    text + blank + &report.notes.iter().map(|note| wrapped("! ", note)).collect::<String>()
}

fn heading(report: &SuiteReport) -> String {
    let SuiteReport { name, suite, plan, comparison, .. } = report;
    let Plan { cores: Cores { server, load }, quick, rounds, seed } = plan;
    let quick = if *quick { ", quick: fewer rounds, shorter slices" } else { "" };
    let machine = machine(&comparison.environment);
    let measured = format!(
        "annulus bench suite {name}{quick}: {rounds} rounds, servers on core {server}, load on \
         core {load}; {machine}; seed {seed}"
    );
    [
        wrapped("", &format!("{} ({})", suite.title, suite.document)),
        wrapped("published: ", &suite.machine.join("; ")),
        wrapped("measured:  ", &measured),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::COLUMNS;
    use annulus_lab::suite::{Measured, RowReport, TableReport};

    fn report(name: &str, servers: &[Option<&str>]) -> TableReport {
        let line = |(n, server): (usize, &Option<&str>)| Measured {
            server: server.map(str::to_owned),
            figures: vec![Some(1000.0 * (n + 1) as f64), None],
        };
        let row = |name: &str, published| RowReport {
            name: name.into(),
            decimals: vec![0, 1],
            published,
            measured: servers.iter().enumerate().map(line).collect(),
        };
        TableReport {
            title: "a table".into(),
            unit: "requests/s".into(),
            corner: "clients".into(),
            caption: None,
            columns: vec!["1".into(), "rate".into()],
            rows: vec![row(name, vec![Some(90209.0), Some(54.25)]), row("ours", vec![None, None])],
        }
    }

    #[test]
    fn published_figures_are_above_the_measured_ones() {
        let text = table(2, &report("128", &[Some("uring"), Some("epoll")]).lines());
        let expected = "\
clients                  1  rate
128      published  90,209  54.2
         uring       1,000     –
         epoll       2,000     –
ours     uring       1,000     –
         epoll       2,000     –
";
        assert_eq!(text, expected);
    }

    #[test]
    fn long_names_are_wrapped_and_servers_of_columns_are_measured() {
        let text = table(2, &report("go-uring + amd64_atomic tag", &[None]).lines());
        assert!(text.contains("tag\n") && text.contains("\nours "), "{text}");
        assert!(text.contains("  published  90,209  54.2\n"), "{text}");
        assert!(text.contains("  measured    1,000     –\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }
}
