//! The messages of one connection that are in flight, in bytes.

use crate::fault::Fault;
use crate::mix::Sizes;
use crate::schedule::{Claim, Pacer, Times};
use fastrand::Rng;
use std::collections::VecDeque;

/// The lengths of the messages of a connection.
#[derive(Debug)]
pub(crate) enum Lengths {
    /// All the same.
    Fixed(usize),
    /// Drawn for each message.
    Drawn {
        sizes: Sizes,
        random: Rng,
        /// Of the messages in flight, in order.
        in_flight: VecDeque<usize>,
    },
}

impl Lengths {
    pub(crate) fn new(sizes: &Sizes, random: Rng) -> Lengths {
        match *sizes {
            Sizes::Fixed(length) => Lengths::Fixed(length),
            ref sizes => {
                Lengths::Drawn { sizes: sizes.clone(), random, in_flight: VecDeque::new() }
            }
        }
    }

    /// Puts messages into flight; returns their bytes.
    fn send(&mut self, messages: usize) -> usize {
        match self {
            Lengths::Fixed(length) => messages * *length,
            Lengths::Drawn { sizes, random, in_flight } => {
                let lengths = (0..messages).map(|_| sizes.draw(random));
                lengths.inspect(|&length| in_flight.push_back(length)).sum()
            }
        }
    }

    /// The length of the message that is answered next. One must be in flight.
    fn next(&self) -> usize {
        match self {
            Lengths::Fixed(length) => *length,
            Lengths::Drawn { in_flight, .. } => *in_flight.front().expect("a message is in flight"),
        }
    }

    fn pop(&mut self) {
        if let Lengths::Drawn { in_flight, .. } = self {
            in_flight.pop_front();
        }
    }
}

/// A window of messages: claims them as they become due, and turns received bytes into answers.
#[derive(Debug)]
pub(crate) struct Window {
    pacer: Pacer,
    lengths: Lengths,
    outstanding: usize,
    /// Bytes received of the next reply.
    partial: usize,
}

impl Window {
    pub(crate) fn new(pacer: Pacer, lengths: Lengths) -> Window {
        Window { pacer, lengths, outstanding: 0, partial: 0 }
    }

    /// Bytes of replies still expected.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Messages sent whose reply is not complete.
    pub(crate) fn in_flight(&self) -> u64 {
        self.pacer.in_flight() as u64
    }

    /// Whether another message fits.
    pub(crate) fn has_room(&self) -> bool {
        self.pacer.has_room()
    }

    /// Claims the messages that are due and fit; [`Claim::Send`] has their bytes.
    pub(crate) fn claim(&mut self, now: impl FnOnce() -> u64) -> Claim {
        match self.pacer.claim(now) {
            Claim::Send(messages) => {
                let bytes = self.lengths.send(messages);
                self.outstanding += bytes;
                Claim::Send(bytes)
            }
            nothing => nothing,
        }
    }

    /// Counts received bytes, at most those expected. Calls `record` with the times and the end of each completed message.
    pub(crate) fn receive(
        &mut self,
        bytes: usize,
        now: impl FnOnce() -> u64,
        mut record: impl FnMut(Times, u64),
    ) {
        debug_assert!(bytes <= self.outstanding, "more than was owed");
        self.partial += bytes;
        self.outstanding -= bytes;
        if self.pacer.in_flight() == 0 || self.partial < self.lengths.next() {
            return;
        }
        let now = now();
        while self.pacer.in_flight() > 0 && self.partial >= self.lengths.next() {
            self.partial -= self.lengths.next();
            self.lengths.pop();
            if let Some(times) = self.pacer.answer(now) {
                record(times, now);
            }
        }
    }

    /// The server has closed the stream at this point.
    pub(crate) fn closed_early(&self) -> Fault {
        Fault::closed_early(self.partial, self.next_length())
    }

    /// A wrong byte, `at` bytes after those received so far.
    pub(crate) fn wrong_byte(&self, at: usize) -> Fault {
        let mut at = self.partial + at;
        let Lengths::Drawn { in_flight, .. } = &self.lengths else {
            let length = self.lengths.next();
            return Fault::wrong_byte(at % length, length);
        };
        let mut lengths = in_flight.iter().copied();
        let mut length = lengths.next().unwrap_or_default();
        while at >= length
            && let Some(next) = lengths.next()
        {
            at -= length;
            length = next;
        }
        Fault::wrong_byte(at, length)
    }

