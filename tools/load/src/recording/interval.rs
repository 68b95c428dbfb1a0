use super::{DatagramCounts, Latencies};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The figures of one interval of a run: a second, unless the plan says otherwise. The last one may
/// be shorter.
///
/// A request counts in the interval in which it was sent, a reply in the one in which it was
/// completed, and a failure in the one in which it was detected. In the sum of all intervals of a
/// run of streams, `in_flight_at_start + sent = answered + failed + retried + cut_off`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The start of the interval, in seconds since the measured time began.
    pub start: f64,
    /// The length of the interval in seconds.
    pub length: f64,
    /// Requests sent, including those sent again.
    pub sent: u64,
    /// Complete replies, including those counted in `refused`.
    pub answered: u64,
    /// Replies in `answered` that report a failure or are not the expected ones.
    #[serde(default)]
    pub refused: u64,
    /// Requests that were sent, but failed and were never answered. If they failed after the
    /// measured time, they count in the last interval.
    pub failed: u64,
    /// Requests in flight when the measured time began. They count in the first interval.
    #[serde(default)]
    pub in_flight_at_start: u64,
    /// Requests in flight when the measured time ended that have not failed since. They count in
    /// the last interval.
    #[serde(default)]
    pub cut_off: u64,
    /// Requests that the server did not process, and that are due to be sent again.
    #[serde(default)]
    pub retried: u64,
    /// Requests that were due before the measured time ended, but had not been sent: requests of an
    /// open loop's schedule, and retries. They count in the last interval.
    #[serde(default)]
    pub unsent: u64,
    /// Connections that were opened to replace others.
    #[serde(default)]
    pub reconnects: u64,
    /// Requests sent more than a millisecond after they were due.
    pub late: u64,
    /// Bytes sent, without the overhead of TLS.
    pub bytes_sent: u64,
    /// Bytes received, without the overhead of TLS.
    pub bytes_received: u64,
    /// Replies by outcome, such as `2xx` or `error reply`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outcomes: BTreeMap<String, u64>,
    /// Replies by HTTP status.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub statuses: BTreeMap<u16, u64>,
    /// Response times: from when a request was due to the end of its reply, or to its time-out.
    pub response: Latencies,
    /// Service times: from when a request was written to the end of its reply, or to its time-out.
    pub service: Latencies,
    /// The load's own delay, with one significant digit: the time from when a request was due and
    /// its connection was free until it was written.
    #[serde(default, skip_serializing_if = "Latencies::is_empty")]
    pub delay: Latencies,
    /// How many requests the load sent together: the sizes of the groups that left in one turn of a
    /// thread's loop.
    #[serde(default, skip_serializing_if = "Latencies::is_empty")]
    pub together: Latencies,
    /// The figures by request class, in the order of
    /// [`Recording::classes`](super::Recording::classes). Empty if there are not several classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassInterval>,
    /// Datagram counts; `None` if the run has no datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<DatagramCounts>,
}

/// The figures of one request class in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassInterval {
    /// Requests sent, including those sent again.
    pub sent: u64,
    /// Complete replies, including those counted in `refused`.
    pub answered: u64,
    /// Replies in `answered` that report a failure or are not the expected ones.
    #[serde(default)]
    pub refused: u64,
    /// Requests that were sent, but failed and were never answered.
    pub failed: u64,
    /// Replies by outcome, such as `2xx` or `error reply`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outcomes: BTreeMap<String, u64>,
    /// Response times: from when a request was due to the end of its reply, or to its time-out.
    pub response: Latencies,
}

impl Interval {
    /// Creates an interval in which nothing happened.
    pub fn new(start: f64, length: f64) -> Interval {
        Interval { start, length, ..Interval::default() }
    }

    /// Returns the end of the interval, in seconds since the measured time began.
    pub fn end(&self) -> f64 {
        self.start + self.length
    }

    /// Returns the replies per second, or 0 if the interval has no length.
    pub fn rate(&self) -> f64 {
        self.per_second(self.answered)
    }

    /// Returns a count divided by the length, or 0 if the interval has no length.
    pub(super) fn per_second(&self, count: u64) -> f64 {
        if self.length > 0.0 { count as f64 / self.length } else { 0.0 }
    }

