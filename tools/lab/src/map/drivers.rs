//! Our two drivers compared with each other.

use std::collections::BTreeMap;

use annulus_load::stats::Verdict;
use serde::Serialize;

use crate::bench::CellVerdict;
use crate::results::Results;

/// The names of contenders that are our drivers.
const URING: &str = "uring";
const EPOLL: &str = "epoll";

/// The maximum number of cells that the sentence lists.
const MAX_NAMED_CELLS: usize = 4;

/// The io_uring driver compared with the epoll driver, in every cell in which both were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DriverComparison {
    /// The number of cells.
    pub cells: usize,
    /// The cells in which io_uring takes less, each with its run and ratio.
    pub uring: Vec<String>,
    /// The cells in which epoll takes less, each with its run and ratio.
    pub epoll: Vec<String>,
    /// The result in words.
    pub sentence: String,
}

impl DriverComparison {
    /// Compares the drivers in these runs by name.
    pub(super) fn of(runs: &BTreeMap<String, Results>) -> DriverComparison {
        let mut found = DriverComparison::default();
        for (run, results) in runs {
            let bench = results.bench();
            for cell in 0..bench.cells.len() {
                let named = CellVerdict::named(bench, results.record(), cell, &[URING], EPOLL);
                let Some(verdict) = named else { continue };
                let ratio = verdict.cost.map_or(f64::NAN, |cost| cost.median);
                let cell = format!("{run}: {}, {ratio:.2} ×", verdict.cell);
                found.cells += 1;
                match verdict.verdict {
                    Verdict::Better => found.uring.push(cell),
                    Verdict::Worse => found.epoll.push(cell),
                    Verdict::Same | Verdict::Undecided | Verdict::Void => {}
                }
            }
        }
        found.sentence = found.words();
        found
    }

    fn words(&self) -> String {
        let side = |cells: &[String]| match cells.len() {
            0 => "in none".to_owned(),
            count if count <= MAX_NAMED_CELLS => format!("in {count} ({})", cells.join("; ")),
            count => format!("in {count}"),
        };
        format!(
            "The runs of the map have {} cells in which both drivers were measured: io_uring takes less CPU time than \
             epoll by more than 3 % {}, and epoll takes less than io_uring {}.",
            self.cells,
            side(&self.uring),
            side(&self.epoll)
        )
    }
}
