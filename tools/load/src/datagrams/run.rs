//! The run of a workload of datagrams.

use super::client::Client;
use crate::clock;
use crate::fault::Fault;
use crate::fault_log::FaultLog;
use crate::findings::Findings;
use crate::idle::sweep_interval;
use crate::load_error::LoadError;
use crate::observer::Observer;
use crate::plan::{Datagrams, Plan};
use crate::recording::{Collector, Recorder};
use crate::threads::{Settings, Share};
use annulus::{JoinHandle, time};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long an interrupted run waits for what is in flight.
const INTERRUPTED_WAIT: Duration = Duration::from_millis(200);

/// The state that the threads of a run share.
pub(super) struct DatagramsRun {
    pub(super) plan: Plan,
    pub(super) datagrams: Datagrams,
    pub(super) faults: FaultLog,
    collector: Arc<Collector>,
}

/// The state that the clients of a thread share.
pub(super) struct Context {
    pub(super) run: Arc<DatagramsRun>,
    pub(super) recorder: RefCell<Recorder>,
    /// Whether clients send further datagrams.
    pub(super) is_open: Cell<bool>,
}

/// Runs the workload. Loss is no failure; sockets that fail and corrupt echoes are.
pub(crate) fn run(
    plan: &Plan,
    datagrams: Datagrams,
    observer: &mut dyn Observer,
) -> Result<Findings, LoadError> {
    let run = Arc::new(DatagramsRun {
        plan: plan.clone(),
        datagrams,
        faults: FaultLog::default(),
        collector: Collector::new(plan.duration, plan.interval),
    });
    let settings = Settings::new(datagrams.driver, 0, 0);
    let threads = plan.threads();
    let share = |index| ClientPool::new(&run, (index..plan.clients).step_by(threads));
    Findings::of(plan, threads, settings, (&run.faults, &run.collector), observer, share)
}

/// The clients of a thread.
struct ClientPool<N> {
    context: Rc<Context>,
    numbers: N,
    clients: Vec<Rc<Client>>,
    /// The task of each client, once it has started.
    tasks: Vec<JoinHandle<()>>,
}

impl<N> ClientPool<N> {
    fn new(run: &Arc<DatagramsRun>, numbers: N) -> ClientPool<N> {
        let recorder = RefCell::new(Recorder::new(&run.collector));
        let context = Rc::new(Context { run: Arc::clone(run), recorder, is_open: Cell::new(true) });
        ClientPool { context, numbers, clients: Vec::new(), tasks: Vec::new() }
    }
}

impl<N: Iterator<Item = usize> + 'static> Share for ClientPool<N> {
    /// Opens a socket per client. Stops at the first failure.
    async fn connect(&mut self) -> bool {
        for number in self.numbers.by_ref() {
            match Client::open(&self.context, number).await {
                Ok(client) => self.clients.push(Rc::new(client)),
                Err(error) => {
                    self.context.run.faults.record(number, &Fault::connect(&error));
                    return false;
                }
            }
        }
        true
    }

    fn start(&mut self, _began: u64) {
        let start = |client: &Rc<Client>| annulus::spawn(Rc::clone(client).run());
        self.tasks = self.clients.iter().map(start).collect();
    }

    fn open(&mut self, pause: Range<u64>) {
        self.context.recorder.borrow_mut().open(pause);
    }

    fn close(&mut self) -> Option<Duration> {
        self.context.recorder.borrow_mut().close();
        self.context.is_open.set(false);
        None
    }

    fn responses(&self) -> u64 {
        self.context.recorder.borrow().responses()
    }

    fn is_finished(&self) -> bool {
        self.tasks.iter().all(JoinHandle::is_finished)
    }

    fn sweep_interval(&self) -> Duration {
        sweep_interval(self.context.run.plan.reply_timeout)
    }

    fn sweep(&mut self) {
        let (now, limit) = (clock::nanos(), self.context.run.plan.reply_timeout);
        self.context.recorder.borrow_mut().tick(now);
        self.clients.iter().for_each(|client| client.sweep(now, limit));
    }

    /// Waits until every datagram is echoed or lost.
    async fn finish(&mut self) {
        loop {
            self.sweep();
            if self.is_finished() {
                return;
            }
            time::sleep(self.sweep_interval()).await;
        }
    }

    /// Echoes that arrive soon still count; the others are lost.
    async fn end(mut self) {
        self.context.is_open.set(false);
        let _ = time::timeout(INTERRUPTED_WAIT, self.finish()).await;
        self.clients.iter().for_each(|client| client.mark_all_lost());
        self.sweep();
        self.context.recorder.borrow_mut().finish();
    }
}
