//! What the clients of a run share that have a thread each.

use crate::fault::Fault;
use crate::fault_log::FaultLog;
use crate::load_error::LoadError;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::recording::{Collector, Recorder};
use crate::schedule::Times;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Replies that a batch collects before it takes the lock.
const BATCH: usize = 64;

/// What the clients share. A recorder of its own would be too much memory for each.
pub(super) struct SharedRun {
    pub(super) plan: Plan,
    pub(super) faults: FaultLog,
    pub(super) collector: Arc<Collector>,
    recorder: Mutex<Recorder>,
    /// Whether clients send further messages. No other memory is read because of it or the next one, so relaxed order is enough.
    is_open: AtomicBool,
    /// Whether replies count now.
    is_measuring: AtomicBool,
    /// Why not every client could start.
    error: Mutex<Option<LoadError>>,
}

impl SharedRun {
    pub(super) fn new(plan: &Plan) -> SharedRun {
        let collector = Collector::new(plan.duration, plan.interval);
        SharedRun {
            plan: plan.clone(),
            faults: FaultLog::default(),
            recorder: Mutex::new(Recorder::new(&collector)),
            collector,
            is_open: AtomicBool::new(true),
            is_measuring: AtomicBool::new(false),
            error: Mutex::default(),
        }
    }

    /// Measuring begins.
    pub(super) fn open(&self, now: u64) {
        self.recorder().open(now..now);
        self.is_measuring.store(true, Relaxed);
    }

    /// Measuring ends, and clients send nothing more. What they have collected is still recorded.
    pub(super) fn close(&self) {
        self.is_measuring.store(false, Relaxed);
        self.is_open.store(false, Relaxed);
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    pub(super) fn recorder(&self) -> MutexGuard<'_, Recorder> {
        lock(&self.recorder)
    }

    /// Records that `client` failed with this many requests in flight.
    pub(super) fn record_fault(&self, client: usize, requests: u64, fault: &Fault) {
        if self.is_measuring.load(Relaxed) {
            self.recorder().failed(requests);
        }
        self.faults.record(client, fault);
    }

    /// The run cannot go on.
    pub(super) fn fail(&self, error: LoadError) {
        self.close();
        lock(&self.error).get_or_insert(error);
    }

    pub(super) fn take_error(&self) -> Option<LoadError> {
        lock(&self.error).take()
    }
}

/// The data is consistent at any time, even if a thread panicked with the lock.
fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects the replies of one client; flushes the rest when dropped.
pub(super) struct Batch {
    run: Arc<SharedRun>,
    /// With the time of their replies.
    requests: Vec<(Times, u64)>,
}

impl Batch {
    pub(super) fn new(run: Arc<SharedRun>) -> Batch {
        Batch { run, requests: Vec::with_capacity(BATCH) }
    }

    pub(super) fn run(&self) -> &SharedRun {
        &self.run
    }

    /// Records the reply to a request, which arrived now, if replies count.
    pub(super) fn record(&mut self, request: Times, now: u64) {
        if self.run.is_measuring.load(Relaxed) {
            self.requests.push((request, now));
            if self.requests.len() == BATCH {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        let mut recorder = self.run.recorder();
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
    use crate::recording::Interval;

    #[test]
    fn only_the_window_counts() {
        let plan = Plan::new("127.0.0.1:7000".parse().unwrap(), Streams::default());
        let run = Arc::new(SharedRun::new(&plan));
        let fault = Fault::new(Kind::Reset, "as expected");
        let mut batch = Batch::new(Arc::clone(&run));
        batch.record(Times::all(0), 5);
        run.record_fault(0, 1, &fault);
        run.open(10);
        (1..=100).for_each(|latency| batch.record(Times::all(200 - latency), 200));
        run.record_fault(3, 2, &fault);
        assert!(run.is_open() && !run.faults.is_empty());
        run.close();
        batch.record(Times::all(295), 300);
        assert!(!run.is_open());
        drop(batch);
        run.recorder().finish();
        let mut recorded = Interval::default();
        let intervals = run.collector.finish(plan.duration, |_| ());
        intervals.iter().for_each(|interval| recorded.add(interval));
        assert_eq!((recorded.response.len(), recorded.response.max()), (100, 100));
        assert_eq!((recorded.sent, recorded.failed), (100, 2));
        let faults = run.faults.take();
        assert_eq!(faults.by_kind["reset"], 2);
        assert_eq!(faults.first.as_deref(), Some("client 0: as expected"));
    }
}
