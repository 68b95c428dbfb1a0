//! The order of the slices: every contender in every cell, round after round.
//!
//! A shared machine can be slow for many seconds at a time. Short slices in rounds spread such a
//! period over all contenders. Within a round, the slices of one cell are consecutive because they
//! are compared with each other. Each round draws a new order, so that no contender always has the
//! same predecessor.

use serde::{Deserialize, Serialize};

/// One slice: its round, cell and contender, each counted from 0.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Slice {
    /// The round.
    pub round: usize,
    /// The cell.
    pub cell: usize,
    /// The contender; the control is the last.
    pub contender: usize,
}

/// The order of slices, drawn from a seed.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    contenders: usize,
    random: fastrand::Rng,
}

impl Schedule {
    pub(super) fn new(contenders: usize, seed: u64) -> Schedule {
        Schedule { contenders, random: fastrand::Rng::with_seed(seed) }
    }

    /// Returns the slices of a round with these cells, in random order.
    pub(super) fn round(&mut self, round: usize, mut cells: Vec<usize>) -> Vec<Slice> {
        self.random.shuffle(&mut cells);
        let mut slices = Vec::with_capacity(self.contenders * cells.len());
        for cell in cells {
            let mut contenders: Vec<usize> = (0..self.contenders).collect();
            self.random.shuffle(&mut contenders);
            slices.extend(contenders.into_iter().map(|contender| Slice { round, cell, contender }));
        }
        slices
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn rounds(seed: u64) -> Vec<Vec<(usize, usize)>> {
        let mut schedule = Schedule::new(3, seed);
        let mut round = |round| {
            let slices = schedule.round(round, vec![0, 1]);
            assert!(slices.iter().all(|slice| slice.round == round));
            slices.into_iter().map(|slice| (slice.cell, slice.contender)).collect()
        };
        (0..20).map(&mut round).collect()
    }

    #[test]
    fn every_round_has_every_contender_in_every_cell_once_and_cells_stay_together() {
        for round in rounds(5) {
            assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), 6);
            assert!(round.chunks(3).all(|slices| slices.iter().all(|s| s.0 == slices[0].0)));
        }
    }

    #[test]
    fn the_order_changes_with_round_and_seed_only() {
        assert_eq!(rounds(5), rounds(5));
        assert_ne!(rounds(5), rounds(6));
        let different: BTreeSet<_> = rounds(5).into_iter().collect();
        assert!(different.len() > 10, "{} different rounds of 20", different.len());
    }
}
