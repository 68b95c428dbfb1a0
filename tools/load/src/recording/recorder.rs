use super::DatagramCounts;
use super::collector::{Collector, RecorderPosition};
use super::tally::Tally;
use crate::outcome::Outcome;
use crate::schedule::RequestTimes;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A request that is written more than this many ns after it was due counts as late.
const LATE_AFTER_NANOS: u64 = 1_000_000;

/// Records what the clients of a thread do within the measured window, interval by interval.
///
/// There is one recorder per thread rather than per client, so clients need no memory for it. At
/// the first event of a new interval, or at the next sweep, the recorder hands over the tally of
/// the interval before ([`Collector`]). It hands over the last tally at its end. An event counts in
/// the interval in which it is reported. Times are in nanoseconds of [`crate::clock`].
pub(crate) struct Recorder {
    collector: Arc<Collector>,
    position: Arc<RecorderPosition>,
    is_open: bool,
    /// The time before the window opened during which the clients had to wait. No recorded time
    /// includes it.
    pause: Range<u64>,
    /// The number of the current interval.
    number: u64,
    /// When the current interval ends.
    end: u64,
    /// The figures of the current interval; `None` once the recorder has finished.
    tally: Option<Tally>,
    responses: u64,
    /// When the last reply was completed.
    last_reply: u64,
    /// The last turn of the loop in which requests were sent, and how many.
    group: (u64, u64),
}

impl Recorder {
    /// Creates a recorder whose window is closed.
    pub(crate) fn new(collector: &Arc<Collector>) -> Recorder {
        let (position, tally) = collector.add_recorder();
        Recorder {
            collector: Arc::clone(collector),
            position,
            is_open: false,
            pause: 0..0,
            number: 0,
            end: u64::MAX,
            tally: Some(tally),
            responses: 0,
            last_reply: 0,
            group: (0, 0),
        }
    }

    /// Opens the window, after a pause during which the clients had to wait.
    pub(crate) fn open(&mut self, pause: Range<u64>) {
        self.end = self.collector.interval_at(0).1.saturating_add(pause.end);
        (self.is_open, self.pause) = (true, pause);
    }

    /// Stops recording within the window, or continues.
    pub(crate) fn set_open(&mut self, is_open: bool) {
        self.end_group();
        self.is_open = is_open;
    }

    pub(crate) fn close(&mut self) {
        self.end_group();
        self.is_open = false;
    }

    /// Records how many requests were sent in a turn of the loop, at whose end they leave together.
    #[inline]
    pub(crate) fn sent_together(&mut self, turn: u64, requests: u64) {
        if self.group.0 != turn {
            self.end_group();
            self.group.0 = turn;
        }
        if self.is_open {
            self.group.1 += requests;
        }
    }

    fn end_group(&mut self) {
        let size = std::mem::take(&mut self.group.1);
        if let Some(tally) = self.current().filter(|_| size > 0) {
            tally.sent_together(size);
        }
    }

    /// Records how many requests were in flight when the window opened.
    pub(crate) fn in_flight_at_start(&mut self, requests: u64) {
        if let Some(tally) = self.current() {
            tally.counts.in_flight_at_start += requests;
        }
    }

    /// Records requests that are in flight when the window closes.
    pub(crate) fn cut_off(&mut self, requests: u64) {
        if let Some(tally) = &mut self.tally {
            tally.counts.cut_off += requests;
        }
    }

    /// Records requests that were due before the window closed, and were not sent.
    pub(crate) fn unsent(&mut self, requests: u64) {
        if let Some(tally) = &mut self.tally {
            tally.counts.unsent += requests;
        }
    }

