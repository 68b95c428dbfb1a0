//! The table of datagrams that one client has sent.
//!
//! Datagrams are numbered from 0 in the order in which they are sent. A datagram is *waiting* until
//! it is echoed (*answered*) or times out (*lost*), which frees its slot in the window. The table
//! keeps the entries of several windows, so that it can recognise duplicate and late echoes.

use crate::recording::DatagramCounts;
use std::time::Duration;

/// The number of windows for which the table keeps entries.
const KEPT_WINDOWS: usize = 4;
const MIN_ENTRIES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EchoKind {
    /// The first echo of a datagram, received in time, with its latency in ns.
    Answer(u64),
    /// The echo of a lost datagram, or of one whose entry is no longer in the table.
    Late,
    /// A further echo of a datagram that was already answered.
    Duplicate,
    /// The echo of a datagram that was never sent.
    Unknown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DatagramState {
    #[default]
    Unused,
    Waiting,
    Answered,
    Lost,
}

#[derive(Clone, Copy, Debug, Default)]
struct DatagramEntry {
    sent_at: u64,
    state: DatagramState,
    /// Whether the datagram was sent within the measured time.
    measured: bool,
}

/// The datagrams of one client. All times are in nanoseconds of [`crate::clock`].
#[derive(Debug)]
pub(crate) struct InFlightTable {
    entries: Box<[DatagramEntry]>,
    window: usize,
    /// The number of the next datagram to send.
    next: u64,
    /// The number of the oldest waiting datagram, or `next` if none is waiting.
    oldest: u64,
    waiting: usize,
    /// One more than the highest number that has been answered.
    beyond_answered: u64,
    /// Counts since the last call of `take_counts`.
    counts: DatagramCounts,
}

impl InFlightTable {
    pub(crate) fn new(window: usize) -> InFlightTable {
        let memory = (KEPT_WINDOWS * window).max(MIN_ENTRIES);
        InFlightTable {
            entries: vec![DatagramEntry::default(); memory].into(),
            window,
            next: 0,
            oldest: 0,
            waiting: 0,
            beyond_answered: 0,
            counts: DatagramCounts::default(),
        }
    }

    /// Returns the counts since the last call, and resets them.
    pub(crate) fn take_counts(&mut self) -> DatagramCounts {
        std::mem::take(&mut self.counts)
    }

    /// Counts an echo that matches no datagram.
    pub(crate) fn count_corrupt(&mut self) {
        self.counts.corrupt += 1;
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns true if another datagram may be sent: the window has a free slot, and the next entry
    /// of the table is free.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting < self.window && self.next - self.oldest < self.entries.len() as u64
    }

    /// Adds a datagram and returns its number.
    pub(crate) fn send(&mut self, now: u64, measured: bool) -> u64 {
        debug_assert!(self.has_room());
        let number = self.next;
        *self.entry(number) =
            DatagramEntry { sent_at: now, state: DatagramState::Waiting, measured };
        self.next += 1;
        self.waiting += 1;
        number
    }

    /// Records the echo of a numbered datagram.
    pub(crate) fn echo(&mut self, number: u64, now: u64) -> EchoKind {
        if number >= self.next {
            return EchoKind::Unknown;
        }
        if self.next - number > self.entries.len() as u64 {
            self.counts.late += 1;
            return EchoKind::Late;
        }
        let DatagramEntry { sent_at, state, measured } = *self.entry(number);
        let one = u64::from(measured);
        match state {
            DatagramState::Waiting => {
                self.end_wait(number, DatagramState::Answered);
                self.counts.received += one;
                self.counts.reordered += if number < self.beyond_answered { one } else { 0 };
                self.beyond_answered = self.beyond_answered.max(number + 1);
                EchoKind::Answer(now.saturating_sub(sent_at))
            }
            DatagramState::Lost => {
                self.entry(number).state = DatagramState::Answered;
                self.counts.late += one;
                EchoKind::Late
            }
            DatagramState::Answered | DatagramState::Unused => {
                self.counts.duplicated += one;
                EchoKind::Duplicate
            }
        }
    }

    /// Records an echo without a number as the echo of the oldest waiting datagram.
    pub(crate) fn echo_of_oldest(&mut self, now: u64) -> EchoKind {
        match self.waiting {
            // No datagram is waiting, so this counts as an echo of the last datagram.
            0 => self.next.checked_sub(1).map_or(EchoKind::Unknown, |last| self.echo(last, now)),
            _ => self.echo(self.oldest, now),
        }
    }

    /// Marks datagrams that have waited longer than `limit` as lost. Returns true if a slot was
    /// freed.
    pub(crate) fn expire(&mut self, now: u64, limit: Duration) -> bool {
        let before = self.waiting;
        let late = now.saturating_sub(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        while self.waiting > 0 && self.entry(self.oldest).sent_at < late {
            self.counts.lost += u64::from(self.entry(self.oldest).measured);
            self.end_wait(self.oldest, DatagramState::Lost);
        }
        self.waiting < before
    }

    /// Gives up all datagrams that are waiting, because the run ends. Returns how many of them were
    /// sent within the measured time.
    pub(crate) fn give_up(&mut self) -> u64 {
        let mut measured = 0;
        while self.waiting > 0 {
            measured += u64::from(self.entry(self.oldest).measured);
            self.end_wait(self.oldest, DatagramState::Lost);
        }
        measured
    }

    fn end_wait(&mut self, number: u64, state: DatagramState) {
        self.entry(number).state = state;
        self.waiting -= 1;
        while self.oldest < self.next && self.entry(self.oldest).state != DatagramState::Waiting {
            self.oldest += 1;
        }
    }

    fn entry(&mut self, number: u64) -> &mut DatagramEntry {
        let line = number % self.entries.len() as u64;
        &mut self.entries[line as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Sends `count` datagrams at times 0, 1, 2 and so on.
    fn send(in_flight: &mut InFlightTable, count: u64) {
        for now in 0..count {
            assert_eq!(in_flight.send(now, true), now);
        }
    }

    #[test]
    fn echo_frees_a_slot() {
        let mut in_flight = InFlightTable::new(2);
        assert_eq!((in_flight.send(10, true), in_flight.send(20, true)), (0, 1));
        assert!(!in_flight.has_room());
        assert_eq!(in_flight.echo(0, 35), EchoKind::Answer(25));
        assert!(in_flight.has_room());
        let counts = DatagramCounts { received: 1, ..DatagramCounts::default() };
        assert_eq!((in_flight.counts, in_flight.waiting()), (counts, 1));
    }

    #[test]
    fn echoes_are_classified_as_duplicate_late_or_unknown() {
        let mut in_flight = InFlightTable::new(4);
        send(&mut in_flight, 3);
        assert_eq!(in_flight.echo(2, 5), EchoKind::Answer(3));
        assert_eq!(in_flight.echo(0, 5), EchoKind::Answer(5));
        assert_eq!(in_flight.echo(0, 6), EchoKind::Duplicate);
        assert!(in_flight.expire(100, Duration::from_nanos(50)));
        assert_eq!(in_flight.echo(1, 101), EchoKind::Late);
        assert_eq!(in_flight.echo(1, 102), EchoKind::Duplicate);
        assert_eq!(in_flight.echo(3, 103), EchoKind::Unknown);
        let counts = DatagramCounts {
            received: 2,
            lost: 1,
            late: 1,
            duplicated: 2,
            reordered: 1,
            corrupt: 0,
        };
        assert_eq!(in_flight.counts, counts);
    }

    #[test]
    fn lost_datagrams_do_not_stall_the_window() {
        let mut in_flight = InFlightTable::new(2);
        for round in 0..1000 {
            while in_flight.has_room() {
                in_flight.send(round * 100, true);
            }
            assert!(
                !in_flight.expire(round * 100 + 50, Duration::from_nanos(50)),
                "datagrams expired too early"
            );
            assert!(in_flight.expire(round * 100 + 51, Duration::from_nanos(50)));
        }
        assert_eq!((in_flight.next, in_flight.counts.lost), (2000, 2000));
    }

    /// An unanswered datagram stops the client before its entry would be reused, but only until it
    /// times out.
    #[test]
    fn entry_of_oldest_waiting_datagram_is_not_reused() {
        let mut in_flight = InFlightTable::new(2);
        in_flight.send(0, true);
        let mut sent = 0;
        while in_flight.has_room() {
            let number = in_flight.send(1, true);
            assert_eq!(in_flight.echo(number, 2), EchoKind::Answer(1));
            sent += 1;
        }
        assert_eq!(sent, MIN_ENTRIES - 1);
        assert!(in_flight.expire(10, Duration::from_nanos(5)) && in_flight.has_room());
    }

    #[test]
    fn echo_without_number_answers_the_oldest() {
        let mut in_flight = InFlightTable::new(3);
        assert_eq!(in_flight.echo_of_oldest(0), EchoKind::Unknown);
        send(&mut in_flight, 3);
        assert_eq!(in_flight.echo_of_oldest(10), EchoKind::Answer(10));
        assert!(in_flight.expire(100, Duration::from_nanos(1)));
        assert_eq!(in_flight.echo_of_oldest(110), EchoKind::Late);
        assert_eq!(in_flight.echo_of_oldest(111), EchoKind::Duplicate);
        assert_eq!(in_flight.counts.lost, 2);
    }

    #[test]
    fn only_datagrams_sent_in_the_measured_time_count() {
        let mut in_flight = InFlightTable::new(4);
        in_flight.send(0, false);
        in_flight.send(0, true);
        in_flight.echo(0, 1);
        in_flight.echo(1, 1);
        in_flight.echo(0, 2);
        let counts = DatagramCounts { received: 1, ..DatagramCounts::default() };
        assert_eq!(in_flight.take_counts(), counts);
        assert_eq!(in_flight.take_counts(), DatagramCounts::default());
    }

    #[test]
    fn given_up_datagrams_are_not_lost() {
        let mut in_flight = InFlightTable::new(4);
        in_flight.send(0, false);
        in_flight.send(1, true);
        in_flight.send(2, true);
        in_flight.echo(1, 3);
        assert_eq!((in_flight.give_up(), in_flight.waiting()), (1, 0));
        assert_eq!((in_flight.counts.lost, in_flight.counts.received), (0, 1));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Send,
        /// Echo the datagram whose number is `next` minus this.
        Echo(u64),
        Expire,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Send),
            3 => (0_u64..12).prop_map(Step::Echo),
            1 => Just(Step::Expire),
        ];
        proptest::collection::vec(step, 1..400)
    }

    /// A model of the table, which keeps every datagram.
    #[derive(Default)]
    struct Model {
        states: BTreeMap<u64, (DatagramState, u64)>,
        counts: DatagramCounts,
        highest: Option<u64>,
    }

    impl Model {
        fn echo(&mut self, number: u64) {
            let Some((state, _)) = self.states.get_mut(&number) else { return };
            match *state {
                DatagramState::Waiting => {
                    self.counts.received += 1;
                    self.counts.reordered += u64::from(self.highest > Some(number));
                    self.highest = self.highest.max(Some(number));
                }
                DatagramState::Lost => self.counts.late += 1,
                _ => self.counts.duplicated += 1,
            }
            *state = DatagramState::Answered;
        }

        fn expire(&mut self, before: u64) {
            for (state, sent_at) in self.states.values_mut() {
                if *state == DatagramState::Waiting && *sent_at < before {
                    *state = DatagramState::Lost;
                    self.counts.lost += 1;
                }
            }
        }

        fn waiting(&self) -> usize {
            self.states.values().filter(|(state, _)| *state == DatagramState::Waiting).count()
        }
    }

    proptest! {
        /// The steps come in any order, so datagrams are lost, duplicated, delayed and reordered.
        #[test]
        fn table_agrees_with_unbounded_model(window in 1_usize..6, steps in steps()) {
            let (mut in_flight, mut model) = (InFlightTable::new(window), Model::default());
            for (now, step) in (1_u64..).zip(steps) {
                match step {
                    Step::Send if in_flight.has_room() => {
                        let number = in_flight.send(now, true);
                        model.states.insert(number, (DatagramState::Waiting, now));
                    }
                    Step::Send => {}
                    Step::Echo(back) => if let Some(number) = in_flight.next.checked_sub(back) {
                        in_flight.echo(number, now);
                        model.echo(number);
                    },
                    Step::Expire => {
                        in_flight.expire(now, Duration::from_nanos(5));
                        model.expire(now.saturating_sub(5));
                    }
                }
                let DatagramCounts { received, lost, .. } = in_flight.counts;
                prop_assert_eq!(in_flight.counts, model.counts);
                prop_assert_eq!(in_flight.waiting(), model.waiting());
                prop_assert!(in_flight.waiting() <= window);
                prop_assert_eq!(in_flight.next, received + lost + in_flight.waiting() as u64);
            }
        }
    }
}
