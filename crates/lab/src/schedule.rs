//! The order of the slices: every server in every cell, in turn, many times over.
//!
//! A shared machine has slow moods of many seconds. Short slices, visited round by round, let each
//! mood fall on all servers alike; within a round the servers of one cell come right after one
//! another, because they are what is compared. The order is drawn anew for each round, so that
//! nobody always follows the same neighbour.

use std::fmt;
use std::ops::ControlFlow;

use serde::Serialize;

use crate::random::Generator;
use crate::record::Outcome;

/// What is asked of every server: so many connections, messages of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Connections held open, each with one request under way.
    pub clients: usize,
    /// The size of a message.
    pub bytes: usize,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        let Cell { clients, bytes } = *self;
        write!(f, "{clients} client{} × {bytes} byte{}", plural(clients), plural(bytes))
    }
}

/// One slice to measure: which round, which server, which cell, each counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Visit {
    /// The round.
    pub round: usize,
    /// The server's place in the list of servers.
    pub server: usize,
    /// The cell's place in the list of cells.
    pub cell: usize,
}

/// What measures a slice: the real rig, or a stand-in that needs no process and no clock.
pub trait Measure {
    /// Measures one slice, or says in one line why it can't be believed.
    fn measure(&mut self, visit: Visit) -> Outcome;
}

/// How many of each there are, and the seed of their order.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Servers, the control among them.
    pub servers: usize,
    /// Cells.
    pub cells: usize,
    /// Rounds.
    pub rounds: usize,
    /// The seed of the order.
    pub seed: u64,
}

impl Schedule {
    /// How many slices there will be.
    pub fn slices(&self) -> usize {
        self.servers * self.cells * self.rounds
    }

    /// All visits, in their order.
    pub fn visits(&self) -> impl Iterator<Item = Visit> + use<> {
        let schedule = *self;
        let mut generator = Generator::new(schedule.seed);
        (0..schedule.rounds).flat_map(move |round| schedule.round(round, &mut generator))
    }

    /// Measures every visit and hands its outcome to `keep`, until there are no more or `keep`
    /// breaks it off.
    pub fn run(
        &self,
        measure: &mut impl Measure,
        mut keep: impl FnMut(Visit, Outcome) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.visits().try_for_each(|visit| keep(visit, measure.measure(visit)))
    }

    fn round(&self, round: usize, generator: &mut Generator) -> Vec<Visit> {
        let mut visits = Vec::with_capacity(self.servers * self.cells);
        for cell in shuffled(self.cells, generator) {
            let servers = shuffled(self.servers, generator);
            visits.extend(servers.into_iter().map(|server| Visit { round, server, cell }));
        }
        visits
    }
}

fn shuffled(count: usize, generator: &mut Generator) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    generator.shuffle(&mut places);
    places
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::record::tests::sample;

    const SCHEDULE: Schedule = Schedule { servers: 3, cells: 2, rounds: 20, seed: 5 };

    /// Measures by counting, and fails where it was told to.
    struct Counting {
        measured: usize,
        fails_at: usize,
    }

    impl Measure for Counting {
        fn measure(&mut self, _visit: Visit) -> Outcome {
            self.measured += 1;
            if self.measured == self.fails_at { Err("refused".into()) } else { Ok(sample(1.0)) }
        }
    }

    #[test]
    fn every_round_visits_every_server_in_every_cell_once() {
        let visits: Vec<Visit> = SCHEDULE.visits().collect();
        assert_eq!(visits.len(), SCHEDULE.slices());
        for (round, visits) in visits.chunks(6).enumerate() {
            let set: BTreeSet<_> = visits.iter().map(|v| (v.server, v.cell)).collect();
            assert_eq!(set.len(), 6, "round {round}");
            assert!(visits.iter().all(|v| v.round == round));
        }
    }

    #[test]
    fn the_servers_of_a_cell_follow_one_another() {
        let visits: Vec<Visit> = SCHEDULE.visits().collect();
        assert!(visits.chunks(3).all(|slices| slices.iter().all(|v| v.cell == slices[0].cell)));
    }

    #[test]
    fn the_order_changes_with_round_and_seed_only() {
        let order = |seed| Schedule { seed, ..SCHEDULE }.visits().collect::<Vec<_>>();
        assert_eq!(order(5), order(5));
        assert_ne!(order(5), order(6));
        let rounds: BTreeSet<Vec<_>> = order(5)
            .chunks(6)
            .map(|visits| visits.iter().map(|v| (v.server, v.cell)).collect())
            .collect();
        assert!(rounds.len() > 10, "{} different rounds of 20", rounds.len());
    }

    #[test]
    fn a_failed_slice_is_kept_and_the_rest_goes_on() {
        let mut measure = Counting { measured: 0, fails_at: 4 };
        let mut outcomes = Vec::new();
        let end = SCHEDULE.run(&mut measure, |_, outcome| {
            outcomes.push(outcome.is_ok());
            ControlFlow::Continue(())
        });
        assert_eq!(end, ControlFlow::Continue(()));
        assert_eq!(outcomes.len(), SCHEDULE.slices());
        assert_eq!(outcomes.iter().position(|ok| !ok), Some(3));
    }

    #[test]
    fn breaking_off_measures_nothing_more() {
        let mut measure = Counting { measured: 0, fails_at: 0 };
        let mut kept = 0;
        let end = SCHEDULE.run(&mut measure, |_, _| {
            kept += 1;
            if kept == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((end, measure.measured), (ControlFlow::Break(()), 7));
    }

    #[test]
    fn cells_read_like_speech() {
        assert_eq!(Cell { clients: 1, bytes: 1 }.to_string(), "1 client × 1 byte");
        assert_eq!(Cell { clients: 50, bytes: 128 }.to_string(), "50 clients × 128 bytes");
    }
}
