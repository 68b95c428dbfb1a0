//! Requests over connections that stay open.
//!
//! Each client keeps a number of requests in flight, and sends the next one when a reply arrives (a closed loop) or at fixed times (an
//! open loop). What a request and a reply are is the protocol's ([`crate::exchange`]); when a request is due, the schedule's
//! ([`crate::schedule`]).
//!
//! # What a client is to the engine
//! A task of a thread ([`pool`]) that has an [`Activity`](activity::Activity) for the sweep, and the thread's
//! [`Context`](context::Context): it records into `recorder` what it sends and is answered, its failures into `run.faults`, and ends once
//! `is_open` is false. A protocol that multiplexes brings a client of its own.

mod activity;
mod backoff;
mod client;
mod connect;
mod connect_pace;
mod context;
mod pool;
#[cfg(test)]
mod simulated;
mod spoken;

use crate::exchange::Protocol;
use crate::findings::Findings;
use crate::load_error::LoadError;
use crate::observer::Observer;
use crate::plan::{Plan, Streams};
use crate::schedule::Pacer;
use crate::threads::Settings;
use crate::wire::Sources;
use annulus::DriverChoice;
use context::StreamsRun;
use pool::ClientPool;
use std::sync::Arc;

/// Runs the workload.
pub(crate) fn run(
    plan: &Plan,
    streams: Streams,
    observer: &mut dyn Observer,
) -> Result<Findings, LoadError> {
    let run = Arc::new(StreamsRun::new(plan, streams));
    // Connections that the client closes keep their ports for a while.
    let sources = match streams.requests_per_connection {
        Some(_) => Sources::Many,
        None => Sources::One,
    };
    spoken::run(&run, streams.driver, observer, sources)
}

/// Runs clients of one protocol, which each thread makes for itself.
fn run_protocol<P: Protocol>(
    run: &Arc<StreamsRun>,
    driver: DriverChoice,
    observer: &mut dyn Observer,
    protocol: impl Fn() -> P + Sync,
) -> Result<Findings, LoadError> {
    let plan = &run.plan;
    let threads = plan.threads();
    let clients = plan.clients.div_ceil(threads);
    let settings = Settings::new(driver, clients, plan.length);
    let share = |index| ClientPool::new(run, protocol(), index, threads);
    Findings::of(plan, threads, settings, (&run.faults, &run.collector), observer, share)
}

/// Says when the requests of clients are due that start at the same time.
struct Pacers<'a> {
    plan: &'a Plan,
    pipeline: usize,
    began: u64,
}

impl Pacers<'_> {
    fn new(plan: &Plan, streams: Streams, began: u64) -> Pacers<'_> {
        Pacers { plan, pipeline: streams.pipeline, began }
    }

    /// The requests of a client.
    fn of(&self, client: usize) -> Pacer {
        let Plan { seed, clients, .. } = *self.plan;
        Pacer::new(&self.plan.schedule, self.pipeline, [client, clients], seed, self.began)
    }
}
