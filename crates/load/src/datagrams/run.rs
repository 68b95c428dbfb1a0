//! From a plan to a report.

use super::client::Client;
use super::plan::DatagramPlan;
use super::report::{DatagramReport, DatagramTotals};
use crate::fault::Fault;
use crate::idle::sweep_interval;
use crate::measured::Measured;
use crate::metrics::{Metrics, Phase};
use crate::phases::{Pool, measure, unless_interrupted};
use crate::run::{LoadError, Observer};
use crate::{affinity, clock, limits};
use annulus::{JoinHandle, Runtime, time};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Carries out a plan on the calling thread, which it blocks.
///
/// Loss is no failure. Sockets that fail, and echoes that are those of no datagram, are counted in
/// [`DatagramReport::errors`].
///
/// # Errors
/// Where the run could not begin.
pub fn run(plan: &DatagramPlan, observer: &mut dyn Observer) -> Result<DatagramReport, LoadError> {
    plan.validate().map_err(LoadError::Plan)?;
    limits::reserve(plan.clients).map_err(LoadError::Files)?;
    let _pinned = plan.pin.map(affinity::pin).transpose().map_err(LoadError::Pin)?;
    let metrics = Arc::new(Metrics::new());
    let builder = Runtime::builder().driver(plan.driver).grace(Duration::ZERO);
    let mut runtime = builder.build().map_err(LoadError::Runtime)?;
    let driver = runtime.driver().to_string();
    let conducted = runtime.block_on(run_phases(plan, observer, &metrics));
    let (measured, totals) = conducted.map_err(LoadError::Runtime)?;
    drop(runtime);
    // The clients are gone, and with them their pads.
    Ok(DatagramReport::new(plan, driver, measured, totals, metrics.take_totals()))
}

async fn run_phases(
    plan: &DatagramPlan,
    observer: &mut dyn Observer,
    metrics: &Arc<Metrics>,
) -> (Measured, DatagramTotals) {
    let mut pool = ClientPool::start(plan, metrics);
    let mut measured = Measured::default();
    if metrics.has_no_faults() {
        measured = measure(&mut pool, [plan.warm_up, plan.duration], observer, metrics).await;
    }
    metrics.set_phase(Phase::Over);
    if !measured.interrupted {
        measured.interrupted = unless_interrupted(observer, pool.finish()).await.is_none();
    }
    if measured.interrupted {
        // What is about to come still counts; the rest is given up.
        let _ = time::timeout(INTERRUPTED_WAIT, pool.finish()).await;
        pool.mark_all_lost();
    }
    (measured, pool.totals())
}

/// How long a run that was interrupted waits for what is under way.
const INTERRUPTED_WAIT: Duration = Duration::from_millis(200);

/// All clients of a run.
struct ClientPool {
    clients: Vec<(Rc<Client>, JoinHandle<()>)>,
    timeout: Duration,
}

impl ClientPool {
    /// Opens every socket and starts its client. After the first failure, which goes on the board, no more are started.
    fn start(plan: &DatagramPlan, metrics: &Arc<Metrics>) -> ClientPool {
        let mut clients = Vec::with_capacity(plan.clients);
        for number in 0..plan.clients {
            match Client::open(plan, number, metrics) {
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
        ClientPool { clients, timeout: plan.timeout }
    }

    /// Waits until every echo has come or been given up.
    async fn finish(&mut self) {
        while !self.is_finished() {
            self.sweep();
            annulus::time::sleep(self.sweep_interval()).await;
        }
    }

    /// Counts what is under way as lost.
    fn mark_all_lost(&self) {
        self.clients.iter().for_each(|(client, _)| client.mark_all_lost());
    }

    fn totals(&self) -> DatagramTotals {
        let mut totals = DatagramTotals::default();
        for (client, _) in &self.clients {
            totals.add(client.counts(), client.corrupt());
        }
        totals
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
