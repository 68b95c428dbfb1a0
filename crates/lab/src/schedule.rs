//! The order of the slices: every server in every cell, in turn, many times over.
//!
//! A shared machine has slow moods of many seconds. Short slices, visited round by round, let each
//! mood fall on all servers alike; within a round the servers of one cell come right after one
//! another, because they are what is compared. The order is drawn anew for each round, so that
//! nobody always follows the same neighbour.

use std::fmt;
use std::ops::ControlFlow;

use serde::Serialize;

use crate::record::{Outcome, Sample};
use fastrand::Rng;

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
pub trait Measure<S = Sample> {
    /// Measures one slice, or says in one line why it can't be believed.
    fn measure(&mut self, visit: Visit) -> Outcome<S>;
}

/// What is done with each outcome, and who decides whether a cell has had enough.
pub trait Keep<S = Sample> {
    /// Keeps an outcome; breaks the run off, or lets it go on.
    fn keep(&mut self, visit: Visit, outcome: Outcome<S>) -> ControlFlow<()>;

    /// Whether a cell that has had its rounds should get another.
    fn wants_more(&self, cell: usize) -> bool;
}

/// How many of each there are, and the seed of their order.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Servers, the control among them.
    pub servers: usize,
    /// Cells.
    pub cells: usize,
    /// Rounds that every cell gets.
    pub rounds: usize,
    /// Rounds that a cell gets at most, where it wants more.
    pub most: usize,
    /// The seed of the order.
    pub seed: u64,
}

impl Schedule {
    /// How many slices there will be at least.
    pub fn slices(&self) -> usize {
        self.servers * self.cells * self.rounds
    }

    /// Measures every cell in every round, and further rounds of those that want them, and hands each
    /// outcome over; until there are no more, or it is broken off.
    pub fn run<S>(
        &self,
        measure: &mut impl Measure<S>,
        keep: &mut impl Keep<S>,
    ) -> ControlFlow<()> {
        let mut generator = Rng::with_seed(self.seed);
        for round in 0..self.rounds.max(self.most) {
            let wanted = |cell: &usize| round < self.rounds || keep.wants_more(*cell);
            let cells: Vec<usize> = (0..self.cells).filter(wanted).collect();
            for visit in self.round(round, cells, &mut generator) {
                keep.keep(visit, measure.measure(visit))?;
            }
        }
        ControlFlow::Continue(())
    }

    fn round(&self, round: usize, cells: Vec<usize>, generator: &mut Rng) -> Vec<Visit> {
        let mut visits = Vec::with_capacity(self.servers * cells.len());
        for cell in shuffled(cells, generator) {
            let servers = shuffled((0..self.servers).collect(), generator);
            visits.extend(servers.into_iter().map(|server| Visit { round, server, cell }));
        }
        visits
    }
}

fn shuffled(mut places: Vec<usize>, generator: &mut Rng) -> Vec<usize> {
    generator.shuffle(&mut places);
    places
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::record::tests::sample;

    const SCHEDULE: Schedule = Schedule { servers: 3, cells: 2, rounds: 20, most: 0, seed: 5 };

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

    /// Keeps what was visited, and whether it went well.
    #[derive(Default)]
    struct Notes {
        visits: Vec<Visit>,
        failures: Vec<usize>,
        /// Broken off after so many, if so.
        last: usize,
        /// Cell 1 wants more than this many rounds.
        appetite: usize,
    }

    impl Keep for Notes {
        fn keep(&mut self, visit: Visit, outcome: Outcome) -> ControlFlow<()> {
            if outcome.is_err() {
                self.failures.push(self.visits.len());
            }
            self.visits.push(visit);
            let last = self.visits.len() == self.last;
            if last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }

        fn wants_more(&self, cell: usize) -> bool {
            let rounds = self.visits.iter().filter(|v| v.cell == cell).count() / SCHEDULE.servers;
            cell == 1 && rounds < self.appetite
        }
    }

    fn run(schedule: Schedule, mut notes: Notes) -> Notes {
        let mut measure = Counting { measured: 0, fails_at: 4 };
        let end = schedule.run(&mut measure, &mut notes);
        assert_eq!(end.is_break(), notes.last > 0);
        assert_eq!(measure.measured, notes.visits.len());
        notes
    }

    fn visits(schedule: Schedule) -> Vec<Visit> {
        run(schedule, Notes::default()).visits
    }

    #[test]
    fn every_round_visits_every_server_in_every_cell_once() {
        let visits = visits(SCHEDULE);
        assert_eq!(visits.len(), SCHEDULE.slices());
        for (round, visits) in visits.chunks(6).enumerate() {
            let set: BTreeSet<_> = visits.iter().map(|v| (v.server, v.cell)).collect();
            assert_eq!(set.len(), 6, "round {round}");
            assert!(visits.iter().all(|v| v.round == round));
        }
    }

    #[test]
    fn the_servers_of_a_cell_follow_one_another() {
        let visits = visits(SCHEDULE);
        assert!(visits.chunks(3).all(|slices| slices.iter().all(|v| v.cell == slices[0].cell)));
    }

    #[test]
    fn the_order_changes_with_round_and_seed_only() {
        let order = |seed| visits(Schedule { seed, ..SCHEDULE });
        assert_eq!(order(5), order(5));
        assert_ne!(order(5), order(6));
        let rounds: BTreeSet<Vec<_>> = order(5)
            .chunks(6)
            .map(|visits| visits.iter().map(|v| (v.server, v.cell)).collect())
            .collect();
        assert!(rounds.len() > 10, "{} different rounds of 20", rounds.len());
    }

    #[test]
    fn a_cell_that_wants_more_gets_it_up_to_the_most() {
        let hungry = |appetite, most| {
            let notes = Notes { appetite, ..Notes::default() };
            let visits = run(Schedule { most, ..SCHEDULE }, notes).visits;
            assert_eq!(visits.iter().filter(|v| v.cell == 0).count(), 20 * 3);
            visits.iter().filter(|v| v.cell == 1).count() / 3
        };
        assert_eq!(hungry(0, 40), 20);
        assert_eq!(hungry(25, 40), 25);
        assert_eq!(hungry(100, 40), 40);
        assert_eq!(hungry(100, 10), 20, "fewer at most than at least is at least");
    }

    #[test]
    fn a_failed_slice_is_kept_and_the_rest_goes_on() {
        let notes = run(SCHEDULE, Notes::default());
        assert_eq!((notes.visits.len(), notes.failures), (SCHEDULE.slices(), vec![3]));
    }

    #[test]
    fn breaking_off_measures_nothing_more() {
        assert_eq!(run(SCHEDULE, Notes { last: 7, ..Notes::default() }).visits.len(), 7);
    }

    #[test]
    fn cells_read_like_speech() {
        assert_eq!(Cell { clients: 1, bytes: 1 }.to_string(), "1 client × 1 byte");
        assert_eq!(Cell { clients: 50, bytes: 128 }.to_string(), "50 clients × 128 bytes");
    }
}
