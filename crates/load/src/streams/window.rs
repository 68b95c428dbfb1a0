//! The messages of one connection that are in flight, and their due times.

use crate::fault::Fault;

/// When the next message is due.
#[derive(Debug)]
enum Pace {
    /// As soon as a slot is free. Each slot holds the due time of its message.
    Closed(Box<[u64]>),
    /// At fixed times, whatever the server does.
    Open { origin: f64, interval: f64 },
}

/// What may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// This many whole messages.
    Messages(usize),
    /// Nothing before this time.
    NotBefore(u64),
    /// Nothing before the next reply.
    Full,
}

/// A window of messages: counts messages sent and bytes received, and keeps the due time of each message.
///
/// In a closed loop a message is due when the reply arrives that frees its slot. In an open loop it is due at its
/// scheduled time, even if no slot is free then. All times are nanoseconds of [`crate::clock`].
#[derive(Debug)]
pub(crate) struct Window {
    length: usize,
    depth: usize,
    pace: Pace,
    sent: u64,
    answered: u64,
    /// Bytes received of the next reply.
    partial: usize,
}

impl Window {
    /// A closed loop: `depth` messages at once, the first ones due now.
    pub(crate) fn closed(length: usize, depth: usize, now: u64) -> Window {
        Window::new(length, depth, Pace::Closed(vec![now; depth].into()))
    }

    /// An open loop: a message every `interval` ns from `origin`, at most `depth` at once.
    pub(crate) fn open(length: usize, depth: usize, origin: f64, interval: f64) -> Window {
        Window::new(length, depth, Pace::Open { origin, interval })
    }

    fn new(length: usize, depth: usize, pace: Pace) -> Window {
        Window { length, depth, pace, sent: 0, answered: 0, partial: 0 }
    }

    /// Bytes of replies still expected.
    pub(crate) fn outstanding(&self) -> usize {
        self.in_flight() as usize * self.length - self.partial
    }

    /// Messages sent whose reply is not complete.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sent - self.answered
    }

    /// Whether another message fits.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight() < self.depth as u64
    }

    /// How many messages may be sent now.
    pub(crate) fn claim(&self, now: impl FnOnce() -> u64) -> Claim {
        let room = self.depth - self.in_flight() as usize;
        if room == 0 {
            return Claim::Full;
        }
        let Pace::Open { origin, interval } = self.pace else { return Claim::Messages(room) };
        let due = ((now() as f64 - origin) / interval + 1.0).floor() as u64;
        match due.saturating_sub(self.sent) {
            0 => Claim::NotBefore((origin + self.sent as f64 * interval).ceil() as u64),
            due => Claim::Messages(room.min(due as usize)),
        }
    }

    /// Counts messages as sent; returns their bytes.
    pub(crate) fn send(&mut self, messages: usize) -> usize {
        self.sent += messages as u64;
        messages * self.length
    }

    /// Counts received bytes, at most those expected. Calls `record` with the latency and the time of each completed
    /// message.
    pub(crate) fn receive(
        &mut self,
        bytes: usize,
        now: impl Fn() -> u64,
        record: impl FnMut(u64, u64),
    ) {
        debug_assert!(bytes <= self.outstanding(), "more than was owed");
        self.partial += bytes;
        if self.partial >= self.length {
            let complete = self.partial / self.length;
            self.partial %= self.length;
            self.answer(complete as u64, now(), record);
        }
    }

    /// The server has closed the stream at this point.
    pub(crate) fn closed_early(&self) -> Fault {
        Fault::closed_early(self.partial, self.length)
    }

    /// A wrong byte, `at` bytes after those received so far.
    pub(crate) fn wrong_byte(&self, at: usize) -> Fault {
        Fault::wrong_byte((self.partial + at) % self.length, self.length)
    }

    fn answer(&mut self, messages: u64, now: u64, mut record: impl FnMut(u64, u64)) {
        for message in self.answered..self.answered + messages {
            let started = match &mut self.pace {
                Pace::Closed(slots) => {
                    let slot = (message % slots.len() as u64) as usize;
                    std::mem::replace(&mut slots[slot], now)
                }
                Pace::Open { origin, interval } => (*origin + message as f64 * *interval) as u64,
            };
            record(now.saturating_sub(started), now);
        }
        self.answered += messages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn receive(window: &mut Window, bytes: usize, now: u64) -> Vec<u64> {
        let mut latencies = Vec::new();
        window.receive(bytes, || now, |latency, _| latencies.push(latency));
        latencies
    }

    #[test]
    fn a_single_message_is_due_when_the_last_reply_arrived() {
        let mut window = Window::closed(10, 1, 100);
        assert_eq!(window.claim(|| 100), Claim::Messages(1));
        assert_eq!(window.send(1), 10);
        assert_eq!(window.claim(|| 101), Claim::Full);
        assert_eq!(receive(&mut window, 4, 150), [0_u64; 0]);
        assert_eq!(window.outstanding(), 6);
        assert_eq!(receive(&mut window, 6, 160), [60]);
        // It was due at 160, and sent later, at 190.
        window.send(1);
        assert_eq!(receive(&mut window, 10, 200), [40]);
    }

    #[test]
    fn a_slot_is_free_when_its_reply_is_complete() {
        let mut window = Window::closed(10, 3, 0);
        assert_eq!(window.send(3), 30);
        assert_eq!(receive(&mut window, 25, 50), [50, 50]);
        assert_eq!((window.claim(|| 50), window.outstanding()), (Claim::Messages(2), 5));
        window.send(2);
        assert_eq!(receive(&mut window, 25, 80), [80, 30, 30]);
    }

    #[test]
    fn an_open_loop_keeps_its_schedule_if_the_server_is_late() {
        let mut window = Window::open(10, 2, 1000.0, 100.0);
        assert_eq!(window.claim(|| 999), Claim::NotBefore(1000));
        assert_eq!(window.claim(|| 1000), Claim::Messages(1));
        window.send(1);
        assert_eq!(window.claim(|| 1050), Claim::NotBefore(1100));
        assert_eq!(window.claim(|| 1450), Claim::Messages(1), "four are due, one slot is free");
        window.send(1);
        assert_eq!(window.claim(|| 1450), Claim::Full);
        assert_eq!(receive(&mut window, 20, 1500), [500, 400], "meant to start at 1000 and 1100");
        assert_eq!(
            window.claim(|| 1500),
            Claim::Messages(2),
            "1200 and 1300 wait, the window has two"
        );
    }

    proptest! {
        /// Replies may arrive in any pieces at any time: every message is recorded once, and never more are in flight
        /// than fit.
        #[test]
        fn every_message_is_answered_once(
            length in 1_usize..50,
            depth in 1_usize..20,
            pieces in proptest::collection::vec(1_usize..400, 1..100),
        ) {
            let mut window = Window::closed(length, depth, 0);
            let (mut sent, mut received, mut recorded) = (0, 0, 0);
            for (now, piece) in (1_u64..).zip(pieces) {
                if let Claim::Messages(messages) = window.claim(|| now) {
                    sent += window.send(messages);
                }
                prop_assert!(sent - received <= depth * length && sent - received == window.outstanding());
                let piece = piece.min(window.outstanding());
                received += piece;
                let latencies = receive(&mut window, piece, now);
                recorded += latencies.len();
                prop_assert!(latencies.iter().all(|&latency| (1..=now).contains(&latency)));
            }
            prop_assert_eq!(recorded, received / length);
        }
    }
}
