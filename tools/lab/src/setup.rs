//! Any comparison, ready to be measured: one definition for all benches, programs and suites.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::bench::{Cell, Plan, Prepared};
use crate::server_bench::Load;
use crate::usage::UsageError;
use crate::{echo, programs, server_bench};

/// A comparison of one of the kinds there are.
#[derive(Debug)]
pub enum Setup {
    /// Echo servers.
    Echo(Box<echo::Setup>),
    /// Programs that answer jobs.
    Programs(programs::Setup),
    /// Whole programs under clients.
    Servers(server_bench::Setup),
}

impl Setup {
    /// Its name, rounds and seed.
    pub fn plan(&self) -> &Plan {
        match self {
            Setup::Echo(setup) => &setup.plan,
            Setup::Programs(setup) => &setup.plan,
            Setup::Servers(setup) => &setup.plan,
        }
    }

    /// The same, to change it.
    pub fn plan_mut(&mut self) -> &mut Plan {
        match self {
            Setup::Echo(setup) => &mut setup.plan,
            Setup::Programs(setup) => &mut setup.plan,
            Setup::Servers(setup) => &mut setup.plan,
        }
    }

    /// The names of the contenders, without the control. Some may be missing here.
    pub fn contenders(&self) -> Vec<String> {
        match self {
            Setup::Echo(setup) => setup.servers.iter().map(|one| one.name.clone()).collect(),
            Setup::Programs(setup) => setup.contenders.clone(),
            Setup::Servers(setup) => {
                setup.comparison.contenders.iter().map(|one| one.name.clone()).collect()
            }
        }
    }

    /// The cells.
    pub fn cells(&self) -> Vec<Cell> {
        match self {
            Setup::Echo(setup) => setup.cells.clone(),
            Setup::Programs(setup) => setup.cells.clone(),
            Setup::Servers(setup) => setup.comparison.loads.iter().map(Load::cell).collect(),
        }
    }

    /// Leaves out the contenders and cells that are not selected.
    ///
    /// # Errors
    /// If none is left; the error lists those there are.
    pub fn select(&mut self, only: &Only) -> Result<()> {
        let (contenders, cells) = (self.contenders(), self.cells());
        let missing = |what: &str, all: Vec<String>| {
            UsageError(format!(
                "{}: no {what} matches: there are {}",
                self.plan().name,
                all.join(", ")
            ))
        };
        ensure!(
            contenders.iter().any(|name| only.has_contender(name)),
            missing("contender", contenders)
        );
        let names = cells.iter().map(Cell::to_string).collect();
        ensure!(cells.iter().any(|cell| only.has_cell(cell)), missing("cell", names));
        match self {
            Setup::Echo(setup) => {
                setup.servers.retain(|one| only.has_contender(&one.name));
                setup.cells.retain(|cell| only.has_cell(cell));
            }
            Setup::Programs(setup) => {
                setup.contenders.retain(|name| only.has_contender(name));
                setup.cells.retain(|cell| only.has_cell(cell));
            }
            Setup::Servers(setup) => {
                let comparison = &mut setup.comparison;
                comparison.contenders.retain(|one| only.has_contender(&one.name));
                comparison.loads.retain(|load| only.has_cell(&load.cell()));
            }
        }
        Ok(())
    }

    /// About how long it takes, without building peers, in the minimum of rounds.
    pub fn cost(&self) -> Duration {
        // With the control.
        let contenders = self.contenders().len() as u32 + 1;
        let rounds = self.plan().rounds.least as u32;
        let (round, idle) = match self {
            Setup::Echo(setup) => {
                let round = setup.cells.iter().map(|cell| setup.cost(cell)).sum();
                (round, setup.idle.unwrap_or_default())
            }
            Setup::Programs(setup) => {
                let round = setup.cells.iter().map(|cell| setup.cost(cell)).sum();
                (round, Duration::ZERO)
            }
            // System calls are counted in the first round by slices of their own.
            Setup::Servers(setup) => {
                let round: Duration = setup.cost() * setup.comparison.loads.len() as u32;
                (round, round * contenders)
            }
        };
        round * contenders * rounds + idle
    }

    /// Builds what must be built, and starts all contenders.
    ///
    /// # Errors
    /// If a contender cannot be built or started, none is left, or files cannot be made.
    pub fn prepare(self) -> Result<Prepared> {
        match self {
            Setup::Echo(setup) => {
                setup.check()?;
                setup.prepare()
            }
            Setup::Programs(setup) => setup.prepare(),
            Setup::Servers(setup) => setup.prepare(),
        }
    }
}

/// What is selected of a comparison: every contender that is named, in every cell that is named.
#[derive(Clone, Debug, Default)]
pub struct Only {
    contenders: Vec<String>,
    cells: Vec<String>,
}

impl Only {
    /// Of patterns `CONTENDER/CELL`, `CONTENDER` and `/CELL`, in which `*` stands for any text. A cell is its name, such as
    /// `50 clients × 128 bytes`, or its values, such as `50x128`.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Only {
        let mut only = Only::default();
        for pattern in patterns {
            let (contender, cell) = pattern.split_once('/').unwrap_or((pattern, ""));
            let given = |part: &str| (!part.is_empty()).then(|| part.to_owned());
            only.contenders.extend(given(contender));
            only.cells.extend(given(cell));
        }
        only
    }

    fn has_contender(&self, name: &str) -> bool {
        self.contenders.is_empty() || self.contenders.iter().any(|pattern| matches(pattern, name))
    }

    fn has_cell(&self, cell: &Cell) -> bool {
        let (name, values) = (cell.to_string(), cell.job().replace(' ', "x"));
        let is = |pattern: &String| matches(pattern, &name) || matches(pattern, &values);
        self.cells.is_empty() || self.cells.iter().any(is)
    }
}

/// Whether a text is as the pattern, in which `*` stands for any text.
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
        Setup::Programs(programs::Setup {
            definition: &nop::BENCH,
            plan: Plan { name: "nop".into(), rounds: Rounds::fixed(10), seed: 1 },
            contenders: ["ring", "task", "liburing"].map(String::from).into(),
            cells: [64, 128, 1024].map(nop::cell).into(),
            slice: Duration::from_millis(50),
            core: 0,
            peers: None,
        })
    }

    #[test]
    fn a_pattern_has_stars_for_any_text() {
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
            setup.select(&Only::new(patterns.iter().copied())).expect("some are left");
            let cells = setup.cells().iter().map(Cell::job).collect::<Vec<_>>();
            (setup.contenders().join(" "), cells.join(" "))
        };
        assert_eq!(left(&[]), ("ring task liburing".into(), "64 128 1024".into()));
        assert_eq!(left(&["ring", "lib*/*4"]), ("ring liburing".into(), "64 1024".into()));
        assert_eq!(left(&["/128 entries"]), ("ring task liburing".into(), "128".into()));
    }

    #[test]
    fn a_selection_of_nothing_lists_what_there_is() {
        let error = |pattern| {
            let error = setup().select(&Only::new([pattern])).expect_err("nothing is left");
            assert!(error.is::<UsageError>(), "{error}");
            error.to_string()
        };
        assert_eq!(error("rio"), "nop: no contender matches: there are ring, task, liburing");
        assert!(error("/7").contains("no cell matches: there are 64 entries, 128 entries,"));
    }

    #[test]
    fn the_cost_is_that_of_every_slice_with_the_control() {
        assert_eq!(setup().cost(), Duration::from_millis(60) * 4 * 3 * 10);
    }
}
