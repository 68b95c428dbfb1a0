//! The metrics of a run, which its clients share: of datagrams, and of clients that have a thread each.

use crate::exchange::Outcome;
use crate::fault::Fault;
use crate::plan::Plan;
use crate::recording::{Collector, Interval, Recorder};
use crate::schedule::Times;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Replies that a batch collects before it takes the lock.
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
    pub(crate) collector: Arc<Collector>,
    recorder: Mutex<Recorder>,
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
    pub(crate) intervals: Vec<Interval>,
    pub(crate) faults: Faults,
}

impl Metrics {
    pub(crate) fn new(plan: &Plan) -> Metrics {
        let collector = Collector::new(plan.duration, plan.interval);
        Metrics {
            phase: AtomicU8::new(Phase::WarmUp as u8),
            recorder: Mutex::new(Recorder::new(&collector)),
            collector,
            faults: Mutex::default(),
        }
    }

    /// Opens the window after a pause in which the clients had to wait. The pause is part of no latency.
    pub(crate) fn open(&self, pause: Range<u64>) {
        lock(&self.recorder).open(pause);
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

    /// Responses within the window so far, without those in batches.
    pub(crate) fn responses(&self) -> u64 {
        lock(&self.recorder).responses()
    }

    /// Records that `client` failed with this many requests in flight.
    pub(crate) fn record_fault(&self, client: usize, requests: u64, fault: &Fault) {
        if self.phase.load(Relaxed) == Phase::Interrupted as u8 {
            return;
        }
        if self.is_measuring() {
            lock(&self.recorder).failed(requests);
        }
        lock(&self.faults).record(client, fault);
    }

    pub(crate) fn has_no_faults(&self) -> bool {
        lock(&self.faults).by_kind.is_empty()
    }

    /// Takes the metrics of a run that took this long. Every batch must have been dropped.
    pub(crate) fn take_totals(&self, measured: Duration, each: impl FnMut(&Interval)) -> Totals {
        lock(&self.recorder).finish();
        Totals {
            intervals: self.collector.finish(measured, each),
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

/// Collects the replies of one client; flushes the rest when dropped.
pub(crate) struct Batch {
    metrics: Arc<Metrics>,
    /// With the time of their replies.
    requests: Vec<(Times, u64)>,
}

impl Batch {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Batch {
        Batch { metrics, requests: Vec::with_capacity(BATCH) }
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Records a latency, which ends now, if the window is open.
    pub(crate) fn record_latency(&mut self, latency: u64, now: u64) {
        let began = now.saturating_sub(latency);
        self.record(Times::all(began), now);
    }

    /// Records the reply to a request, which arrived now, if the window is open.
    pub(crate) fn record(&mut self, request: Times, now: u64) {
        if self.metrics.is_measuring() {
            self.requests.push((request, now));
            if self.requests.len() == BATCH {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        let mut recorder = lock(&self.metrics.recorder);
        for (request, now) in self.requests.drain(..) {
            recorder.sent(&request);
            recorder.answered(request, Outcome::Ok, now);
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Kind;
    use crate::plan::Streams;

    #[test]
    fn only_the_window_counts() {
        let plan = Plan::new("127.0.0.1:7000".parse().unwrap(), Streams::default());
        let metrics = Arc::new(Metrics::new(&plan));
        let fault = Fault::new(Kind::Reset, "as expected");
        let mut batch = Batch::new(Arc::clone(&metrics));
        batch.record_latency(5, 5);
        metrics.record_fault(0, 1, &fault);
        metrics.open(10..10);
        assert!(metrics.is_open());
        (1..=100).for_each(|latency| batch.record_latency(latency, 200));
        metrics.record_fault(3, 2, &fault);
        metrics.set_phase(Phase::Over);
        batch.record_latency(5, 300);
        assert!(!metrics.is_open() && !metrics.has_no_faults());
        drop(batch);
        let Totals { intervals, faults } = metrics.take_totals(Duration::from_secs(60), |_| ());
        let [recorded] = &intervals[..] else { panic!("not one interval: {intervals:?}") };
        assert_eq!((recorded.response.len(), recorded.response.max()), (100, 100));
        assert_eq!((recorded.sent, recorded.failed), (100, 2));
        assert_eq!(faults.by_kind["reset"], 2);
        assert_eq!(faults.first.as_deref(), Some("client 0: as expected"));
    }
}
