use super::tally::Tally;
use super::{Interval, MAX_INTERVALS};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Collects and adds up what the threads of a load have recorded in each interval.
///
/// Each thread records on its own ([`Recorder`](super::Recorder)) and hands over its tally at the
/// end of an interval. The thread that observes the run adds the tallies up to intervals
/// ([`Collector::collect`]).
pub(crate) struct Collector {
    /// The length of an interval, in ns.
    interval: u64,
    /// The number of the last interval. Later events count there.
    last: u64,
    /// Number of request classes, or 0 if all requests are alike.
    classes: usize,
    state: Mutex<CollectorState>,
}

#[derive(Default)]
struct CollectorState {
    /// Tallies that threads have handed over, each with the number of its interval.
    handed: Vec<(u64, Tally)>,
    /// Empty tallies for later intervals.
    spare: Vec<Tally>,
    intervals: BTreeMap<u64, Interval>,
    positions: Vec<Arc<RecorderPosition>>,
    /// Intervals before this one have been reported.
    shown: u64,
}

/// The interval that a thread is recording. The thread has handed over the tallies of all earlier
/// intervals.
#[derive(Debug, Default)]
pub(super) struct RecorderPosition(AtomicU64);

impl RecorderPosition {
    /// Moves the thread to this interval, after it has handed over the tallies of earlier
    /// intervals.
    pub(super) fn set(&self, number: u64) {
        // Pairs with the load in `Collector::add_up`, which then sees the tallies that were handed
        // over before.
        self.0.store(number, Release);
    }
}

impl Collector {
    /// Creates a collector for a run of this duration, with intervals of this length and `classes`
    /// request classes (0 if all requests are alike).
    pub(crate) fn new(duration: Duration, interval: Duration, classes: usize) -> Arc<Collector> {
        let [duration, interval] = [duration, interval].map(|time| (time.as_nanos() as u64).max(1));
        // A run that ends with its last request may have a long `duration`.
        let last = duration.div_ceil(interval).min(MAX_INTERVALS) - 1;
        Arc::new(Collector { interval, last, classes, state: Mutex::default() })
    }

    /// Returns the number and the end of the interval at a time in ns since measuring began.
    pub(super) fn interval_at(&self, time: u64) -> (u64, u64) {
        let number = time / self.interval;
        if number < self.last {
            (number, (number + 1) * self.interval)
        } else {
            (self.last, u64::MAX)
        }
    }

    /// Registers a thread that records.
    pub(super) fn add_recorder(&self) -> (Arc<RecorderPosition>, Tally) {
        let position = Arc::<RecorderPosition>::default();
        let mut state = self.lock();
        state.positions.push(Arc::clone(&position));
        state.spare.push(Tally::new(self.classes));
        (position, Tally::new(self.classes))
    }

    /// Takes what a thread has recorded in an interval, and returns an empty tally.
    pub(super) fn hand_over(&self, number: u64, tally: Tally) -> Tally {
        let mut state = self.lock();
        state.handed.push((number, tally));
        state.spare.pop().unwrap_or_else(|| Tally::new(self.classes))
    }

    /// Like [`hand_over`](Self::hand_over), but returns no tally, because the thread records
    /// nothing more.
    pub(super) fn hand_over_last(&self, number: u64, tally: Tally) {
        self.lock().handed.push((number, tally));
    }

    /// Adds up the tallies handed over, and reports the complete intervals: those that every thread
    /// has left.
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

    /// Returns all intervals of a run that took `measured`, in order, after reporting the remaining
    /// ones. Every thread must have ended, so that all tallies have been handed over.
    pub(crate) fn finish(&self, measured: Duration, each: impl FnMut(&Interval)) -> Vec<Interval> {
        self.add_up();
        if let Some(mut last) = self.lock().intervals.last_entry() {
            let (is_last, interval) = (*last.key() == self.last, last.get_mut());
            // The last interval may have started after `measured` by the clients' clocks, but its
            // length must be positive.
            let left = (measured.as_secs_f64() - interval.start).max(1e-9);
            // Events after the planned end count in the last interval.
            interval.length = if is_last { left } else { interval.length.min(left) };
        }
        self.collect(each);
        std::mem::take(&mut self.lock().intervals).into_values().collect()
    }

    /// Adds up the tallies handed over, and returns the number of the first incomplete interval.
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

    /// Locks the state, even if a thread has panicked while it held the lock: the state is
    /// consistent at any time.
    fn lock(&self) -> MutexGuard<'_, CollectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
