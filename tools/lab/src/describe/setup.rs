//! A comparison that is ready to be measured, whatever its kind.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Map, Value as Json};

use super::contender::Contender;
use super::load::Load;
use super::placement::Placement;
use crate::bench::{
    Cell, Metric, PERCENT_PARAMETER, Plan, Role, Rounds, SYSTEM_CALLS_KEY, Sweep, sweep_metrics,
};
use crate::cores::Cores;
use crate::peer::Peers;
use crate::process::START_TIMEOUT;
use crate::usage_error::UsageError;

/// The rounds of a sweep by default. Each round has thirteen cells per load: the peak and twelve
/// shares of it.
const SWEEP_ROUNDS: usize = 5;

/// The minimum and the maximum number of rounds of a cell that is measured until its verdict is
/// decided. With the maximum, half an interval is 0.8 % where two slices differ by 5 %.
const DECIDED_ROUNDS: [usize; 2] = [12, 400];

/// Checks that cells can be measured in a directory, and returns the name of its file system.
pub(crate) type DirectoryCheck = fn(&[Cell], &Path) -> Result<String>;

/// Contenders, their loads in every cell, and how to measure them.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The name, the rounds and the seed of the comparison.
    pub plan: Plan,
    /// The contenders, without the control. Some may be missing here.
    pub contenders: Vec<Contender>,
    /// The contender that ratios refer to, if it is measured; otherwise the first.
    pub baseline: Option<String>,
    /// The loads on the contenders, a cell each.
    pub loads: Vec<Load>,
    /// Files in the directory `{site}`, with their sizes in bytes.
    pub(crate) site: BTreeMap<String, u64>,
    /// How long clients that are programs run.
    pub(crate) time: Duration,
    /// The placement of servers and clients on the cores.
    pub(crate) placement: Placement,
    /// The cores of servers and load.
    pub cores: Cores,
    /// How long a server may take to be ready, unless it announces its address.
    pub start_timeout: Duration,
    pub(crate) peers: Option<Peers>,
    /// What happens to a missing contender.
    pub missing: MissingPolicy,
    /// Whether a user named the contenders, so that no name means annulus.
    pub named_by_user: bool,
    /// Further notes for the report.
    pub(crate) notes: Vec<String>,
    /// The number of rounds in which a process is measured before it is replaced.
    pub(crate) rounds_per_process: usize,
    /// How long the comparison may take, at most, to decide its verdicts. Without it, the number of
    /// rounds does not depend on verdicts.
    pub(crate) max_time: Option<Duration>,
    /// The number of open files that this process needs.
    pub(crate) files: u64,
    /// The sweep over rates; `None` unless the comparison is a sweep.
    pub sweep: Option<Sweep>,
    /// How long contenders idle before their memory is read again.
    pub idle: Option<Duration>,
    /// Checks the directory in which contenders use files.
    pub(crate) check: Option<DirectoryCheck>,
    /// How the figures are shown.
    pub shown: Presentation,
}

/// What happens to a missing contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPolicy {
    /// It is an error. In addition, each contender must answer each load before the first round.
    Refuse,
    /// It is left out and reported.
    LeaveOut,
    /// It is left out and reported, and so is a contender that does not build or start.
    LeaveOutBroken,
}

/// How the figures of a comparison are shown.
#[derive(Clone, Debug)]
pub struct Presentation {
    /// The kind of comparison, in one word.
    pub kind: &'static str,
    /// The title of the comparison, if it has one.
    pub title: Option<String>,
    pub(crate) terms: String,
    pub(crate) legend: String,
    pub(crate) metrics: Vec<Metric>,
    pub(crate) parameters: Map<String, Json>,
}

impl Setup {
    /// Creates a comparison without contenders and loads. Missing contenders are left out, and a
    /// process is measured in all rounds.
    pub(crate) fn new(
        plan: Plan,
        time: Duration,
        cores: Cores,
        peers: Option<Peers>,
        shown: Presentation,
    ) -> Setup {
        Setup {
            plan,
            contenders: Vec::new(),
            baseline: None,
            loads: Vec::new(),
            site: BTreeMap::new(),
            time,
            placement: Placement::Apart,
            cores,
            start_timeout: START_TIMEOUT,
            peers,
            missing: MissingPolicy::LeaveOut,
            named_by_user: false,
            notes: Vec::new(),
            rounds_per_process: usize::MAX,
            max_time: None,
            files: 0,
            sweep: None,
            idle: None,
            check: None,
            shown,
        }
    }

    /// Turns the comparison, whose loads are those of [`Load::sweep`], into a sweep over rates.
    pub fn sweep(&mut self, sweep: Sweep) {
        self.plan.rounds = Rounds::fixed(SWEEP_ROUNDS);
        self.shown.metrics = sweep_metrics();
        self.shown.terms += ", at shares of each peak";
        self.shown.legend = "; the control has the rates of the first server".into();
        self.sweep = Some(sweep);
    }

    /// Returns the names of the contenders.
    pub fn names(&self) -> Vec<String> {
        self.contenders.iter().map(|one| one.name.clone()).collect()
    }

