//! `annulus bench suite`: a published table, measured again.

mod echo;
mod file;
mod layout;
mod nop;
mod plan;
mod report;

use super::args::Pins;
use super::run::RunLock;
use super::session::{Desk, Rounds, Session};
use crate::output::{self, Target};
use crate::usage::Misuse;
use annulus_lab::bench::{Prepared, Report as Comparison};
use annulus_lab::contest::{self, Figures};
use annulus_lab::environment::Environment;
use annulus_lab::suite::{Kind, Question, Suite, Suites};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use plan::Plan;
use report::{Answers, Report};
use serde::Serialize;
use std::env;
use std::fmt::Display;
use std::process::ExitCode;

const EXPLAIN: &str = "\
A suite is a file in suites/: the tables of a document, with the figures that
were published and with what each cell needs. All of its servers are up, and
visited in turn in short slices, round after round; it prints the tables as the
document has them, the published figures above the measured ones. What cannot be
had here is a dash, with a line that says why and how to get it.

Absolute figures of another machine compare with nothing: compare within a
table, and between servers of one run.

Examples:
  annulus bench suite --list
  annulus bench suite nop --quick           about a minute
  annulus bench suite tcp --json tcp.json";

/// Measure a published table again
#[derive(Args, Debug)]
#[command(after_help = EXPLAIN)]
pub(crate) struct SuiteArgs {
    /// Which suite
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// List the suites, and do nothing else
    #[arg(long, exclusive = true)]
    list: bool,
    /// Shorten it to about a minute: fewer cells, shorter slices, fewer rounds
    #[arg(long)]
    quick: bool,
    /// How often each server is visited in each cell [default: 15; quick: 3]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: Option<u64>,
    #[command(flatten)]
    pins: Pins,
    /// Write everything as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// Decides the order of visits, what is sent, and the intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(args: SuiteArgs) -> Result<ExitCode> {
    let here = env::current_dir().context("cannot tell where this is")?;
    let suites = Suites::find(&here)
        .context("no folder 'suites' here or above: run this within the repository")?;
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
        return Err(Misuse(format!("no suite '{name}': there are {all}")).into());
    }
    let suite = suites.read(name)?;
    let plan = plan(args)?;
    let desk = Desk::take(args.json.clone())?;
    let environment = Environment::read();
    let run = Run { name, suite: &suite, plan: &plan, environment };
    let report = run.measure(&desk)?;
    desk.deliver(&report, || layout::of_report(&report))?;
    if report.is_empty() {
        bail!("suite {name}: nothing of it could be measured here");
    }
    Ok(desk.status())
}

fn plan(args: &SuiteArgs) -> Result<Plan> {
    let cores = args.pins.choose()?;
    let rounds = args.rounds.map(|rounds| rounds as usize);
    Ok(Plan { cores, quick: args.quick, rounds, seed: args.seed })
}

/// A suite, and how it is run.
struct Run<'a> {
    name: &'a str,
    suite: &'a Suite,
    plan: &'a Plan,
    environment: Environment,
}

impl Run<'_> {
    fn measure(&self, desk: &Desk) -> Result<Report> {
        match self.suite.kind {
            Kind::Echo | Kind::Connect | Kind::Udp => echo::measure(self, desk),
            Kind::Nop => nop::measure(self, desk),
            Kind::File => file::measure(self, desk),
        }
    }

    /// Measures, and answers every question by the report.
    fn carry_out(
        &self,
        lock: &RunLock,
        prepared: Prepared,
        mut answers: Answers,
        figure: fn(&Comparison, &Question, &str) -> Option<f64>,
    ) -> Result<Report> {
        prepared.bench.contenders.missing.iter().for_each(|why| answers.note(why.clone()));
        let answer = |report: &Comparison| {
            let mut answers = answers.clone();
            answers.fill(self.suite, |question, server| figure(report, question, server));
            answers.take_report(report);
            self.report(answers)
        };
        lock.measure(prepared, answer).map(|report| answer(&report))
    }

    /// Those that the suite names and this version has; the others are told.
    fn contenders<C: ValueEnum>(&self, answers: &mut Answers) -> Vec<C> {
        let names = plan::every(self.suite, |question| question.servers.clone());
        let known = names.into_iter().filter_map(|name| {
            let known = C::from_str(&name, false);
            known.map_err(|_| answers.note(format!("no contender '{name}' in this version"))).ok()
        });
        known.collect()
    }

    fn session<C: Clone, S>(&self, names: &[String], cells: &[C]) -> Session<C, S> {
        let rounds = Rounds { least: self.plan.rounds(), most: self.plan.rounds() };
        Session::new(names, cells, rounds, self.plan.seed)
    }

    /// Answers every question by a comparison that has ended, and takes over what it says beside.
    fn conclude<T: Serialize, C, F>(
        &self,
        mut answers: Answers,
        comparison: &contest::Report<T, C, F>,
        figure: impl Fn(&Question, &str) -> Option<f64>,
    ) -> Report
    where
        C: Clone + Display + Serialize,
        F: Figures<C> + Serialize,
    {
        answers.fill(self.suite, figure);
        let failures = comparison.failures();
        let failures =
            failures.map(|row| (format!("{} at {}", row.contender, row.cell), row.error.clone()));
        answers.take(&comparison.doubts, failures, comparison);
        self.report(answers)
    }

    fn report(&self, answers: Answers) -> Report {
        Report::new(self.name, self.suite, self.plan, self.environment.clone(), answers)
    }
}
