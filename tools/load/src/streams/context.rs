//! The state that the clients of a run share, and the state that those of a thread share.

use super::connect::CONNECTS;
use super::connect_pace::ConnectPace;
use crate::exchange::Protocol;
use crate::fault::Fault;
use crate::fault_log::FaultLog;
use crate::plan::{Plan, Streams};
use crate::recording::{Collector, Recorder};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::Semaphore;

/// The state that the clients of a run share.
pub(crate) struct StreamsRun {
    pub(crate) plan: Plan,
    pub(crate) streams: Streams,
    pub(crate) faults: FaultLog,
    pub(crate) collector: Arc<Collector>,
    pub(super) connects: ConnectPace,
    /// Connections begun.
    connections: AtomicUsize,
}

impl StreamsRun {
    pub(crate) fn new(plan: &Plan, streams: Streams) -> StreamsRun {
        StreamsRun {
            plan: plan.clone(),
            streams,
            faults: FaultLog::default(),
            collector: Collector::with_classes(
                plan.duration,
                plan.interval,
                plan.protocol.recorded_classes().len(),
            ),
            connects: ConnectPace::new(streams.connect_rate),
            connections: AtomicUsize::new(0),
        }
    }

    /// The number of the next connection.
    pub(super) fn next_connection(&self) -> usize {
        self.connections.fetch_add(1, Relaxed)
    }
}

/// The state that the clients of a thread share.
pub(crate) struct Context<P> {
    pub(crate) run: Arc<StreamsRun>,
    pub(crate) protocol: P,
    pub(crate) recorder: RefCell<Recorder>,
    /// Whether clients send further requests.
    pub(crate) is_open: Cell<bool>,
    /// Bounds the connects in progress.
    pub(super) connecting: Semaphore,
}

impl<P: Protocol> Context<P> {
    /// The context of one of `threads` threads.
    pub(crate) fn new(run: Arc<StreamsRun>, protocol: P, threads: usize) -> Context<P> {
        let connecting = Semaphore::new((CONNECTS / threads).max(1));
        let recorder = RefCell::new(Recorder::new(&run.collector));
        Context { run, protocol, recorder, is_open: Cell::new(true), connecting }
    }

    /// Waits for a turn to connect, and connects.
    pub(super) async fn connect(&self) -> Result<P::Transport, Fault> {
        self.run.connects.wait().await;
        let _permit = self.connecting.acquire().await.expect("it is never closed");
        self.protocol.connect(self.run.next_connection()).await
    }
}
