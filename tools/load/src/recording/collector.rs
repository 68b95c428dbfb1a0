//! Adds up the tallies of the threads of a load.

use super::Interval;
use super::tally::Tally;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Takes what the threads of a load have recorded of each interval, and adds it up.
///
/// A thread records for itself ([`Recorder`](super::Recorder)), and hands its histograms over at the end of an interval; the
/// thread that observes the run makes intervals of them ([`Collector::collect`]).
pub(crate) struct Collector {
    /// The length of an interval, in ns.
    interval: u64,
    /// The number of the last interval. Events after the planned time count there.
    last: u64,
    /// Classes of requests; 0 if all are alike.
    classes: usize,
    state: Mutex<CollectorState>,
}

#[derive(Default)]
struct CollectorState {
    /// The tallies that threads have handed over, each with the number of its interval.
    handed: Vec<(u64, Tally)>,
    /// Empty tallies for further intervals.
    spare: Vec<Tally>,
    intervals: BTreeMap<u64, Interval>,
    positions: Vec<Arc<RecorderPosition>>,
    /// The intervals before this one were shown.
    shown: u64,
}

/// The interval that a thread records; the thread has handed over the tallies of earlier intervals.
#[derive(Debug, Default)]
pub(super) struct RecorderPosition(AtomicU64);

impl RecorderPosition {
    /// The thread goes on to this interval, and has handed over the tallies of earlier intervals.
    pub(super) fn set(&self, number: u64) {
        // Pairs with the load in `Collector::collect`, which sees the tallies that were handed over before.
        self.0.store(number, Release);
    }
}

impl Collector {
    /// For a run that takes so long, in intervals of a length which is not zero, of so many classes of requests: 0 if all are alike.
    pub(crate) fn new(duration: Duration, interval: Duration, classes: usize) -> Arc<Collector> {
        let [duration, interval] = [duration, interval].map(|time| (time.as_nanos() as u64).max(1));
        let last = duration.div_ceil(interval) - 1;
        Arc::new(Collector { interval, last, classes, state: Mutex::default() })
    }

    /// The interval of a time in ns since measuring began, and its end.
    pub(super) fn interval_at(&self, time: u64) -> (u64, u64) {
        let number = time / self.interval;
        if number < self.last {
            (number, (number + 1) * self.interval)
        } else {
            (self.last, u64::MAX)
        }
    }

    /// A thread begins to record.
    pub(super) fn add_recorder(&self) -> (Arc<RecorderPosition>, Tally) {
        let position = Arc::<RecorderPosition>::default();
        let mut state = self.lock();
        state.positions.push(Arc::clone(&position));
        state.spare.push(Tally::new(self.classes));
        (position, Tally::new(self.classes))
    }

    /// Takes what a thread has recorded in an interval; returns an empty tally.
    pub(super) fn hand_over(&self, number: u64, tally: Tally) -> Tally {
        let mut state = self.lock();
        state.handed.push((number, tally));
        state.spare.pop().unwrap_or_else(|| Tally::new(self.classes))
    }

    /// Takes the last tally of a thread.
    pub(super) fn hand_over_last(&self, number: u64, tally: Tally) {
        self.lock().handed.push((number, tally));
    }

    /// Adds up what was handed over, and shows the intervals that are complete: every thread has gone on to a later one.
    pub(crate) fn collect(&self, mut each: impl FnMut(&Interval)) {
        let complete = self.add_up();
        let mut state = self.lock();
        let CollectorState { intervals, shown, .. } = &mut *state;
        let last = intervals.last_key_value().map_or(0, |(number, _)| number + 1);
        for number in *shown..complete.min(last) {
            each(intervals.entry(number).or_insert_with(|| self.empty(number)));
            *shown = number + 1;
        }
    }

    /// The intervals of a run that took this long, ascending; shows those that were not. Every thread must have ended, so
    /// that all was handed over.
    pub(crate) fn finish(&self, measured: Duration, each: impl FnMut(&Interval)) -> Vec<Interval> {
        self.add_up();
        if let Some(mut last) = self.lock().intervals.last_entry() {
            let (is_last, interval) = (*last.key() == self.last, last.get_mut());
            // Clients and clock differ by less than an interval; no interval is shorter than a nanosecond.
            let left = (measured.as_secs_f64() - interval.start).max(1e-9);
            // Events after the planned time count in the last interval.
            interval.length = if is_last { left } else { interval.length.min(left) };
        }
        self.collect(each);
        std::mem::take(&mut self.lock().intervals).into_values().collect()
    }

    /// Adds up what was handed over; returns the first interval that is not complete.
    fn add_up(&self) -> u64 {
        let (complete, handed) = {
            let mut state = self.lock();
            let positions = state.positions.iter().map(|position| position.0.load(Acquire));
            (positions.min().unwrap_or(u64::MAX), std::mem::take(&mut state.handed))
        };
        for (number, mut tally) in handed {
            let mut interval = self.empty(number);
            interval.add(&tally.to_interval(interval.start, interval.length));
            tally.clear();
            let mut state = self.lock();
            state.spare.push(tally);
            match state.intervals.get_mut(&number) {
                Some(sum) => sum.add(&interval),
                None => _ = state.intervals.insert(number, interval),
            }
        }
        complete
    }

    fn empty(&self, number: u64) -> Interval {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        Interval::new(seconds(number * self.interval), seconds(self.interval))
    }

    /// The data is consistent at any time, even if a thread panicked with the lock.
    fn lock(&self) -> MutexGuard<'_, CollectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
