//! The metrics of a run, which its clients share.

use crate::fault::Fault;
use crate::schedule::Times;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest latency recorded as such, in ns: an hour. Longer ones count as an hour.
const MAX_LATENCY: u64 = 3_600_000_000_000;
/// The precision of latencies.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Latencies that a recorder collects before it takes the lock.
const BATCH: usize = 64;

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    Measuring,
    Over,
    /// The run was interrupted; connections that end now have not failed.
    Interrupted,
}

/// Shared by all clients of a run, whether tasks or threads.
pub(crate) struct Metrics {
    /// A [`Phase`] as a number. No other memory is read because of it, so relaxed order is enough.
    phase: AtomicU8,
    /// The start and the end of the pause before the window opened, in which clients had to wait.
    pause: [AtomicU64; 2],
    histogram: Mutex<Histogram<u64>>,
    failed: AtomicU64,
    faults: Mutex<Faults>,
}

/// Failures by kind, and the first one as text.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) by_kind: BTreeMap<String, u64>,
    pub(crate) first: Option<String>,
}

/// The metrics at the end of a run.
pub(crate) struct Totals {
    pub(crate) histogram: Histogram<u64>,
    /// Requests that failed within the window.
    pub(crate) failed: u64,
    pub(crate) faults: Faults,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let histogram = Histogram::new_with_bounds(1, MAX_LATENCY, SIGNIFICANT_DIGITS)
            .expect("bounds that are constants");
        Metrics {
            phase: AtomicU8::new(Phase::WarmUp as u8),
            pause: Default::default(),
            histogram: Mutex::new(histogram),
            failed: AtomicU64::new(0),
            faults: Mutex::default(),
        }
    }

    /// Opens the window after a pause in which the clients had to wait. The pause is part of no latency.
    pub(crate) fn open(&self, pause: Range<u64>) {
        let [from, to] = &self.pause;
        from.store(pause.start, Relaxed);
        to.store(pause.end, Relaxed);
        self.set_phase(Phase::Measuring);
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// Whether clients send further messages.
    pub(crate) fn is_open(&self) -> bool {
        self.phase.load(Relaxed) < Phase::Over as u8
    }

    /// Whether events count now.
    pub(crate) fn is_measuring(&self) -> bool {
        self.phase.load(Relaxed) == Phase::Measuring as u8
    }

    /// The part of a latency that lies outside the pause; it ends now.
    fn without_pause(&self, latency: u64, now: u64) -> u64 {
        let began = now.saturating_sub(latency);
        let [from, to] = self.pause.each_ref().map(|edge| edge.load(Relaxed));
        latency - to.saturating_sub(began.max(from)).min(latency)
    }

    /// Responses within the window so far, without those in recorders.
    pub(crate) fn responses(&self) -> u64 {
        lock(&self.histogram).len()
    }

    /// Records that `client` failed with this many requests in flight.
    pub(crate) fn record_fault(&self, client: usize, requests: u64, fault: &Fault) {
        if self.phase.load(Relaxed) == Phase::Interrupted as u8 {
            return;
        }
        if self.is_measuring() {
            self.failed.fetch_add(requests, Relaxed);
        }
        lock(&self.faults).record(client, fault);
    }

    pub(crate) fn has_no_faults(&self) -> bool {
        lock(&self.faults).by_kind.is_empty()
    }

    /// Takes the metrics. Every recorder must have been dropped.
    pub(crate) fn take_totals(&self) -> Totals {
        let empty = Histogram::new(SIGNIFICANT_DIGITS).expect("a constant number of digits");
        Totals {
            histogram: std::mem::replace(&mut lock(&self.histogram), empty),
            failed: self.failed.swap(0, Relaxed),
            faults: std::mem::take(&mut lock(&self.faults)),
        }
    }
}

impl Faults {
    pub(crate) fn record(&mut self, client: usize, fault: &Fault) {
        *self.by_kind.entry(fault.kind.name().to_owned()).or_default() += 1;
        self.first.get_or_insert_with(|| format!("client {client}: {}", fault.detail));
    }
}

/// The data is consistent at any time, even if a thread panicked with the lock.
fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects the latencies of one client; flushes the rest when dropped.
pub(crate) struct Recorder {
    metrics: Arc<Metrics>,
    latencies: Vec<u64>,
}

impl Recorder {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Recorder {
        Recorder { metrics, latencies: Vec::with_capacity(BATCH) }
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Records the latency in ns of a response that arrived now, if the window is open.
    pub(crate) fn record(&mut self, latency: u64, now: u64) {
        if self.metrics.is_measuring() {
            self.latencies.push(self.metrics.without_pause(latency, now));
            if self.latencies.len() == BATCH {
                self.flush();
            }
        }
    }

    /// Records the times of a request that was answered now, if the window is open.
    pub(crate) fn record_times(&mut self, times: Times, now: u64) {
        self.record(now.saturating_sub(times.due), now);
    }

    fn flush(&mut self) {
        let mut histogram = lock(&self.metrics.histogram);
        self.latencies.drain(..).for_each(|latency| histogram.saturating_record(latency));
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Kind;

    #[test]
    fn only_the_window_counts() {
        let metrics = Arc::new(Metrics::new());
        let fault = Fault::new(Kind::Reset, "as expected");
        let mut recorder = Recorder::new(Arc::clone(&metrics));
        recorder.record(5, 5);
        metrics.record_fault(0, 1, &fault);
        metrics.open(10..10);
        assert!(metrics.is_open());
        (1..=100).for_each(|latency| recorder.record(latency, 200));
        metrics.record_fault(3, 2, &fault);
        metrics.set_phase(Phase::Over);
        recorder.record(5, 300);
        assert!(!metrics.is_open() && !metrics.has_no_faults());
        drop(recorder);
        let Totals { histogram, failed, faults } = metrics.take_totals();
        assert_eq!((histogram.len(), histogram.max(), failed), (100, 100, 2));
        assert_eq!(faults.by_kind["reset"], 2);
        assert_eq!(faults.first.as_deref(), Some("client 0: as expected"));
    }

    #[test]
    fn a_latency_beyond_the_longest_counts_as_the_longest() {
        let metrics = Arc::new(Metrics::new());
        metrics.open(0..0);
        Recorder::new(Arc::clone(&metrics)).record(u64::MAX, u64::MAX);
        assert_eq!(metrics.take_totals().histogram.len(), 1);
    }

    #[test]
    fn the_pause_before_the_window_is_in_no_latency() {
        let metrics = Metrics::new();
        metrics.open(100..140);
        // Started before the pause, in it, at its end, after it.
        for (began, latency) in [(90, 20), (120, 10), (140, 10), (145, 5)] {
            assert_eq!(metrics.without_pause(150 - began, 150), latency, "begun at {began}");
        }
    }
}
