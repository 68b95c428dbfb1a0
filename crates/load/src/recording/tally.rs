//! What a thread of the load has recorded in an interval.

use super::buckets::Buckets;
use super::latencies::MAX_LATENCY;
use super::outcomes::Outcomes;
use super::{ClassInterval, Interval, Latencies};
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
    response: Buckets,
    service: Buckets,
    delay: Histogram<u64>,
    outcomes: Outcomes,
    /// By class of request; none if all are alike.
    classes: Vec<ClassTally>,
}

/// What a thread has recorded of a class of requests in an interval.
struct ClassTally {
    sent: u64,
    answered: u64,
    refused: u64,
    failed: u64,
    response: Buckets,
    outcomes: Outcomes,
}

impl Tally {
    /// For so many classes of requests.
    pub(super) fn new(classes: usize) -> Tally {
        Tally {
            sent: 0,
            late: 0,
            answered: 0,
            refused: 0,
            failed: 0,
            reconnects: 0,
            bytes_sent: 0,
            bytes_received: 0,
            response: Buckets::default(),
            service: Buckets::default(),
            // Of less precision: delays are compared with times, and shown with one or two digits.
            delay: Histogram::new_with_bounds(1, MAX_LATENCY, 1)
                .expect("bounds that are constants"),
            outcomes: Outcomes::default(),
            classes: (0..classes).map(|_| ClassTally::new()).collect(),
        }
    }

    pub(super) fn sent(&mut self, class: u32, late: bool, delay: u64) {
        self.sent += 1;
        if let Some(class) = self.classes.get_mut(class as usize) {
            class.sent += 1;
        }
        self.late += u64::from(late);
        self.delay.saturating_record(delay);
    }

    /// A request of a class has failed.
    pub(super) fn failed(&mut self, class: u32) {
        self.failed += 1;
        if let Some(class) = self.classes.get_mut(class as usize) {
            class.failed += 1;
        }
    }

    pub(super) fn answered(&mut self, class: u32, response: u64, service: u64, outcome: Outcome) {
        self.answered += 1;
        self.response.record(response);
        self.service.record(service);
        self.outcomes.add(outcome);
        self.refused += u64::from(is_refusal(outcome));
        if let Some(class) = self.classes.get_mut(class as usize) {
            class.answered(response, outcome);
        }
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
            response: self.response.to_latencies(),
            service: self.service.to_latencies(),
            delay: Latencies::from_histogram(&self.delay),
            classes: self.classes.iter().map(ClassTally::to_interval).collect(),
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
        self.response.clear();
        self.service.clear();
        self.delay.reset();
        self.outcomes = Outcomes::default();
        self.classes.iter_mut().for_each(ClassTally::clear);
    }
}

impl ClassTally {
    fn new() -> ClassTally {
        ClassTally {
            sent: 0,
            answered: 0,
            refused: 0,
            failed: 0,
            response: Buckets::default(),
            outcomes: Outcomes::default(),
        }
    }

    fn answered(&mut self, response: u64, outcome: Outcome) {
        self.answered += 1;
        self.refused += u64::from(is_refusal(outcome));
        self.outcomes.add(outcome);
        self.response.record(response);
    }

    fn to_interval(&self) -> ClassInterval {
        ClassInterval {
            sent: self.sent,
            answered: self.answered,
            refused: self.refused,
            failed: self.failed,
            outcomes: self.outcomes.by_name(),
            response: self.response.to_latencies(),
        }
    }

    fn clear(&mut self) {
        (self.sent, self.answered, self.refused, self.failed) = (0, 0, 0, 0);
        self.response.clear();
        self.outcomes = Outcomes::default();
    }
}

/// Whether a reply says that the server has failed, or has not done what was asked for.
fn is_refusal(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Ok => false,
        Outcome::Status(status) => status >= 400,
        Outcome::ErrorReply => true,
    }
}
