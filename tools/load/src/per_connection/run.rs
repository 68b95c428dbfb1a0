//! The run of a connection per message: a thread per event loop, each with its share of the clients.

use super::connection::run_one;
use crate::clock;
use crate::fault_log::FaultLog;
use crate::findings::Findings;
use crate::load_error::LoadError;
use crate::observer::Observer;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::recording::{Collector, Recorder};
use crate::schedule::Times;
use crate::threads::{Settings, Share};
use annulus::{DriverChoice, JoinError, JoinHandle};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// How often to look whether every client has ended.
const SWEEP_INTERVAL: Duration = Duration::from_millis(2);

/// The state that the threads of a run share.
struct SharedRun {
    plan: Plan,
    faults: FaultLog,
    collector: Arc<Collector>,
    /// Connections started: each takes the next number.
    started: AtomicUsize,
}

/// The state that the clients of a thread share.
struct Context {
    run: Arc<SharedRun>,
    recorder: RefCell<Recorder>,
    /// Whether clients make further connections.
    is_open: Cell<bool>,
    /// Clients that have not ended, and when the last one has.
    running: Cell<usize>,
    ended: Cell<Duration>,
}

/// Runs the workload. The observer's window is the whole run. A client that fails does not continue.
pub(crate) fn run(
    plan: &Plan,
    driver: DriverChoice,
    observer: &mut dyn Observer,
) -> Result<Findings, LoadError> {
    let run = Arc::new(SharedRun {
        plan: plan.clone(),
        faults: FaultLog::default(),
        collector: Collector::new(plan.times()[1], plan.interval),
        started: AtomicUsize::new(0),
    });
    let settings = Settings::new(driver, 0, 0);
    let share = |index| ClientPool::new(&run, index);
    Findings::of(plan, plan.threads(), settings, (&run.faults, &run.collector), observer, share)
}

/// The clients of a thread. They start when the window opens.
struct ClientPool {
    context: Rc<Context>,
    clients: Vec<JoinHandle<()>>,
}

impl ClientPool {
    fn new(run: &Arc<SharedRun>, index: usize) -> ClientPool {
        let threads = run.plan.threads();
        let clients = run.plan.clients.min(run.plan.connections());
        let share = clients / threads + usize::from(index < clients % threads);
        let context = Rc::new(Context {
            run: Arc::clone(run),
            recorder: RefCell::new(Recorder::new(&run.collector)),
            is_open: Cell::new(true),
            running: Cell::new(share),
            ended: Cell::default(),
        });
        ClientPool { context, clients: Vec::new() }
    }
}

impl Share for ClientPool {
    async fn connect(&mut self) -> bool {
        true
    }

    fn start(&mut self, _began: u64) {}

    fn open(&mut self, pause: Range<u64>) {
        self.context.recorder.borrow_mut().open(pause);
        self.context.ended.set(clock::now());
        let client = |_| annulus::spawn(run_client(Rc::clone(&self.context)));
        self.clients = (0..self.context.running.get()).map(client).collect();
    }

    fn close(&mut self) -> Option<Duration> {
        self.context.recorder.borrow_mut().close();
        self.context.is_open.set(false);
        self.is_finished().then(|| self.context.ended.get())
    }

    fn responses(&self) -> u64 {
        self.context.recorder.borrow().responses()
    }

    fn is_finished(&self) -> bool {
        self.context.running.get() == 0
    }

    fn sweep_interval(&self) -> Duration {
        SWEEP_INTERVAL
    }

    fn sweep(&mut self) {
        self.context.recorder.borrow_mut().tick(clock::nanos());
    }

    async fn finish(&mut self) {
        for client in &mut self.clients {
            if let Err(Ok(panic)) = client.await.map_err(JoinError::try_into_panic) {
                std::panic::resume_unwind(panic);
            }
        }
    }

    /// Clients that are left end with the runtime.
    async fn end(self) {
        self.context.recorder.borrow_mut().finish();
    }
}

/// One client: one connection after the other, until none is left or one has failed.
async fn run_client(context: Rc<Context>) {
    let _running = Running(&context);
    while let Some(number) = context.next() {
        let plan = &context.run.plan;
        let sent = |request: &Times| context.recorder.borrow_mut().sent(request);
        let connected = run_one(plan, number, sent).await;
        let mut recorder = context.recorder.borrow_mut();
        match connected {
            Ok(connected) => {
                recorder.answered(connected.request, Outcome::Ok, connected.ended);
                recorder.phases(&connected.phases);
                recorder.bytes_sent(plan.length);
                recorder.bytes_received(plan.length);
            }
            Err(fault) => {
                recorder.failed(1);
                return context.run.faults.record(number, &fault);
            }
        }
    }
}

/// A client that has not ended. It ends when this is dropped, as by a panic.
struct Running<'a>(&'a Context);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
        self.0.ended.set(clock::now());
    }
}

impl Context {
    /// The number of the next connection, if one is left.
    fn next(&self) -> Option<usize> {
        let number = self.is_open.get().then(|| self.run.started.fetch_add(1, Relaxed))?;
        (number < self.run.plan.connections()).then_some(number)
    }
}
