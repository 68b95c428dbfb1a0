//! Subjects to measure, found by name.

use super::echo::catalogue;
use super::servers::{self, SLICE_TIME, ServerArgs};
use crate::usage::UsageError;
use annulus_lab::bench::{Precision, Rounds};
use annulus_lab::cores::Cores;
use annulus_lab::describe::{Description, MissingPolicy, Selection, Setup};
use annulus_lab::suite;
use annulus_load::stats::{rounds_for, shared_miss};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;

const SUITE_ROUNDS: u64 = 15;
/// The number of rounds by which a quick suite decides how many cells it has time for: what the
/// verdicts of 28 cells need. Fewer cells then have fewer rounds.
const QUICK_SUITE_ROUNDS: u64 = 10;

/// How long a slice of a comparison of programs is measured if its clients allow it. Many short
/// slices say more than few long ones.
const SHORT_SLICE_TIME: Duration = Duration::from_millis(250);

/// The time after which undecided cells get no further rounds.
pub(super) const MAX_TIME: Duration = Duration::from_secs(30 * 60);

const QUICK_SWEEP_ROUNDS: u64 = 3;

/// The name for every suite and every comparison of programs.
pub(super) const ALL_SUBJECTS: &str = "all";
/// The name for all subjects, each shortened to a few minutes.
pub(super) const QUICK_SUBJECTS: &str = "quick";

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) quick: bool,
    pub(super) rounds: Option<u64>,
    pub(super) seed: u64,
    pub(super) cores: Cores,
    /// Half the width of intervals to reach, and the maximum number of rounds.
    pub(super) precision: Option<(f64, u64)>,
    /// How long a comparison of the lab may take, at most, to decide its cells. Without it, they
    /// have a fixed number of rounds.
    pub(super) max_time: Option<Duration>,
    pub(super) only: Selection,
}

/// A comparison to measure.
#[derive(Debug)]
pub(super) struct Subject {
    /// The name of the comparison and of its results file.
    pub(super) name: String,
    pub(super) setup: Setup,
    /// `None` for a plain comparison. A suite measures the tables of a published document again.
    pub(super) suite: Option<suite::SuiteRun>,
}

/// Sets up the comparison that a command-line word refers to: a file, or one that comes with the
/// lab.
///
/// # Errors
/// If the name is unknown (the error lists all names), if the file cannot be read or is invalid, or
/// if the selection leaves no contender or no cell.
pub(super) fn named(word: &str, options: &Options) -> Result<Subject> {
    let is_file = word.contains('/') || word.ends_with(".toml");
    let (name, described) = match is_file {
        true => (stem(word)?, Description::read(Path::new(word))?),
        false => (word.to_owned(), Description::find(word).ok_or_else(|| unknown(word))?),
    };
    let is_of_lab = !is_file || matches!(described, Description::Suite(_));
    let (mut setup, mut suite) = match described {
        Description::Suite(suite) => {
            let mut run = suite::SuiteRun::new(&name, suite, options.suite_plan());
            let setup = run.setup(catalogue()).with_context(|| format!("suite {name}"))?;
            (setup, Some(run))
        }
        Description::Comparison(comparison) => {
            let time = match !is_file && comparison.allows_short_slices() {
                true => SHORT_SLICE_TIME,
                false => SLICE_TIME,
            };
            let mut setup = servers::comparison_setup(comparison, time, options);
            setup.named_by_user = is_file;
            if !is_file {
                setup.plan.name = format!("programs {name}");
                setup.plan.rounds = Rounds::fixed(setup.plan.rounds.least);
                setup.missing = MissingPolicy::LeaveOut;
            }
            (setup, None)
        }
    };
    options.adjust(&mut setup, suite.as_mut())?;
    if is_of_lab {
        options.until_decided(&mut setup);
    }
    Ok(Subject { name, setup, suite })
}

fn unknown(word: &str) -> UsageError {
    let words: Vec<&str> = Description::names().collect();
    UsageError(format!(
        "unknown name '{word}': known names are {ALL_SUBJECTS}, {QUICK_SUBJECTS}, {}; or give the path of a file",
        words.join(", ")
    ))
}

/// Sets up the comparison of servers given on the command line.
///
/// # Errors
/// If a server or an option is invalid, or if the selection leaves no contender or no cell.
pub(super) fn server_comparison(
    args: &ServerArgs,
    names: &[String],
    options: &Options,
) -> Result<Subject> {
    let mut setup = args.setup(names, options)?;
    let name = setup.plan.name.clone();
    options.adjust(&mut setup, None)?;
    Ok(Subject { name, setup, suite: None })
}