    /// Returns the name, the rounds and the seed. A precision without a metric applies to the
    /// primary metric.
    pub(crate) fn plan(&self) -> Plan {
        let mut plan = self.plan.clone();
        let primary = self.shown.metrics.iter().find(|metric| metric.role == Role::Primary);
        let precision = plan.rounds.precision.as_mut().filter(|one| one.metric.is_empty());
        if let (Some(precision), Some(metric)) = (precision, primary) {
            precision.metric.clone_from(&metric.key);
        }
        plan
    }

    /// Removes the contenders and cells that are not selected.
    ///
    /// # Errors
    /// If no contender or no cell is left (the error lists the available ones), or if a sweep loses
    /// the peak that its rates refer to.
    pub fn select(&mut self, only: &Selection) -> Result<()> {
        let name = &self.plan.name;
        let missing = |what: &str, all: Vec<String>| {
            UsageError(format!("{name}: no {what} matches: choose from {}", all.join(", ")))
        };
        let (names, cells) = (self.names(), self.loads.iter().map(|load| load.cell.to_string()));
        let (names, cells) = (missing("contender", names), missing("cell", cells.collect()));
        self.contenders.retain(|one| only.has_contender(&one.name));
        self.loads.retain(|load| only.has_cell(&load.cell));
        ensure!(!self.contenders.is_empty(), names);
        ensure!(!self.loads.is_empty(), cells);
        let is_load = |cell: &Cell| self.loads.iter().any(|load| load.cell == *cell);
        let peaks = self.loads.iter().map(|load| load.cell.without(PERCENT_PARAMETER));
        let lost = peaks.into_iter().find(|peak| self.sweep.is_some() && !is_load(peak));
        if let Some(peak) = lost {
            let text = format!(
                "{name}: a sweep needs the peak, which its rates refer to: add '/{peak}' to --only"
            );
            return Err(UsageError(text).into());
        }
        Ok(())
    }

    /// Returns roughly how long the minimum number of rounds takes, without building peers.
    pub fn cost(&self) -> Duration {
        self.round_cost() * self.plan.rounds.least as u32 + self.fixed_cost()
    }

    /// Plans further rounds for cells whose verdict is undecided, within roughly this time. They are
    /// planned again when it is known which contenders and loads are missing.
    pub fn decide_within(&mut self, time: Duration) {
        let usual = self.plan.rounds.least;
        let [least, most] = DECIDED_ROUNDS;
        let most = usual.max(self.rounds_within(time).min(most));
        self.plan.rounds = Rounds::until_decided(least, most);
        self.max_time = Some(time);
    }

    /// Removes missing contenders and loads, and gives their time to the others.
    pub(crate) fn leave_out(&mut self, contenders: &[String], loads: &[Load]) {
        self.contenders.retain(|one| !contenders.contains(&one.name));
        self.loads = loads.to_vec();
        if let Some(time) = self.max_time {
            self.decide_within(time);
        }
    }

    /// Returns roughly how many rounds a run can have in this time.
    fn rounds_within(&self, time: Duration) -> usize {
        let round = self.round_cost().max(Duration::from_millis(1));
        (time.saturating_sub(self.fixed_cost()).as_nanos() / round.as_nanos()) as usize
    }

    fn round_cost(&self) -> Duration {
        let loads: Duration = self.loads.iter().map(|load| load.cost).sum();
        // The control is an additional contender.
        loads * (self.contenders.len() as u32 + 1)
    }

    /// Returns the cost that does not depend on the number of rounds: the idle time, and the
    /// additional slices of the first round that count system calls.
    fn fixed_cost(&self) -> Duration {
        let calls = if self.counts_calls() { self.round_cost() } else { Duration::ZERO };
        self.idle.unwrap_or_default() + calls
    }

    /// Returns true if the system calls of servers are counted.
    pub(crate) fn counts_calls(&self) -> bool {
        self.shown.metrics.iter().any(|metric| metric.key == SYSTEM_CALLS_KEY)
    }
}

/// The selected part of a comparison: every matching contender in every matching cell.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    contenders: Vec<String>,
    cells: Vec<String>,
}

