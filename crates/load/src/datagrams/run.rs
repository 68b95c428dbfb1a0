//! The run of a workload of datagrams.

use super::client::Client;
use super::in_flight::Counts;
use crate::clock;
use crate::fault::Fault;
use crate::idle::sweep_interval;
use crate::measured::Measured;
use crate::metrics::{Metrics, Phase, Totals};
use crate::phases::{Pool, measure, on_runtime, unless_interrupted};
use crate::plan::{Datagrams, Plan};
use crate::recording::Latencies;
use crate::report::Findings;
use crate::run::{LoadError, Observer};
use crate::start_time::StartTime;
use annulus::{JoinHandle, time};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long an interrupted run waits for what is in flight.
const INTERRUPTED_WAIT: Duration = Duration::from_millis(200);

/// Runs the workload on the calling thread. Loss is no failure; sockets that fail and corrupt echoes are.
pub(crate) fn run(
    plan: &Plan,
    datagrams: Datagrams,
    observer: &mut dyn Observer,
) -> Result<Findings, LoadError> {
    let metrics = Arc::new(Metrics::new(plan));
    StartTime::of(plan).await_warm_up(observer).map_err(LoadError::Start)?;
    let run = run_clients(plan, datagrams, observer, &metrics);
    let (driver, (measured, counts)) = on_runtime(datagrams.driver, run)?;
    // Every client is dropped, and so has flushed its batch.
    let Totals { intervals, faults } = metrics.take_totals(measured.length, |_| ());
    let mut response = Latencies::default();
    intervals.iter().for_each(|interval| response.add(&interval.response));
    let figures = super::figures(plan, datagrams, measured, counts, &response.histogram());
    Ok(Findings { driver, measured, figures, intervals, faults })
}

async fn run_clients(
    plan: &Plan,
    datagrams: Datagrams,
    observer: &mut dyn Observer,
    metrics: &Arc<Metrics>,
) -> (Measured, Counts) {
    let mut pool = ClientPool::start(plan, datagrams, metrics).await;
    let mut measured = Measured::default();
    if metrics.has_no_faults() {
        measured = measure(&mut pool, [plan.warm_up, plan.duration], observer, metrics).await;
    }
    metrics.set_phase(Phase::Over);
    if !measured.interrupted {
        measured.interrupted = unless_interrupted(observer, pool.finish()).await.is_none();
    }
    if measured.interrupted {
        // Echoes that arrive now still count; the others are lost.
        let _ = time::timeout(INTERRUPTED_WAIT, pool.finish()).await;
        pool.mark_all_lost();
    }
    (measured, pool.counts())
}

/// All clients of a run, each with its task.
struct ClientPool {
    clients: Vec<(Rc<Client>, JoinHandle<()>)>,
    timeout: Duration,
}

impl ClientPool {
    /// Opens a socket per client and starts the clients. Stops at the first failure, which is recorded.
    async fn start(plan: &Plan, datagrams: Datagrams, metrics: &Arc<Metrics>) -> ClientPool {
        let mut clients = Vec::with_capacity(plan.clients);
        for number in 0..plan.clients {
            match Client::open(plan, datagrams, number, metrics).await {
                Ok(client) => {
                    let client = Rc::new(client);
                    clients.push((Rc::clone(&client), annulus::spawn(client.run())));
                }
                Err(error) => {
                    metrics.record_fault(number, 0, &Fault::connect(&error));
                    break;
                }
            }
        }
        ClientPool { clients, timeout: plan.reply_timeout }
    }

    /// Waits until every datagram is echoed or lost.
    async fn finish(&mut self) {
        while !self.is_finished() {
            self.sweep();
            time::sleep(self.sweep_interval()).await;
        }
    }

    /// Counts what is in flight as lost.
    fn mark_all_lost(&self) {
        self.clients.iter().for_each(|(client, _)| client.mark_all_lost());
    }

    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.clients.iter().for_each(|(client, _)| sum += client.counts());
        sum
    }
}

impl Pool for ClientPool {
    fn is_finished(&self) -> bool {
        self.clients.iter().all(|(_, task)| task.is_finished())
    }

    fn sweep_interval(&self) -> Duration {
        sweep_interval(self.timeout)
    }

    fn sweep(&mut self) {
        let now = clock::nanos();
        self.clients.iter().for_each(|(client, _)| client.sweep(now, self.timeout));
    }
}
