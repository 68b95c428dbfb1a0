//! The threads of the load: each has a runtime with its share of the clients, and the calling thread observes.
//!
//! The calling thread commands the threads ([`Command`]), and they report how far they are ([`Event`]): all connect; once every
//! client is connected all start at the same time; after the warm-up all stop for as long as the observer takes to open the
//! window, so that the server is idle then (ADR 0017), and again when the window closes. Each thread closes the window by its own
//! clock. Nothing is shared between threads while clients work, so one thread costs what it would cost without the others.
//!
//! A [`ClientKind`] says of which kind the clients are: connections that exchange messages ([`crate::streams`]), or sockets of datagrams ([`crate::datagrams`]).

mod observe;
mod pool;
mod worker;

pub(crate) use observe::{ThreadResults, run};
#[cfg(test)]
pub(crate) use pool::ClientPool;
use pool::MAX_CONNECTS;
pub(crate) use pool::{CLOSE_TIMEOUT, ClientHandle, ClientKind};

use crate::fault::{Fault, FaultLog};
use crate::plan::Plan;
use crate::recording::{Collector, Recorder};
use annulus::{Builder, DriverChoice, Runtime};
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The measured time, and the CPU time of the load in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measurement {
    /// When measuring began, since the Unix epoch.
    pub(crate) started: Duration,
    pub(crate) length: Duration,
    pub(crate) cpu: Duration,
    /// How long the threads were ready to run and did not, together, if that is known.
    pub(crate) core_wait: Option<Duration>,
    /// Whether the observer ended the run early.
    pub(crate) interrupted: bool,
}

impl Measurement {
    /// An amount divided by the measured time; 0 if nothing was measured.
    pub(crate) fn per_second(self, amount: f64) -> f64 {
        if self.length.is_zero() { 0.0 } else { amount / self.length.as_secs_f64() }
    }

    /// Nothing was measured, as the run was interrupted before.
    pub(crate) fn interrupted() -> Measurement {
        Measurement { interrupted: true, ..Measurement::default() }
    }
}

/// A command to a thread.
#[derive(Clone, Copy, Debug)]
enum Command {
    /// Start the clients: all threads began then.
    Start(u64),
    /// Stand still until released, then measure.
    Open,
    /// Close the window early.
    Close,
}

/// A report of a thread.
#[derive(Debug)]
enum Event {
    /// The runtime of the thread runs on this driver, or cannot be made.
    Ready(io::Result<String>),
    /// Whether the clients of the thread are connected.
    Connected(bool),
    /// The thread stands still, before the window opens.
    Paused,
    /// Every client of the thread has ended.
    Finished,
    /// The thread has closed the window, and stands still.
    Closed { length: Duration, cpu: Duration },
    /// The thread has ended.
    Ended,
}

/// The state that the threads of a run share.
pub(crate) struct RunContext {
    pub(crate) plan: Plan,
    pub(crate) faults: FaultLog,
    pub(crate) collector: Arc<Collector>,
    /// Connections begun.
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
    /// Bounds the connects in progress.
    connecting: Semaphore,
}

impl<K: ClientKind> ThreadContext<K> {
    /// The context of one of `threads` threads.
    pub(super) fn new(run: &Arc<RunContext>, kind: K, threads: usize) -> ThreadContext<K> {
        let connecting = Semaphore::new((MAX_CONNECTS / threads).max(1));
        let recorder = RefCell::new(Recorder::new(&run.collector));
        ThreadContext { run: Arc::clone(run), kind, recorder, is_open: Cell::new(true), connecting }
    }

    /// Waits for a turn to connect, and connects.
    pub(crate) async fn connect(&self) -> Result<K::Opened, Fault> {
        let _permit = self.connecting.acquire().await.expect("it is never closed");
        let number = self.run.connections.fetch_add(1, Relaxed);
        self.kind.connect(&self.run.plan, number).await
    }
}

/// Clients from which on memory matters more than the fewest receives of large replies.
const MANY_CLIENTS: usize = 1000;
/// Bytes of all buffers, for many clients, unless these are fewer than [`MIN_BUFFERS`].
const TOTAL_BUFFER_BYTES: usize = 1 << 20;
/// The fewest buffers, so that large replies still come in pieces of the pool.
const MIN_BUFFERS: usize = 16;
/// The least and the largest buffer. A multiple of the page is asked for.
const BUFFER_SIZE_RANGE: [usize; 2] = [4 << 10, 256 << 10];

/// The settings of the runtime of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeSettings {
    driver: DriverChoice,
    /// Bytes of a receive buffer, and how many there are, unless they are the runtime's own.
    buffers: Option<(u32, u32)>,
}

impl RuntimeSettings {
    /// For so many clients of a thread, whose replies have about so many bytes. A reply takes a buffer until its client has seen it: thousands
    /// that come at once would take a large one each, or memory of their own.
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
            Some((size, count)) => builder.recv_buffers(size, count),
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