    /// The length of the reply that comes next; zero if none is expected and lengths differ.
    fn next_length(&self) -> usize {
        match &self.lengths {
            Lengths::Fixed(length) => *length,
            Lengths::Drawn { in_flight, .. } => in_flight.front().copied().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Purpose, Schedule, generator};
    use proptest::prelude::*;

    fn window(sizes: &Sizes, depth: usize, now: u64) -> Window {
        let lengths = Lengths::new(sizes, generator(1, 0, Purpose::Sizes));
        Window::new(Pacer::new(&Schedule::default(), depth, [0, 1], 1, now), lengths)
    }

    fn receive(window: &mut Window, bytes: usize, now: u64) -> Vec<u64> {
        let mut latencies = Vec::new();
        window.receive(bytes, || now, |times, now| latencies.push(now - times.due));
        latencies
    }

    #[test]
    fn a_single_message_is_due_when_the_last_reply_arrived() {
        let mut window = window(&Sizes::Fixed(10), 1, 100);
        assert_eq!(window.claim(|| 100), Claim::Send(10));
        assert_eq!(window.claim(|| 101), Claim::Full);
        assert_eq!(receive(&mut window, 4, 150), [0_u64; 0]);
        assert_eq!(window.outstanding(), 6);
        assert_eq!(receive(&mut window, 6, 160), [60]);
        // It was due at 160, and sent later, at 190.
        window.claim(|| 190);
        assert_eq!(receive(&mut window, 10, 200), [40]);
    }

    #[test]
    fn a_slot_is_free_when_its_reply_is_complete() {
        let mut window = window(&Sizes::Fixed(10), 3, 0);
        assert_eq!(window.claim(|| 0), Claim::Send(30));
        assert_eq!(receive(&mut window, 25, 50), [50, 50]);
        assert_eq!(window.outstanding(), 5);
        assert_eq!(window.claim(|| 50), Claim::Send(20));
        assert_eq!(receive(&mut window, 25, 80), [80, 30, 30]);
    }

    #[test]
    fn a_wrong_byte_is_found_in_its_message() {
        let mut window = window(&Sizes::Uniform(3, 50), 4, 0);
        window.claim(|| 0);
        let Lengths::Drawn { in_flight, .. } = &window.lengths else { unreachable!() };
        let (first, second) = (in_flight[0], in_flight[1]);
        let wrong = |window: &Window, at| window.wrong_byte(at).detail;
        assert!(wrong(&window, first - 1).contains(&format!("of {first} ")));
        assert!(wrong(&window, first + 2).contains(&format!("byte 2 of a reply of {second}")));
        receive(&mut window, first + 1, 1);
        assert!(wrong(&window, 1).contains(&format!("byte 2 of a reply of {second}")));
    }

    proptest! {
        /// Replies may arrive in any pieces at any time: every message is recorded once, and never more are in flight
        /// than fit.
        #[test]
        fn every_message_is_answered_once(
            least in 1_usize..50,
            more in 0_usize..50,
            depth in 1_usize..20,
            pieces in proptest::collection::vec(1_usize..400, 1..100),
        ) {
            let sizes = if more == 0 { Sizes::Fixed(least) } else { Sizes::Uniform(least, least + more) };
            let mut window = window(&sizes, depth, 0);
            let (mut sent, mut received, mut recorded) = (0, 0, 0);
            for (now, piece) in (1_u64..).zip(pieces) {
                if let Claim::Send(bytes) = window.claim(|| now) {
                    sent += bytes;
                }
                prop_assert!(sent - received <= depth * sizes.max() && sent - received == window.outstanding());
                let piece = piece.min(window.outstanding());
                received += piece;
                let latencies = receive(&mut window, piece, now);
                recorded += latencies.len();
                prop_assert!(latencies.iter().all(|&latency| (1..=now).contains(&latency)));
            }
            let rest = receive(&mut window, sent - received, 1000).len();
            prop_assert_eq!((window.in_flight(), window.outstanding()), (0, 0));
            prop_assert!((recorded + rest) * least <= sent && (recorded + rest) * sizes.max() >= sent);
        }
    }
}