impl Selection {
    /// Creates a selection from patterns `CONTENDER/CELL`, `CONTENDER` and `/CELL`, in which `*`
    /// matches any text. A cell is given by its name, such as `50 connections × 128 bytes`, or by
    /// its values, such as `50x128`.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Selection {
        let mut only = Selection::default();
        for pattern in patterns {
            let (contender, cell) = pattern.split_once('/').unwrap_or((pattern, ""));
            let given = |part: &str| (!part.is_empty()).then(|| part.to_owned());
            only.contenders.extend(given(contender));
            only.cells.extend(given(cell));
        }
        only
    }

    /// Returns true if the selection has patterns for cells.
    pub fn names_cells(&self) -> bool {
        !self.cells.is_empty()
    }

    /// Checks that each pattern selects something in one of these set-ups, to which the selection
    /// has been applied.
    ///
    /// # Errors
    /// If a pattern matches no contender or no cell.
    pub fn check(&self, setups: &[&Setup]) -> Result<(), UsageError> {
        let names = || setups.iter().flat_map(|setup| &setup.contenders).map(|one| &one.name);
        let cells = || setups.iter().flat_map(|setup| &setup.loads).map(|load| &load.cell);
        if let Some(contender) =
            self.contenders.iter().find(|pattern| !names().any(|name| matches(pattern, name)))
        {
            let text = format!(
                "--only: '{contender}' matches no contender; if it is a cell, write '/{contender}'"
            );
            return Err(UsageError(text));
        }
        match self.cells.iter().find(|pattern| !cells().any(|cell| is_cell(pattern, cell))) {
            None => Ok(()),
            Some(cell) => Err(UsageError(format!("--only: '/{cell}' matches no cell"))),
        }
    }

    fn has_contender(&self, name: &str) -> bool {
        self.contenders.is_empty() || self.contenders.iter().any(|pattern| matches(pattern, name))
    }

    /// Returns true if the cell is selected.
    pub(crate) fn has_cell(&self, cell: &Cell) -> bool {
        self.cells.is_empty() || self.cells.iter().any(|pattern| is_cell(pattern, cell))
    }
}

/// Returns true if a cell's name or its values match the pattern.
fn is_cell(pattern: &str, cell: &Cell) -> bool {
    matches(pattern, &cell.to_string()) || matches(pattern, &cell.job().replace(' ', "x"))
}

/// Returns true if a text matches the pattern, in which `*` matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let mut ends = (0..=text.len()).filter(|&at| text.is_char_boundary(at));
            ends.any(|at| matches(rest, &text[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Rounds;
    use crate::nop;

    fn setup() -> Setup {
        let plan = Plan { name: "nop".into(), rounds: Rounds::fixed(10), seed: 1 };
        let cores = Cores::new(0, 0);
        let mut setup = nop::BENCH.setup(plan, Duration::from_millis(50), cores, None);
        setup.contenders =
            nop::BENCH.contenders(&["ring", "task", "liburing"]).expect("a contender is unknown");
        setup.loads = nop::BENCH.loads([64, 128, 1024].map(nop::cell), Duration::from_millis(50));
        setup
    }

    #[test]
    fn a_star_in_a_pattern_matches_any_text() {
        for (pattern, text) in
            [("", ""), ("*", ""), ("a*c", "abc"), ("a*c", "ac"), ("*b*", "abc"), ("é*", "éé")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a", "ab"), ("a*c", "abcd"), ("*d*", "abc")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn every_named_contender_is_measured_in_every_named_cell() {
        let left = |patterns: &[&str]| {
            let mut setup = setup();
            setup.select(&Selection::new(patterns.iter().copied())).expect("nothing is left");
            let cells = setup.loads.iter().map(|load| load.cell.job()).collect::<Vec<_>>();
            (setup.names().join(" "), cells.join(" "))
        };
        assert_eq!(left(&[]), ("ring task liburing".into(), "64 128 1024".into()));
        assert_eq!(left(&["ring", "lib*/*4"]), ("ring liburing".into(), "64 1024".into()));
        assert_eq!(left(&["/128 entries"]), ("ring task liburing".into(), "128".into()));
    }

    #[test]
    fn an_empty_selection_lists_the_choices() {
        let error = |pattern| {
            let error = setup()
                .select(&Selection::new([pattern]))
                .expect_err("a pattern without a match was accepted");
            assert!(error.is::<UsageError>(), "{error}");
            error.to_string()
        };
        assert_eq!(error("rio"), "nop: no contender matches: choose from ring, task, liburing");
        assert!(error("/7").contains("no cell matches: choose from 64 entries, 128 entries,"));
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_an_error() {
        let check = |patterns: &[&str]| {
            let only = Selection::new(patterns.iter().copied());
            let mut setup = setup();
            setup.select(&only).expect("nothing is left");
            only.check(&[&setup]).map_err(|error| error.to_string())
        };
        assert_eq!(check(&["ring", "task", "/*4"]), Ok(()));
        let error = check(&["ring", "64"]).expect_err("a pattern without a match was accepted");
        assert_eq!(error, "--only: '64' matches no contender; if it is a cell, write '/64'");
        let error = check(&["/64", "/7"]).expect_err("a pattern without a match was accepted");
        assert_eq!(error, "--only: '/7' matches no cell");
    }

    #[test]
    fn cost_counts_every_slice_and_the_control() {
        assert_eq!(setup().cost(), Duration::from_millis(60) * 4 * 3 * 10);
    }

    #[test]
    fn missing_contenders_and_loads_leave_their_time_to_the_others() {
        let mut setup = setup();
        setup.decide_within(Duration::from_millis(60) * 4 * 3 * 40);
        assert_eq!(setup.plan.rounds.most, 40);
        let loads = setup.loads.clone();
        setup.leave_out(&["task".to_owned(), "liburing".to_owned()], &loads);
        assert_eq!((setup.names().join(" "), setup.plan.rounds.most), ("ring".to_owned(), 80));
        setup.leave_out(&[], &loads[..1]);
        assert_eq!((setup.loads.len(), setup.plan.rounds.most), (1, 240));
    }
}