    /// Records requests that are to be sent again.
    pub(crate) fn retried(&mut self, requests: u64) {
        if let Some(tally) = self.current() {
            tally.counts.retried += requests;
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the number of replies so far.
    pub(crate) fn responses(&self) -> u64 {
        self.responses
    }

    pub(crate) fn sent(&mut self, request: &RequestTimes) {
        let [late, delay] = [request.due, request.ready].map(|from| self.since(from, request.sent));
        if let Some(tally) = self.tally_at(request.sent) {
            tally.sent(request.class, late > LATE_AFTER_NANOS, delay);
        }
    }

    /// Records that a reply was completed now.
    pub(crate) fn answered(&mut self, request: RequestTimes, outcome: Outcome, now: u64) {
        let [response, service] = [request.due, request.sent].map(|from| self.since(from, now));
        if let Some(tally) = self.tally_at(now) {
            tally.answered(request.class, response, service, outcome);
            self.responses += 1;
            self.last_reply = now;
        }
    }

    /// Returns when the last reply within the window was completed, or 0 before the first reply.
    pub(crate) fn last_reply(&self) -> u64 {
        self.last_reply
    }

    /// Adds results of datagrams that were sent within the window, even if the window is not open
    /// now.
    pub(crate) fn datagrams(&mut self, counts: DatagramCounts) {
        if let Some(tally) = &mut self.tally {
            *tally.counts.datagrams.get_or_insert_default() += counts;
        }
    }

    /// Records bytes that were accepted for sending.
    pub(crate) fn bytes_sent(&mut self, bytes: usize) {
        if let Some(tally) = self.current() {
            tally.counts.bytes_sent += bytes as u64;
        }
    }

    pub(crate) fn bytes_received(&mut self, bytes: usize) {
        if let Some(tally) = self.current() {
            tally.counts.bytes_received += bytes as u64;
        }
    }

    /// Records requests that failed with their connection. If they timed out, `timed_out` is the
    /// current time, and their response and service times are recorded. A request that fails after
    /// the window has closed no longer counts as cut off.
    pub(crate) fn failed<'a>(
        &mut self,
        requests: impl IntoIterator<Item = &'a RequestTimes>,
        timed_out: Option<u64>,
    ) {
        for request in requests {
            let times =
                timed_out.map(|now| [request.due, request.sent].map(|from| self.since(from, now)));
            let (is_open, Some(tally)) = (self.is_open, &mut self.tally) else { return };
            if !is_open {
                let Some(left) = tally.counts.cut_off.checked_sub(1) else { return };
                tally.counts.cut_off = left;
            }
            tally.failed(request.class, times);
        }
    }

    /// Records a connection that replaced another one.
    pub(crate) fn reconnected(&mut self) {
        if let Some(tally) = self.current() {
            tally.counts.reconnects += 1;
        }
    }

    /// Moves to the interval at `now`, so that earlier ones are complete even if the thread has no
    /// events for a while.
    pub(crate) fn advance_to(&mut self, now: u64) {
        self.tally_at(now);
    }

    /// Hands over the last tally. Nothing is recorded after that.
    pub(crate) fn finish(&mut self) {
        self.close();
        if let Some(tally) = self.tally.take() {
            self.collector.hand_over_last(self.number, tally);
        }
        self.position.set(u64::MAX);
    }

    /// Returns the tally of the current interval if the window is open, without checking whether
    /// that interval has ended.
    fn current(&mut self) -> Option<&mut Tally> {
        self.tally.as_mut().filter(|_| self.is_open)
    }

    /// Moves to the interval at `now`, and returns its tally if the window is open.
    fn tally_at(&mut self, now: u64) -> Option<&mut Tally> {
        if self.is_open && now >= self.end {
            self.start_interval(now);
        }
        self.current()
    }

    #[cold]
    fn start_interval(&mut self, now: u64) {
        self.end_group();
        let (number, end) = self.collector.interval_at(now - self.pause.end);
        if let Some(tally) = self.tally.take() {
            self.tally = Some(self.collector.hand_over(self.number, tally));
        }
        self.end = end.saturating_add(self.pause.end);
        self.number = number;
        self.position.set(number);
    }

    /// Returns the time since `from`, without the pause.
    fn since(&self, from: u64, now: u64) -> u64 {
        let paused = self.pause.end.saturating_sub(from.max(self.pause.start));
        now.saturating_sub(from).saturating_sub(paused)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.finish();
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Interval, Latencies};
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;
    const RUN_TIME: Duration = Duration::from_secs(10);

    fn request(due: u64, sent: u64) -> RequestTimes {
        RequestTimes { sent, ..RequestTimes::all(due) }
    }

    fn answer(recorder: &mut Recorder, now: u64) {
        recorder.answered(request(now - 50, now - 30), Outcome::Status(200), now);
    }

    fn collector() -> Arc<Collector> {
        Collector::new(RUN_TIME, Duration::from_secs(1), 0)
    }

    fn shown(collector: &Collector) -> Vec<(f64, u64)> {
        let mut shown = Vec::new();
        collector.collect(|interval| shown.push((interval.start, interval.answered)));
        shown
    }

    /// Returns the sum of the intervals of one recorder.
    fn recorded(collector: &Collector, mut recorder: Recorder) -> Interval {
        recorder.finish();
        let mut sum = Interval::default();
        collector.finish(RUN_TIME, |_| ()).iter().for_each(|interval| sum.add(interval));
        sum
    }

    #[test]
    fn recorder_counts_only_while_the_window_is_open() {
        let collector = collector();
        let mut recorder = Recorder::new(&collector);
        let record = |recorder: &mut Recorder| {
            recorder.sent(&request(5, 2_000_000));
            recorder.answered(request(5, 2_000_000), Outcome::Status(503), 3_000_000);
            recorder.failed(&[request(5, 5); 2], None);
            recorder.retried(1);
            recorder.in_flight_at_start(3);
            recorder.bytes_sent(9);
            recorder.bytes_received(7);
            recorder.reconnected();
        };
        record(&mut recorder);
        recorder.open(0..0);
        record(&mut recorder);
        assert_eq!(recorder.responses(), 1);
        recorder.close();
        record(&mut recorder);
        let sum = recorded(&collector, recorder);
        assert_eq!((sum.sent, sum.late, sum.failed, sum.answered), (1, 1, 2, 1));
        assert_eq!((sum.retried, sum.in_flight_at_start), (1, 3));
        assert_eq!((sum.refused, sum.reconnects, sum.bytes_sent, sum.bytes_received), (1, 1, 9, 7));
        assert_eq!(sum.outcomes["5xx"], 1);
        assert!((2_999_995..3_001_000).contains(&sum.response.max()), "{:?}", sum.response);
        assert!((1_000_000..1_001_000).contains(&sum.service.max()), "{:?}", sum.service);
    }

    #[test]
    fn request_classes_are_counted_separately_and_add_up() {
        let collector = Collector::new(RUN_TIME, Duration::from_secs(1), 2);
        let mut recorders = [(); 2].map(|()| Recorder::new(&collector));
        for (nth, recorder) in recorders.iter_mut().enumerate() {
            recorder.open(0..0);
            for (class, now, status) in [(0, 900, 200), (1, 5_000, 200), (1, 3 * SECOND, 503)] {
                let times =
                    RequestTimes { class, ..RequestTimes::all(now - 100 * (1 + nth as u64)) };
                recorder.sent(&times);
                recorder.answered(times, Outcome::Status(status), now);
            }
            let failed = [1, 0, 1].map(|class| RequestTimes { class, ..request(0, 0) });
            recorder.failed(&failed, None);
            recorder.finish();
        }
        let mut sum = Interval::default();
        let intervals = collector.finish(RUN_TIME, |_| ());
        intervals.iter().for_each(|interval| sum.add(interval));
        assert!(intervals.len() > 1 && sum.classes.len() == 2, "{sum:?}");
        let counts = |class: &crate::recording::ClassInterval| {
            [class.sent, class.answered, class.refused, class.failed]
        };
        assert_eq!(counts(&sum.classes[0]), [2, 2, 0, 2]);
        assert_eq!(counts(&sum.classes[1]), [4, 4, 2, 4]);
        assert_eq!((sum.sent, sum.answered, sum.refused, sum.failed), (6, 6, 2, 6));
        assert_eq!((sum.classes[1].outcomes["2xx"], sum.classes[1].outcomes["5xx"]), (2, 2));
        let mut both = sum.classes[0].response.clone();
        both.add(&sum.classes[1].response);
        assert_eq!(both, sum.response, "the classes do not add up to the total");
        assert_eq!(sum.classes[0].response, Latencies::from_iter([100, 200]));
    }

    #[test]
    fn requests_of_a_turn_are_a_group() {
        let collector = collector();
        let mut recorder = Recorder::new(&collector);
        recorder.sent_together(7, 3);
        recorder.open(0..0);
        for (turn, requests) in [(7, 2), (7, 1), (8, 1), (20, 2), (20, 3), (20, 1)] {
            recorder.sent_together(turn, requests);
        }
        recorder.close();
        recorder.sent_together(21, 9);
        let together = recorded(&collector, recorder).together;
        assert_eq!(together.buckets(), [(1, 1), (3, 1), (6, 1)]);
    }

    #[test]
    fn time_of_a_timed_out_request_is_a_latency() {
        let collector = Collector::new(RUN_TIME, Duration::from_secs(1), 1);
        let mut recorder = Recorder::new(&collector);
        recorder.open(0..0);
        recorder.failed([&request(100, 130)], Some(200));
        recorder.failed([&request(100, 130)], None);
        let sum = recorded(&collector, recorder);
        assert_eq!((sum.failed, sum.classes[0].failed), (2, 2));
        assert_eq!(sum.response.buckets(), [(100, 1)]);
        assert_eq!(sum.service.buckets(), [(70, 1)]);
        assert_eq!(sum.classes[0].response, sum.response);
    }

    #[test]
    fn request_that_fails_after_the_window_is_not_cut_off() {
        let collector = collector();
        let mut recorder = Recorder::new(&collector);
        recorder.open(0..0);
        recorder.cut_off(3);
        recorder.close();
        recorder.unsent(4);
        recorder.failed(&[request(100, 130); 2], Some(1000));
        let sum = recorded(&collector, recorder);
        assert_eq!((sum.failed, sum.cut_off, sum.unsent, sum.response.len()), (2, 1, 4, 2));
    }

    #[test]
    fn latency_over_the_maximum_is_still_counted() {
        let collector = collector();
        let mut recorder = Recorder::new(&collector);
        recorder.open(0..0);
        recorder.answered(request(0, 0), Outcome::Ok, u64::MAX);
        assert_eq!(recorded(&collector, recorder).response.len(), 1);
    }

    #[test]
    fn times_exclude_the_pause_before_the_window() {
        let mut recorder = Recorder::new(&collector());
        recorder.open(100..140);
        // Start times before the pause, within it, at its end, and after it.
        for (from, time) in [(90, 20), (120, 10), (140, 10), (145, 5)] {
            assert_eq!(recorder.since(from, 150), time, "since {from}");
        }
    }

    #[test]
    fn request_due_during_the_pause_is_not_late() {
        let collector = collector();
        let mut recorder = Recorder::new(&collector);
        recorder.open(1_000_000..9_000_000);
        recorder.sent(&request(500_000, 9_100_000));
        // The second request was due after the pause, and waited for a reply until just before it
        // was sent.
        let (due, sent) = (10_000_000, 12_000_000);
        recorder.sent(&RequestTimes { due, ready: sent - 50, sent, class: 0 });
        let sum = recorded(&collector, recorder);
        assert_eq!((sum.sent, sum.late), (2, 1));
        let delays = sum.delay.buckets();
        assert!(
            delays[0].0.abs_diff(50) <= 5 && delays[1].0.abs_diff(600_000) <= 60_000,
            "{delays:?}"
        );
    }

    #[test]
    fn interval_is_reported_once_every_thread_has_passed_it() {
        let measured = Duration::from_millis(2500);
        let collector = Collector::new(measured, Duration::from_secs(1), 0);
        let [mut one, mut other] = [(); 2].map(|()| Recorder::new(&collector));
        one.open(100..100);
        other.open(100..110);
        answer(&mut one, 150);
        answer(&mut other, 160);
        assert_eq!(shown(&collector), []);
        one.advance_to(100 + SECOND);
        assert_eq!(
            shown(&collector),
            [],
            "an interval was reported before the other recorder left it"
        );
        answer(&mut other, 160 + SECOND);
        assert_eq!(shown(&collector), [(0.0, 2)]);
        // An answer after the planned end counts in the last interval.
        answer(&mut one, 150 + 3 * SECOND);
        one.finish();
        drop(other);
        let mut last = Vec::new();
        let intervals = collector.finish(measured, |interval| last.push(interval.start));
        assert_eq!(last, [1.0, 2.0]);
        let lengths: Vec<_> = intervals.iter().map(|interval| interval.length).collect();
        assert_eq!(lengths, [1.0, 1.0, 0.5]);
        assert_eq!(intervals[0].outcomes["2xx"], 2);
        assert_eq!(intervals[0].response.buckets(), [(50, 2)]);
        assert_eq!(intervals[0].service.buckets(), [(30, 2)]);
    }

    #[test]
    fn interval_that_starts_as_the_run_ends_has_positive_length() {
        let measured = Duration::from_millis(300);
        let collector = Collector::new(Duration::from_millis(400), Duration::from_millis(100), 0);
        let mut recorder = Recorder::new(&collector);
        recorder.open(0..0);
        answer(&mut recorder, 250_000_000);
        answer(&mut recorder, 300_000_001);
        recorder.finish();
        let intervals = collector.finish(measured, |_| ());
        let [.., before, last] = &intervals[..] else { panic!("{intervals:?}") };
        assert!(last.length >= 1e-9 && last.start >= before.end() - last.length / 2.0, "{last:?}");
    }

    #[test]
    fn empty_intervals_are_reported() {
        let collector = collector();
        let mut recorder = Recorder::new(&collector);
        recorder.open(0..0);
        answer(&mut recorder, 100);
        answer(&mut recorder, 3 * SECOND);
        assert_eq!(
            shown(&collector),
            [(0.0, 1)],
            "an interval was reported before it was complete"
        );
        recorder.finish();
        assert_eq!(shown(&collector), [(1.0, 0), (2.0, 0), (3.0, 1)]);
    }

    #[test]
    fn four_threads_record_the_same_figures_as_one() {
        let record = |threads: u64| {
            let collector = collector();
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let mut recorder = Recorder::new(&collector);
                    scope.spawn(move || {
                        recorder.open(0..0);
                        for n in (thread..20_000).step_by(threads as usize) {
                            let now = n * SECOND / 2_000 + 1;
                            let request = request(now.saturating_sub(n * n), now - n % 2);
                            recorder.sent(&request);
                            recorder.answered(request, Outcome::Status(200), now);
                        }
                    });
                }
            });
            collector.finish(RUN_TIME, |_| ())
        };
        let (one, four) = (record(1), record(4));
        assert_eq!(one.len(), 10);
        assert_eq!(one, four);
    }
}
