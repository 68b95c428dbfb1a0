//! What a thread of the load records.

use super::outcomes::Outcomes;
use crate::exchange::Outcome;
use crate::schedule::Times;
use hdrhistogram::Histogram;
use std::ops::Range;

/// The longest time recorded as such, in ns: an hour. Longer ones count as an hour.
const MAX_TIME: u64 = 3_600_000_000_000;
/// The precision of times.
const SIGNIFICANT_DIGITS: u8 = 3;
/// A request that was written later than this after it was due, in ns, has started late.
const LATE: u64 = 1_000_000;

/// What the clients of a thread do within the measured window, or what those of several threads did.
///
/// One a thread, not a client: a client has no memory of its own here. Recorders are merged exactly.
#[derive(Debug)]
pub(crate) struct Recorder {
    is_open: bool,
    /// The pause in which the clients had to wait before the window opened. It is part of no time.
    pause: Range<u64>,
    /// From the due time of a request to its reply, in ns.
    pub(crate) response: Histogram<u64>,
    /// From when a request was written to its reply, in ns.
    pub(crate) service: Histogram<u64>,
    /// Requests written.
    pub(crate) sent: u64,
    /// By how much requests were written after they were due and their connection was free, in ns: the load's own delay.
    pub(crate) delay: Histogram<u64>,
    /// Of these, those written more than a millisecond after they were due.
    pub(crate) late: u64,
    /// Requests that failed: lost with their connection.
    pub(crate) failed: u64,
    /// What the replies said.
    pub(crate) outcomes: Outcomes,
    /// Connections made in place of others.
    pub(crate) reconnects: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
}

fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_TIME, SIGNIFICANT_DIGITS).expect("bounds that are constants")
}

/// Of less precision: they are compared with times, and shown with one or two digits.
fn delays() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_TIME, 1).expect("bounds that are constants")
}

impl Recorder {
    /// Closed.
    pub(crate) fn new() -> Recorder {
        Recorder {
            is_open: false,
            pause: 0..0,
            response: times(),
            service: times(),
            delay: delays(),
            sent: 0,
            late: 0,
            failed: 0,
            outcomes: Outcomes::default(),
            reconnects: 0,
            bytes_sent: 0,
            bytes_received: 0,
        }
    }

    /// The window opens after a pause in which the clients had to wait.
    pub(crate) fn open(&mut self, pause: Range<u64>) {
        (self.is_open, self.pause) = (true, pause);
    }

    /// The window closes.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }

    /// A request was written.
    pub(crate) fn sent(&mut self, request: &Times) {
        if self.is_open {
            self.sent += 1;
            self.late += u64::from(self.since(request.due, request.sent) > LATE);
            let delay = self.since(request.ready, request.sent);
            self.delay.saturating_record(delay);
        }
    }

    /// A reply was completed, now.
    pub(crate) fn answered(&mut self, request: Times, outcome: Outcome, now: u64) {
        if self.is_open {
            let times = [request.due, request.sent].map(|from| self.since(from, now));
            self.response.saturating_record(times[0]);
            self.service.saturating_record(times[1]);
            self.outcomes.add(outcome);
        }
    }

    /// Bytes were accepted to be sent.
    pub(crate) fn bytes_sent(&mut self, bytes: usize) {
        if self.is_open {
            self.bytes_sent += bytes as u64;
        }
    }

    /// Bytes were received.
    pub(crate) fn bytes_received(&mut self, bytes: usize) {
        if self.is_open {
            self.bytes_received += bytes as u64;
        }
    }

    /// Requests were lost with their connection.
    pub(crate) fn failed(&mut self, requests: u64) {
        if self.is_open {
            self.failed += requests;
        }
    }

    /// A connection was made in place of another.
    pub(crate) fn reconnected(&mut self) {
        if self.is_open {
            self.reconnects += 1;
        }
    }