impl Options {
    /// Applies the selection, the quick cells, the rounds and the precision.
    fn adjust(&self, setup: &mut Setup, suite: Option<&mut suite::SuiteRun>) -> Result<()> {
        setup.select(&self.only)?;
        if let Some(run) = suite {
            run.shorten(setup);
        }
        // A cell that was selected is measured even if a quick run would leave it out.
        let is_thinned = self.quick && !self.only.names_cells();
        if is_thinned && setup.loads.iter().any(|load| load.is_quick) {
            setup.loads.retain(|load| load.is_quick);
        }
        let needed = rounds_for(shared_miss(setup.loads.len())) as u64;
        let needed = if setup.sweep.is_some() { QUICK_SWEEP_ROUNDS } else { needed };
        let quick = self.quick.then_some(needed);
        if setup.sweep.is_some() && self.precision.is_some() {
            let text = "--precision is for ratios, which a sweep does not have: choose --rounds";
            return Err(UsageError(text.into()).into());
        }
        let plan = &mut setup.plan;
        if let Some(rounds) = self.rounds.or(quick) {
            plan.rounds = Rounds::fixed(rounds as usize);
        }
        if let Some((half_width, most)) = self.precision {
            plan.rounds.most = plan.rounds.least.max(most as usize);
            // The metric is filled in when the comparison is prepared.
            plan.rounds.precision = Some(Precision { metric: String::new(), half_width });
        }
        Ok(())
    }

    /// Plans further rounds for cells whose verdict is undecided, within the time, unless the
    /// number of rounds or the precision was chosen.
    fn until_decided(&self, setup: &mut Setup) {
        let is_chosen = self.quick || self.rounds.is_some() || self.precision.is_some();
        let Some(time) = self.max_time.filter(|_| !is_chosen && setup.sweep.is_none()) else {
            return;
        };
        setup.decide_within(time);
    }

    fn suite_plan(&self) -> suite::SuitePlan {
        let usual = if self.quick { QUICK_SUITE_ROUNDS } else { SUITE_ROUNDS };
        suite::SuitePlan {
            cores: self.cores,
            quick: self.quick,
            rounds: self.rounds.unwrap_or(usual) as usize,
            seed: self.seed,
        }
    }
}

fn stem(path: &str) -> Result<String> {
    let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str());
    Ok(stem.ok_or_else(|| UsageError(format!("'{path}' is not the path of a file")))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Options {
        Options {
            quick: false,
            rounds: None,
            seed: 1,
            cores: Cores::new(0, 0),
            precision: None,
            max_time: Some(MAX_TIME),
            only: Selection::default(),
        }
    }

    #[test]
    fn every_report_says_that_cores_were_kept_awake() {
        let cores = Cores { are_awake: true, ..usual().cores };
        for name in Description::names() {
            let found = named(name, &Options { cores, ..usual() }).expect(name);
            let shown = format!("{:?}", found.setup.shown);
            assert!(shown.contains(", cores kept awake"), "{name}: {shown}");
        }
    }

    #[test]
    fn undecided_cells_get_more_rounds_within_the_time_unless_rounds_are_chosen() {
        let setup = |options| named("tcp", &options).expect("tcp cannot be set up").setup;
        let within = |setup: &Setup, rounds: usize| {
            let mut setup = setup.clone();
            setup.plan.rounds = Rounds::fixed(rounds);
            setup.cost() <= MAX_TIME
        };
        let found = setup(usual());
        let Rounds { least, most, until_decided, .. } = found.plan.rounds;
        assert!(until_decided && least >= 12 && most > 2 * least, "{least}, {most}");
        assert!(within(&found, most) && !within(&found, most + 1), "{most} rounds");
        for options in [
            Options { rounds: Some(20), ..usual() },
            Options { max_time: None, ..usual() },
            Options { quick: true, ..usual() },
            Options { precision: Some((0.03, 100)), ..usual() },
        ] {
            let rounds = setup(options.clone()).plan.rounds;
            assert!(!rounds.until_decided, "{options:?}");
        }
    }

    #[test]
    fn quick_run_measures_selected_cells_that_it_would_leave_out() {
        let cells = |patterns: &[&str]| {
            let only = Selection::new(patterns.iter().copied());
            let options = Options { quick: true, only, ..usual() };
            named("arrival", &options).expect("the selection is invalid").setup.loads.len()
        };
        assert_eq!(cells(&[]), 5, "a quick run leaves out burst-4");
        assert_eq!(cells(&["/burst-4x*", "/burst-16x*"]), 2);
        assert_eq!(cells(&["/burst-4x*"]), 1);
    }
}