    /// Adds the figures of `other` exactly. The start and length do not change.
    pub fn add(&mut self, other: &Interval) {
        for (own, others) in [
            (&mut self.sent, other.sent),
            (&mut self.answered, other.answered),
            (&mut self.failed, other.failed),
            (&mut self.late, other.late),
            (&mut self.refused, other.refused),
            (&mut self.in_flight_at_start, other.in_flight_at_start),
            (&mut self.cut_off, other.cut_off),
            (&mut self.retried, other.retried),
            (&mut self.unsent, other.unsent),
            (&mut self.reconnects, other.reconnects),
            (&mut self.bytes_sent, other.bytes_sent),
            (&mut self.bytes_received, other.bytes_received),
        ] {
            *own = own.saturating_add(others);
        }
        add_counts(&mut self.outcomes, &other.outcomes);
        add_counts(&mut self.statuses, &other.statuses);
        self.response.add(&other.response);
        self.service.add(&other.service);
        self.delay.add(&other.delay);
        self.together.add(&other.together);
        if self.classes.len() < other.classes.len() {
            self.classes.resize_with(other.classes.len(), ClassInterval::default);
        }
        self.classes.iter_mut().zip(&other.classes).for_each(|(own, other)| own.add(other));
        if let Some(counts) = other.datagrams {
            *self.datagrams.get_or_insert_default() += counts;
        }
    }
}

impl ClassInterval {
    fn add(&mut self, other: &ClassInterval) {
        self.sent = self.sent.saturating_add(other.sent);
        self.answered = self.answered.saturating_add(other.answered);
        self.refused = self.refused.saturating_add(other.refused);
        self.failed = self.failed.saturating_add(other.failed);
        add_counts(&mut self.outcomes, &other.outcomes);
        self.response.add(&other.response);
    }
}

fn add_counts<K: Clone + Ord>(own: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
    for (name, count) in other {
        let own = own.entry(name.clone()).or_default();
        *own = own.saturating_add(*count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_an_interval_sums_every_figure() {
        let class = |sent| ClassInterval {
            sent,
            answered: 2,
            refused: 1,
            failed: 1,
            outcomes: BTreeMap::from([("4xx".into(), 1)]),
            response: Latencies::from_iter([sent]),
        };
        let one = Interval {
            sent: 5,
            answered: 4,
            failed: 1,
            late: 2,
            in_flight_at_start: 3,
            cut_off: 1,
            retried: 2,
            unsent: 6,
            bytes_sent: 50,
            bytes_received: 40,
            outcomes: BTreeMap::from([("2xx".into(), 3), ("5xx".into(), 1)]),
            statuses: BTreeMap::from([(200, 3), (503, 1)]),
            response: Latencies::from_iter([10, 20]),
            service: Latencies::from_iter([5]),
            together: Latencies::from_iter([1, 4]),
            classes: vec![class(3), class(2)],
            datagrams: Some(DatagramCounts { received: 3, lost: 2, ..DatagramCounts::default() }),
            ..Interval::new(1.0, 1.0)
        };
        let mut sum = Interval::new(7.0, 0.5);
        sum.add(&one);
        assert_eq!(sum, Interval { start: 7.0, length: 0.5, ..one.clone() });
        sum.add(&one);
        assert_eq!((sum.sent, sum.answered, sum.failed, sum.late), (10, 8, 2, 4));
        let ends = (sum.in_flight_at_start, sum.cut_off, sum.retried, sum.unsent);
        assert_eq!(ends, (6, 2, 4, 12));
        assert_eq!((sum.bytes_sent, sum.bytes_received, sum.outcomes["2xx"]), (100, 80, 6));
        assert_eq!(sum.statuses, BTreeMap::from([(200, 6), (503, 2)]));
        assert_eq!(sum.together.len(), 4);
        assert_eq!((sum.response.len(), sum.service.len(), sum.classes[1].sent), (4, 2, 4));
        let class = &sum.classes[0];
        assert_eq!((class.refused, class.failed, class.outcomes["4xx"]), (2, 2, 2));
        assert_eq!(
            sum.datagrams.unwrap().named()[..3],
            [("received", 6), ("lost", 4), ("late", 0)]
        );
        assert_eq!((sum.start, sum.end()), (7.0, 7.5));
    }
}
