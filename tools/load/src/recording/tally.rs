use super::latencies::{Buckets, MAX_LATENCY};
use super::{ClassInterval, Interval, Latencies};
use crate::outcome::Outcome;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// The largest group of requests that is counted with its size.
const MAX_TOGETHER: u64 = 1 << 20;

/// The figures that one thread has recorded in an interval.
pub(super) struct Tally {
    /// The figures that are plain counts.
    pub(super) counts: Interval,
    response: Buckets,
    service: Buckets,
    delay: Histogram<u64>,
    together: Histogram<u64>,
    outcomes: Outcomes,
    /// Figures by request class; empty if all requests are alike.
    classes: Vec<ClassTally>,
}

/// The figures that one thread has recorded for a request class in an interval.
struct ClassTally {
    counts: ClassInterval,
    response: Buckets,
    outcomes: Outcomes,
}

impl Tally {
    pub(super) fn new(classes: usize) -> Tally {
        let class = |_| ClassTally {
            counts: ClassInterval::default(),
            response: Buckets::default(),
            outcomes: Outcomes::default(),
        };
        Tally {
            counts: Interval::default(),
            response: Buckets::default(),
            service: Buckets::default(),
            // Delays need less precision: they are only compared with other times, and shown with
            // one or two digits.
            delay: Histogram::new_with_bounds(1, MAX_LATENCY, 1)
                .expect("the constant bounds are invalid"),
            // This precision records groups of up to 200 requests exactly.
            together: Histogram::new_with_bounds(1, MAX_TOGETHER, 2)
                .expect("the constant bounds are invalid"),
            outcomes: Outcomes::default(),
            classes: (0..classes).map(class).collect(),
        }
    }

    pub(super) fn sent(&mut self, class: u32, late: bool, delay: u64) {
        self.counts.sent += 1;
        if let Some(class) = self.classes.get_mut(class as usize) {
            class.counts.sent += 1;
        }
        self.counts.late += u64::from(late);
        self.delay.saturating_record(delay);
    }

    pub(super) fn sent_together(&mut self, requests: u64) {
        self.together.saturating_record(requests);
    }

    /// Counts a failed request of a class, with its response and service times if it timed out.
    pub(super) fn failed(&mut self, class: u32, timed_out: Option<[u64; 2]>) {
        self.counts.failed += 1;
        let class = self.classes.get_mut(class as usize);
        if let Some([response, service]) = timed_out {
            self.response.record(response);
            self.service.record(service);
        }
        if let Some(class) = class {
            class.counts.failed += 1;
            timed_out.iter().for_each(|[response, _]| class.response.record(*response));
        }
    }

    pub(super) fn answered(&mut self, class: u32, response: u64, service: u64, outcome: Outcome) {
        let refused = u64::from(is_refusal(outcome));
        self.counts.answered += 1;
        self.counts.refused += refused;
        self.response.record(response);
        self.service.record(service);
        self.outcomes.add(outcome);
        if let Some(class) = self.classes.get_mut(class as usize) {
            class.counts.answered += 1;
            class.counts.refused += refused;
            class.outcomes.add(outcome);
            class.response.record(response);
        }
    }

    pub(super) fn to_interval(&self, start: f64, length: f64) -> Interval {
        let class = |class: &ClassTally| ClassInterval {
            outcomes: class.outcomes.by_name(),
            response: class.response.to_latencies(),
            ..class.counts.clone()
        };
        Interval {
            start,
            length,
            outcomes: self.outcomes.by_name(),
            statuses: self.outcomes.by_status(),
            response: self.response.to_latencies(),
            service: self.service.to_latencies(),
            delay: Latencies::from_histogram(&self.delay),
            together: Latencies::from_histogram(&self.together),
            classes: self.classes.iter().map(class).collect(),
            ..self.counts.clone()
        }
    }

    /// Resets all figures. Latencies keep their memory.
    pub(super) fn clear(&mut self) {
        self.response.clear();
        self.service.clear();
        self.delay.reset();
        self.together.reset();
        for class in &mut self.classes {
            class.response.clear();
            (class.counts, class.outcomes) = (ClassInterval::default(), Outcomes::default());
        }
        (self.counts, self.outcomes) = (Interval::default(), Outcomes::default());
    }
}

