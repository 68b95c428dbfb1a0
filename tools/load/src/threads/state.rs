//! The state that the threads of a run share, and the state that the clients of a thread share.

use super::pool::{CONNECTS, Kind};
use crate::fault::Fault;
use crate::fault_log::FaultLog;
use crate::plan::Plan;
use crate::recording::{Collector, Recorder};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::Semaphore;

/// The state that the threads of a run share.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) faults: FaultLog,
    pub(crate) collector: Arc<Collector>,
    /// Connections begun.
    connections: AtomicUsize,
}

impl Run {
    pub(crate) fn new(plan: &Plan) -> Arc<Run> {
        let classes = plan.protocol.recorded_classes().len();
        Arc::new(Run {
            plan: plan.clone(),
            faults: FaultLog::default(),
            collector: Collector::new(plan.duration, plan.interval, classes),
            connections: AtomicUsize::new(0),
        })
    }
}

/// The state that the clients of a thread share.
pub(crate) struct Context<K> {
    pub(crate) run: Arc<Run>,
    pub(crate) kind: K,
    pub(crate) recorder: RefCell<Recorder>,
    /// Whether clients send further requests.
    pub(crate) is_open: Cell<bool>,
    /// Bounds the connects in progress.
    connecting: Semaphore,
}

impl<K: Kind> Context<K> {
    /// The context of one of `threads` threads.
    pub(super) fn new(run: &Arc<Run>, kind: K, threads: usize) -> Context<K> {
        let connecting = Semaphore::new((CONNECTS / threads).max(1));
        let recorder = RefCell::new(Recorder::new(&run.collector));
        Context { run: Arc::clone(run), kind, recorder, is_open: Cell::new(true), connecting }
    }

    /// Waits for a turn to connect, and connects.
    pub(crate) async fn connect(&self) -> Result<K::Opened, Fault> {
        let _permit = self.connecting.acquire().await.expect("it is never closed");
        let number = self.run.connections.fetch_add(1, Relaxed);
        self.kind.connect(&self.run.plan, number).await
    }
}
