//! The tasks of all clients, and the sweep that ends those without a reply.

use super::client::{Activity, Client};
use super::connect::Connection;
use crate::clock;
use crate::fault::Fault;
use crate::idle::{IdleTracker, sweep_interval};
use crate::metrics::{Metrics, Recorder};
use crate::phases::Pool;
use crate::plan::{Plan, Streams};
use annulus::{JoinError, JoinHandle, time};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take to close after the client's half-close. Exceeding it is no failure: every reply has
/// arrived.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The tasks of all clients.
pub(crate) struct ClientPool {
    clients: Vec<PooledClient>,
    metrics: Arc<Metrics>,
    reply_timeout: Duration,
}

struct PooledClient {
    task: JoinHandle<()>,
    activity: Rc<Activity>,
    idle: IdleTracker,
}

impl ClientPool {
    /// Starts a client per connection.
    pub(crate) fn start(
        plan: &Plan,
        streams: Streams,
        connections: Vec<Connection>,
        metrics: &Arc<Metrics>,
    ) -> ClientPool {
        let (now, windows) = (clock::now(), super::Windows::new(plan, streams));
        let client = |(number, stream)| {
            let recorder = Recorder::new(Arc::clone(metrics));
            let client =
                Client::new(number, stream, windows.payload(number), windows.of(number), recorder);
            let activity = client.activity();
            PooledClient {
                idle: IdleTracker::new(activity.changes(), now),
                activity,
                task: annulus::spawn(client.run()),
            }
        };
        let clients = connections.into_iter().enumerate().map(client).collect();
        ClientPool { clients, metrics: Arc::clone(metrics), reply_timeout: plan.reply_timeout }
    }

    /// Waits until every client has ended; keeps sweeping meanwhile.
    pub(crate) async fn finish(&mut self) {
        let interval = self.sweep_interval().min(CLOSE_TIMEOUT / 8);
        for number in 0..self.clients.len() {
            while let Err(time::Elapsed { .. }) = self.wait(number, interval).await {
                self.sweep();
            }
        }
    }

    async fn wait(&mut self, number: usize, limit: Duration) -> Result<(), time::Elapsed> {
        let ended = time::timeout(limit, &mut self.clients[number].task).await?;
        match ended.map_err(JoinError::try_into_panic) {
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Ok(()) | Err(Err(_)) => Ok(()),
        }
    }
}

impl Pool for ClientPool {
    fn is_finished(&self) -> bool {
        self.clients.iter().all(|client| client.task.is_finished())
    }

    fn sweep_interval(&self) -> Duration {
        sweep_interval(self.reply_timeout)
    }

    fn sweep(&mut self) {
        let now = clock::now();
        for (number, client) in self.clients.iter_mut().enumerate() {
            if !client.task.is_finished() {
                client.check(number, now, self.reply_timeout, &self.metrics);
            }
        }
    }
}

impl PooledClient {
    fn check(&mut self, number: usize, now: Duration, limit: Duration, metrics: &Metrics) {
        let idle = self.idle.idle_for(self.activity.changes(), now);
        if self.activity.is_closing() {
            if idle >= limit.min(CLOSE_TIMEOUT) {
                self.task.abort();
            }
        } else if idle >= limit && self.activity.in_flight() > 0 {
            self.task.abort();
            metrics.record_fault(number, self.activity.in_flight(), &Fault::reply_timeout(limit));
        }
    }
}
