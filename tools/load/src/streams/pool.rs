//! The clients of a thread, and the sweep that finds those without a reply.

use super::activity::{Activity, Stage};
use super::client::Client;
use super::connect::{Connected, connect_all};
use super::context::{Context, StreamsRun};
use crate::clock;
use crate::exchange::Protocol;
use crate::idle::{IdleTracker, sweep_interval};
use crate::threads::Share;
use annulus::{JoinError, JoinHandle, time};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take to close after the client's half-close. Exceeding it is no failure: every reply has
/// arrived.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The clients of one of several threads.
pub(super) struct ClientPool<P: Protocol> {
    context: Rc<Context<P>>,
    /// The number of this thread, and of all threads.
    index: usize,
    threads: usize,
    connections: Connected<P>,
    clients: Vec<PooledClient>,
}

struct PooledClient {
    task: JoinHandle<()>,
    activity: Rc<Activity>,
    idle: IdleTracker,
}

impl<P: Protocol> ClientPool<P> {
    /// The pool of thread `index` of `threads`: every client whose number divided by `threads` leaves `index`.
    pub(super) fn new(
        run: &Arc<StreamsRun>,
        protocol: P,
        index: usize,
        threads: usize,
    ) -> ClientPool<P> {
        let context = Rc::new(Context::new(Arc::clone(run), protocol, threads));
        ClientPool { context, index, threads, connections: Vec::new(), clients: Vec::new() }
    }

    async fn wait(&mut self, number: usize, limit: Duration) -> Result<(), time::Elapsed> {
        let ended = time::timeout(limit, &mut self.clients[number].task).await?;
        match ended.map_err(JoinError::try_into_panic) {
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Ok(()) | Err(Err(_)) => Ok(()),
        }
    }
}

impl<P: Protocol> Share for ClientPool<P> {
    async fn connect(&mut self) -> bool {
        let clients = self.context.run.plan.clients;
        let numbers = (self.index..clients).step_by(self.threads);
        self.connections = connect_all(&self.context, numbers).await;
        self.context.run.faults.is_empty()
    }

    fn start(&mut self, began: u64) {
        let now = clock::now();
        let pacers = super::Pacers::new(&self.context.run.plan, self.context.run.streams, began);
        let client = |(number, transport)| {
            let client = Client::new(number, &self.context, pacers.of(number));
            let activity = client.activity();
            let idle = IdleTracker::new(activity.changes(), now);
            PooledClient { task: annulus::spawn(client.run(transport)), activity, idle }
        };
        self.clients = std::mem::take(&mut self.connections).into_iter().map(client).collect();
    }

    fn open(&mut self, pause: Range<u64>) {
        self.context.recorder.borrow_mut().open(pause);
    }

    fn close(&mut self) -> Option<Duration> {
        self.context.recorder.borrow_mut().close();
        self.context.is_open.set(false);
        self.clients.iter().for_each(|client| client.activity.wake());
        None
    }

    fn responses(&self) -> u64 {
        self.context.recorder.borrow().responses()
    }

    fn is_finished(&self) -> bool {
        self.clients.iter().all(|client| client.task.is_finished())
    }

    fn sweep_interval(&self) -> Duration {
        sweep_interval(self.context.run.plan.reply_timeout)
    }

    fn sweep(&mut self) {
        let (now, limit) = (clock::now(), self.context.run.plan.reply_timeout);
        self.context.recorder.borrow_mut().tick(clock::nanos());
        self.clients.iter_mut().for_each(|client| client.check(now, limit));
    }

    /// Waits until every client has ended, and sweeps meanwhile.
    async fn finish(&mut self) {
        let interval = self.sweep_interval().min(CLOSE_TIMEOUT / 8);
        for number in 0..self.clients.len() {
            while let Err(time::Elapsed { .. }) = self.wait(number, interval).await {
                self.sweep();
            }
        }
    }

    /// Hands over the figures. The clients that are left end with the runtime.
    async fn end(self) {
        self.context.recorder.borrow_mut().finish();
    }
}

impl PooledClient {
    fn check(&mut self, now: Duration, limit: Duration) {
        let idle = self.idle.idle_for(self.activity.changes(), now);
        match self.activity.stage() {
            Stage::Closing if idle >= limit.min(CLOSE_TIMEOUT) => self.task.abort(),
            Stage::Exchanging if idle >= limit && self.activity.is_waiting() => {
                self.activity.expire();
            }
            _ => {}
        }
    }
}
