//! What a thread of the load has recorded in an interval.

use super::latencies::{MAX_LATENCY, empty_histogram};
use super::outcomes::Outcomes;
use super::{Interval, Latencies};
use crate::exchange::Outcome;
use hdrhistogram::Histogram;

/// What a thread has recorded in an interval.
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) late: u64,
    pub(super) answered: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
    pub(super) reconnects: u64,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) response: Histogram<u64>,
    pub(super) service: Histogram<u64>,
    delay: Histogram<u64>,
    outcomes: Outcomes,
}

impl Tally {
    pub(super) fn new() -> Tally {
        Tally {
            sent: 0,
            late: 0,
            answered: 0,
            refused: 0,
            failed: 0,
            reconnects: 0,
            bytes_sent: 0,
            bytes_received: 0,
            response: empty_histogram(),
            service: empty_histogram(),
            // Of less precision: delays are compared with times, and shown with one or two digits.
            delay: Histogram::new_with_bounds(1, MAX_LATENCY, 1)
                .expect("bounds that are constants"),
            outcomes: Outcomes::default(),
        }
    }

    pub(super) fn sent(&mut self, late: bool, delay: u64) {
        self.sent += 1;
        self.late += u64::from(late);
        self.delay.saturating_record(delay);
    }

    pub(super) fn answered(&mut self, response: u64, service: u64, outcome: Outcome) {
        self.answered += 1;
        self.response.saturating_record(response);
        self.service.saturating_record(service);
        self.outcomes.add(outcome);
        let is_refusal = match outcome {
            Outcome::Ok => false,
            Outcome::Status(status) => status >= 400,
            Outcome::ErrorReply => true,
        };
        self.refused += u64::from(is_refusal);
    }

    /// The same as an interval.
    pub(super) fn to_interval(&self, start: f64, length: f64) -> Interval {
        Interval {
            sent: self.sent,
            late: self.late,
            answered: self.answered,
            refused: self.refused,
            failed: self.failed,
            reconnects: self.reconnects,
            bytes_sent: self.bytes_sent,
            bytes_received: self.bytes_received,
            outcomes: self.outcomes.by_name(),
            response: Latencies::from_histogram(&self.response),
            service: Latencies::from_histogram(&self.service),
            delay: Latencies::from_histogram(&self.delay),
            ..Interval::new(start, length)
        }
    }

    /// Makes it as new, with the same memory.
    pub(super) fn clear(&mut self) {
        let Tally { sent, late, answered, refused, failed, reconnects, .. } = self;
        for count in [sent, late, answered, refused, failed, reconnects] {
            *count = 0;
        }
        (self.bytes_sent, self.bytes_received) = (0, 0);
        self.response.reset();
        self.service.reset();
        self.delay.reset();
        self.outcomes = Outcomes::default();
    }
}
