//! A comparison of contenders as it is written to a file.

use std::fmt;

use serde::Serialize;

use super::Settings;
use crate::doubt::Doubt;
use crate::environment::Environment;
use crate::record::{Outcome, Record};
use crate::schedule::Visit;
use crate::stats::Ratio;
use crate::verdict::control_failed;

/// What a row says of a contender in a cell: medians over the rounds, and ratios within them.
pub trait Figures<C>: Sized {
    /// What one slice measures.
    type Sample: Clone + Serialize;

    /// The figures, their ratios to the contender `against`. What was never measured is `None`.
    fn of(record: &Record<C, Self::Sample>, contender: usize, against: usize, cell: usize) -> Self;

    /// The ratios that are 1 where a contender is the other's copy.
    fn ratios(&self) -> impl Iterator<Item = Ratio>;
}

/// Everything a run has to say: `T` are its terms, `C` what a cell is, `F` what is told of a contender there.
#[derive(Clone, Debug, Serialize)]
pub struct Report<T, C, F: Figures<C>> {
    /// How it was set up.
    pub settings: Settings<T>,
    /// Where and when.
    pub environment: Environment,
    /// A row for every contender in every cell.
    pub cells: Vec<Row<C, F>>,
    /// The same for the control, where there is one, as a multiple of the first contender, whose copy it is.
    pub controls: Vec<Row<C, F>>,
    /// What takes something away from it all.
    pub doubts: Vec<String>,
    /// Every slice, round by round.
    pub rounds: Vec<Slice<C, F::Sample>>,
}

impl<T, C: Clone + fmt::Display, F: Figures<C>> Report<T, C, F> {
    /// Sums up what was measured so far; the doubts that are given stand before those that the figures raise.
    pub fn new(
        record: &Record<C, F::Sample>,
        settings: Settings<T>,
        environment: &Environment,
        doubts: impl IntoIterator<Item = Doubt<C>>,
    ) -> Self {
        let against =
            record.servers().iter().position(|name| *name == settings.against).unwrap_or(0);
        let rows = |contender, against| {
            let cells = 0..record.cells().len();
            cells.map(move |cell| Row::of(record, contender, against, cell))
        };
        let controls: Vec<Row<C, F>> = rows(record.control(), 0).filter(Row::was_visited).collect();
        let doubts = doubts.into_iter().chain(strayed(&controls));
        Report {
            settings,
            environment: environment.clone(),
            cells: (0..record.control()).flat_map(|contender| rows(contender, against)).collect(),
            doubts: doubts.map(|doubt| doubt.to_string()).collect(),
            controls,
            rounds: record.slices().iter().map(|(&v, o)| Slice::of(record, v, o)).collect(),
        }
    }

    /// The rows, the control's last.
    pub fn rows(&self) -> impl Iterator<Item = &Row<C, F>> {
        self.cells.iter().chain(&self.controls)
    }

    /// Those in which slices failed.
    pub fn failures(&self) -> impl Iterator<Item = &Row<C, F>> {
        self.rows().filter(|row| row.failed > 0)
    }
}

/// Where the control came out otherwise than the contender it is a copy of.
fn strayed<C: Clone, F: Figures<C>>(controls: &[Row<C, F>]) -> Option<Doubt<C>> {
    let strayed = controls.iter().filter(|row| row.figures.ratios().any(control_failed));
    let cells: Vec<C> = strayed.map(|row| row.cell.clone()).collect();
    (!cells.is_empty()).then_some(Doubt::ControlFailed(cells))
}

/// One contender in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row<C, F> {
    /// The contender.
    pub contender: String,
    /// The cell.
    pub cell: C,
    /// What came out.
    #[serde(flatten)]
    pub figures: F,
    /// Slices that are believed.
    pub slices: usize,
    /// Slices that are not.
    pub failed: usize,
    /// The first reason why not.
    pub error: Option<String>,
}

impl<C: Clone, F: Figures<C>> Row<C, F> {
    fn of(record: &Record<C, F::Sample>, contender: usize, against: usize, cell: usize) -> Self {
        let outcomes = || record.slices_of(contender, cell).map(|(_, outcome)| outcome);
        let errors = || outcomes().filter_map(|outcome| outcome.as_ref().err());
        Row {
            contender: record.servers()[contender].clone(),
            cell: record.cells()[cell].clone(),
            figures: F::of(record, contender, against, cell),
            slices: outcomes().filter(|outcome| outcome.is_ok()).count(),
            failed: errors().count(),
            error: errors().next().cloned(),
        }
    }

    fn was_visited(&self) -> bool {
        self.slices + self.failed > 0
    }
}

/// One slice.
#[derive(Clone, Debug, Serialize)]
pub struct Slice<C, M> {
    /// Its round, from 0.
    pub round: usize,
    /// Its contender.
    pub contender: String,
    /// Its cell.
    pub cell: C,
    /// What was measured.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub sample: Option<M>,
    /// Why it is not believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl<C: Clone, M: Clone> Slice<C, M> {
    fn of(record: &Record<C, M>, visit: Visit, outcome: &Outcome<M>) -> Self {
        Slice {
            round: visit.round,
            contender: record.servers()[visit.server].clone(),
            cell: record.cells()[visit.cell].clone(),
            sample: outcome.as_ref().ok().cloned(),
            error: outcome.as_ref().err().cloned(),
        }
    }
}
