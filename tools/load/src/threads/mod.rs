//! The threads of a load. Each worker thread has a runtime with its share of the clients, and the
//! calling thread observes.
//!
//! The calling thread sends [`Command`]s to the worker threads, and they report [`Event`]s. All
//! worker threads connect their clients, and start them together once every client is connected.
//! After the warm-up they pause while the observer opens the window, so that the server is idle
//! then, and they pause again when the window closes. Clients that take turns with those of other
//! loads also pause within the window. Each thread pauses and closes the window by its own clock. Threads exchange nothing per message, so each one costs as much as it would alone.
//!
//! A [`ClientKind`] determines what the clients are: connections that exchange messages
//! ([`crate::streams`]), or datagram sockets ([`crate::datagrams`]).

mod observe;
mod pool;
mod worker;

pub(crate) use observe::{ThreadResults, run};
#[cfg(test)]
pub(crate) use pool::ClientPool;
use pool::MAX_CONNECTS;
pub(crate) use pool::{CLOSE_TIMEOUT, ClientHandle, ClientKind};

use crate::fault::{Fault, FaultLog};
use crate::part::share;
use crate::plan::Plan;
use crate::recording::{Collector, Recorder};
use annulus::{Builder, DriverChoice, Runtime};
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The measured time, and the CPU time of the load during it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measurement {
    /// When measuring began, since the Unix epoch.
    pub(crate) started: Duration,
    pub(crate) length: Duration,
    pub(crate) cpu: Duration,
    /// The total time for which threads were ready to run but did not run, if known.
    pub(crate) core_wait: Option<Duration>,
    /// Whether the observer ended the run early.
    pub(crate) interrupted: bool,
}

impl Measurement {
    /// Divides an amount by the measured seconds; returns 0 if nothing was measured.
    pub(crate) fn per_second(self, amount: f64) -> f64 {
        if self.length.is_zero() { 0.0 } else { amount / self.length.as_secs_f64() }
    }

    /// Returns the measurement of a run that was interrupted before measuring began.
    pub(crate) fn interrupted() -> Measurement {
        Measurement { interrupted: true, ..Measurement::default() }
    }
}

/// A command to a worker thread.
#[derive(Clone, Copy, Debug)]
enum Command {
    /// Start the clients with this start time, which is the same on all threads.
    Start(u64),
    /// Pause until released, then measure.
    Open,
    /// Close the window early.
    Close,
}

/// A report from a worker thread.
#[derive(Debug)]
enum Event {
    /// The runtime uses this driver, or could not be created.
    Ready(io::Result<String>),
    /// Whether all clients of the thread are connected.
    Connected(bool),
    /// The thread with this index has paused before the window opens, or within it.
    Paused(usize),
    /// All clients of the thread have ended.
    Finished,
    /// The thread has closed the window and paused.
    Closed { length: Duration, cpu: Duration },
    /// The thread has ended.
    Ended,
}

/// The state that the threads of a run share.
pub(crate) struct RunContext {
    pub(crate) plan: Plan,
    pub(crate) faults: FaultLog,
    pub(crate) collector: Arc<Collector>,
    /// Number of connections attempted so far.
    connections: AtomicUsize,
}

impl RunContext {
    pub(crate) fn new(plan: &Plan) -> Arc<RunContext> {
        let classes = plan.protocol.recorded_classes().len();
        Arc::new(RunContext {
            plan: plan.clone(),
            faults: FaultLog::default(),
            collector: Collector::new(plan.duration, plan.interval, classes),
            connections: AtomicUsize::new(0),
        })
    }
}

/// The state that the clients of a thread share.
pub(crate) struct ThreadContext<K> {
    pub(crate) run: Arc<RunContext>,
    pub(crate) kind: K,
    pub(crate) recorder: RefCell<Recorder>,
    /// Whether clients send further requests.
    pub(crate) is_open: Cell<bool>,
    /// Number of requests that the clients of the thread may still send.
    quota: Cell<u64>,
    /// When the window closed, in nanoseconds on [`crate::clock`]. `None` before that, and also
    /// later if the run was interrupted before the window opened.
    pub(crate) closed_at: Cell<Option<u64>>,
    /// Limits the number of connects in progress.
    connecting: Semaphore,
}