/// Returns true if a reply reports a failure or is not the expected one.
fn is_refusal(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Ok => false,
        Outcome::Status(status) => status >= 400,
        Outcome::Grpc(_) | Outcome::WrongBody(_) | Outcome::ErrorReply => true,
    }
}

/// The names of outcomes in results.
const OUTCOME_NAMES: [&str; 24] = [
    "ok",
    "2xx",
    "3xx",
    "4xx",
    "5xx",
    "other status",
    "error reply",
    "wrong body",
    "gRPC CANCELLED",
    "gRPC UNKNOWN",
    "gRPC INVALID_ARGUMENT",
    "gRPC DEADLINE_EXCEEDED",
    "gRPC NOT_FOUND",
    "gRPC ALREADY_EXISTS",
    "gRPC PERMISSION_DENIED",
    "gRPC RESOURCE_EXHAUSTED",
    "gRPC FAILED_PRECONDITION",
    "gRPC ABORTED",
    "gRPC OUT_OF_RANGE",
    "gRPC UNIMPLEMENTED",
    "gRPC INTERNAL",
    "gRPC UNAVAILABLE",
    "gRPC DATA_LOSS",
    "gRPC UNAUTHENTICATED",
];
/// The number of outcome names outside gRPC.
const OTHER_OUTCOMES: usize = 8;

/// Counts of replies by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcomes {
    kinds: [u64; OUTCOME_NAMES.len()],
    /// Counts by HTTP status. A server sends few different statuses, so the list is short.
    statuses: Vec<(u16, u64)>,
}

impl Outcomes {
    pub(crate) fn add(&mut self, outcome: Outcome) {
        let kind = match outcome {
            Outcome::Ok => 0,
            Outcome::Status(status @ 200..=599) => usize::from(status / 100 - 1),
            Outcome::Status(_) => 5,
            Outcome::ErrorReply => 6,
            Outcome::WrongBody(_) => 7,
            Outcome::Grpc(code) => OTHER_OUTCOMES + usize::from(code.clamp(1, 16)) - 1,
        };
        self.kinds[kind] += 1;
        if let Outcome::Status(status) | Outcome::WrongBody(status) = outcome {
            match self.statuses.iter_mut().find(|(known, _)| *known == status) {
                Some((_, count)) => *count += 1,
                None => self.statuses.push((status, 1)),
            }
        }
    }

    /// Returns the HTTP statuses that occurred, with their counts.
    pub(crate) fn by_status(&self) -> BTreeMap<u16, u64> {
        self.statuses.iter().copied().collect()
    }

    /// Returns the outcomes that occurred, with their counts.
    pub(crate) fn by_name(&self) -> BTreeMap<String, u64> {
        let counted = OUTCOME_NAMES.iter().zip(self.kinds).filter(|(_, count)| *count > 0);
        counted.map(|(name, count)| ((*name).to_owned(), count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_by_status_class() {
        let mut outcomes = Outcomes::default();
        for status in [200, 204, 299, 301, 404, 599, 600, 999] {
            outcomes.add(Outcome::Status(status));
        }
        outcomes.add(Outcome::Ok);
        outcomes.add(Outcome::ErrorReply);
        [1, 13, 16].into_iter().for_each(|code| outcomes.add(Outcome::Grpc(code)));
        outcomes.add(Outcome::WrongBody(200));
        let expected = [
            ("2xx", 3),
            ("3xx", 1),
            ("4xx", 1),
            ("5xx", 1),
            ("error reply", 1),
            ("gRPC CANCELLED", 1),
            ("gRPC INTERNAL", 1),
            ("gRPC UNAUTHENTICATED", 1),
            ("ok", 1),
            ("other status", 2),
            ("wrong body", 1),
        ];
        assert_eq!(
            outcomes.by_name(),
            expected.map(|(name, count)| (name.to_owned(), count)).into()
        );
        outcomes.add(Outcome::Status(404));
        let statuses =
            [(200, 2), (204, 1), (299, 1), (301, 1), (404, 2), (599, 1), (600, 1), (999, 1)];
        assert_eq!(outcomes.by_status(), statuses.into());
    }
}