    /// Adds what another thread recorded.
    pub(crate) fn merge(&mut self, other: &Recorder) {
        for (sum, more) in [
            (&mut self.response, &other.response),
            (&mut self.service, &other.service),
            (&mut self.delay, &other.delay),
        ] {
            sum.add(more).expect("histograms of the same bounds");
        }
        self.sent += other.sent;
        self.late += other.late;
        self.failed += other.failed;
        self.outcomes.merge(&other.outcomes);
        self.reconnects += other.reconnects;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
    }

    /// The time since `from`, without the pause.
    fn since(&self, from: u64, now: u64) -> u64 {
        let paused = self.pause.end.saturating_sub(from.max(self.pause.start));
        now.saturating_sub(from).saturating_sub(paused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(due: u64, sent: u64) -> Times {
        Times { sent, ..Times::all(due) }
    }

    #[test]
    fn only_the_window_counts() {
        let mut recorder = Recorder::new();
        let record = |recorder: &mut Recorder| {
            recorder.sent(&request(5, 2_000_000));
            recorder.answered(request(5, 2_000_000), Outcome::Status(503), 3_000_000);
            recorder.failed(2);
            recorder.bytes_received(7);
        };
        record(&mut recorder);
        recorder.open(0..0);
        record(&mut recorder);
        recorder.close();
        record(&mut recorder);
        assert_eq!((recorder.sent, recorder.late, recorder.failed), (1, 1, 2));
        assert_eq!(recorder.bytes_received, 7);
        assert_eq!(recorder.outcomes.by_name(), [("5xx".to_owned(), 1)].into());
        assert_eq!((recorder.response.len(), recorder.service.len()), (1, 1));
        assert!(recorder.response.equivalent(recorder.response.max(), 2_999_995));
        assert!(recorder.service.equivalent(recorder.service.max(), 1_000_000));
    }

    #[test]
    fn a_time_beyond_the_longest_counts_as_the_longest() {
        let mut recorder = Recorder::new();
        recorder.open(0..0);
        recorder.answered(request(0, 0), Outcome::Ok, u64::MAX);
        assert_eq!(recorder.response.len(), 1);
    }

    #[test]
    fn the_pause_before_the_window_is_in_no_time() {
        let mut recorder = Recorder::new();
        recorder.open(100..140);
        // From before the pause, in it, at its end, after it.
        for (from, time) in [(90, 20), (120, 10), (140, 10), (145, 5)] {
            assert_eq!(recorder.since(from, 150), time, "since {from}");
        }
    }

    #[test]
    fn a_request_that_was_due_in_the_pause_is_not_late() {
        let mut recorder = Recorder::new();
        recorder.open(1_000_000..9_000_000);
        recorder.sent(&request(500_000, 9_100_000));
        assert_eq!((recorder.sent, recorder.late), (1, 0));
        assert!(recorder.delay.equivalent(recorder.delay.max(), 600_000));
        // It waited for a reply until a moment before it was sent.
        let (due, sent) = (10_000_000, 12_000_000);
        recorder.sent(&Times { due, ready: sent - 50, sent, class: 0 });
        assert_eq!((recorder.late, recorder.delay.count_at(50)), (1, 1));
    }

    #[test]
    fn merging_is_exact() {
        let mut all = Recorder::new();
        let mut parts = [Recorder::new(), Recorder::new(), Recorder::new()];
        all.open(0..0);
        parts.iter_mut().for_each(|part| part.open(0..0));
        for n in 0..10_000_u64 {
            let (due, now) = (n * 37 % 1000, 2000 + n * n);
            for recorder in [&mut all, &mut parts[n as usize % 3]] {
                recorder.sent(&request(due, due + n));
                recorder.answered(request(due, due + n % 7), Outcome::Ok, now);
            }
        }
        let [mut sum, second, third] = parts;
        sum.merge(&second);
        sum.merge(&third);
        assert_eq!((&sum.response, &sum.service), (&all.response, &all.service));
        assert_eq!(sum.delay, all.delay);
        assert_eq!((sum.sent, sum.late), (all.sent, all.late));
    }
}