impl<K: ClientKind> ThreadContext<K> {
    /// Creates the context of thread `index` out of the `threads` of all parts.
    pub(super) fn new(
        run: &Arc<RunContext>,
        kind: K,
        index: usize,
        threads: usize,
    ) -> ThreadContext<K> {
        let quota = run
            .plan
            .requests
            .map_or(u64::MAX, |requests| share(requests, [index, threads], run.plan.clients));
        let connecting = Semaphore::new((MAX_CONNECTS / run.plan.threads()).max(1));
        let recorder = RefCell::new(Recorder::new(&run.collector));
        let (is_open, closed_at) = (Cell::new(true), Cell::new(None));
        let (run, quota) = (Arc::clone(run), Cell::new(quota));
        ThreadContext { run, kind, recorder, is_open, quota, closed_at, connecting }
    }

    pub(crate) fn quota(&self) -> u64 {
        self.quota.get()
    }

    /// Takes requests from the quota, which must have as many.
    pub(crate) fn use_quota(&self, requests: usize) {
        self.quota.set(self.quota.get() - requests as u64);
    }

    /// Returns requests to the quota, because the server has not processed them.
    pub(crate) fn return_quota(&self, requests: u64) {
        self.quota.set(self.quota.get().saturating_add(requests));
    }

    /// Returns true if no further requests are to be sent: the window is closed, or the planned
    /// number of requests is reached.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_open.get() || self.quota.get() == 0
    }

    /// Waits for a permit, and connects.
    pub(crate) async fn connect(&self) -> Result<K::Opened, Fault> {
        let _permit = self.connecting.acquire().await.expect("the semaphore is closed");
        let number = self.run.connections.fetch_add(1, Relaxed);
        self.kind.connect(&self.run.plan, number).await
    }
}

/// With more clients than this, saving memory matters more than receiving large replies in few
/// pieces.
const MANY_CLIENTS: usize = 1000;
/// Total size of the receive buffers for many clients, unless that is fewer than [`MIN_BUFFERS`].
const TOTAL_BUFFER_BYTES: usize = 1 << 20;
/// The minimum number of buffers, so that large replies are still received into the pool.
const MIN_BUFFERS: usize = 16;
const BUFFER_SIZE_RANGE: [usize; 2] = [4 << 10, 256 << 10];

/// The settings of a worker thread's runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeSettings {
    driver: DriverChoice,
    /// The size and number of receive buffers, or `None` for the runtime's own default.
    buffers: Option<(u32, u32)>,
}

impl RuntimeSettings {
    /// Chooses settings for a thread with this many clients, whose replies have about `reply`
    /// bytes. A reply occupies a buffer until its client has seen it, so thousands of replies at
    /// once would occupy one large buffer each, or need memory of their own.
    pub(crate) fn new(driver: DriverChoice, clients: usize, reply: usize) -> RuntimeSettings {
        let [least, most] = BUFFER_SIZE_RANGE;
        let size = reply.clamp(least, most).next_power_of_two();
        let count = (TOTAL_BUFFER_BYTES / size).max(MIN_BUFFERS);
        let buffers = (clients > MANY_CLIENTS).then_some((size as u32, count as u32));
        RuntimeSettings { driver, buffers }
    }

    pub(super) fn builder(self) -> Builder {
        // No data is left to send when the clients have ended.
        let builder = Runtime::builder().driver(self.driver).shutdown_timeout(Duration::ZERO);
        match self.buffers {
            Some((size, count)) => builder.stream_buffer_size(size).stream_buffer_count(count),
            None => builder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_clients_get_small_buffers() {
        let buffers =
            |clients, reply| RuntimeSettings::new(DriverChoice::Auto, clients, reply).buffers;
        assert_eq!(buffers(MANY_CLIENTS, 128), None);
        assert_eq!(buffers(15_000, 128), Some((4096, 256)));
        assert_eq!(buffers(15_000, 5000), Some((8192, 128)));
        assert_eq!(buffers(15_000, 64 << 20), Some((256 << 10, 16)));
        for reply in [1, 5000, 64 << 20] {
            let settings = RuntimeSettings::new(DriverChoice::Auto, 15_000, reply);
            assert!(settings.builder().build().is_ok(), "{settings:?}");
        }
    }
}
