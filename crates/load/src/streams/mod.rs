//! Messages over connections that stay open.
//!
//! Each client keeps a number of messages in flight, verifies every byte as it arrives, and sends the next message when a
//! reply arrives (a closed loop) or at fixed times (an open loop).

mod blocking;
mod client;
mod connect;
mod pool;
mod threads;
mod window;

pub(crate) use client::send_all;
pub(crate) use connect::{Connection, connect_unix};

use crate::clock;
use crate::measured::Measured;
use crate::metrics::{Metrics, Phase, Totals};
use crate::mix::Sizes;
use crate::mode::Mode;
use crate::payload::Payload;
use crate::phases::{measure, on_runtime, unless_interrupted};
use crate::plan::{Plan, Streams};
use crate::report::{Figures, Findings, LatencySummary, StreamFigures};
use crate::run::{LoadError, Observer};
use crate::schedule::{Pacer, Purpose, Rate, Schedule, generator};
use connect::connect_all;
use hdrhistogram::Histogram;
use pool::ClientPool;
use std::sync::Arc;
use window::{Lengths, Window};

/// Runs the workload on the calling thread.
pub(crate) fn run(
    plan: &Plan,
    streams: Streams,
    observer: &mut dyn Observer,
) -> Result<Findings, LoadError> {
    let metrics = Arc::new(Metrics::new());
    let (driver, measured) = match streams.mode {
        Mode::Tasks(choice) => on_runtime(choice, run_tasks(plan, streams, observer, &metrics))?,
        Mode::Threads => threads::run(plan, streams, observer, &metrics)?,
    };
    // Every client is dropped, and so has flushed its recorder.
    let Totals { histogram, failed, faults } = metrics.take_totals();
    let figures = figures(plan, streams, measured, histogram, failed);
    Ok(Findings { driver, measured, figures, faults })
}

/// Measures nothing unless every client is connected. If the run is interrupted, its clients end with the runtime.
async fn run_tasks(
    plan: &Plan,
    streams: Streams,
    observer: &mut dyn Observer,
    metrics: &Arc<Metrics>,
) -> Measured {
    let connected = unless_interrupted(observer, connect_all(plan, metrics)).await;
    let Some(connections) = connected else { return Measured::interrupted() };
    let mut measured = Measured::default();
    if metrics.has_no_faults() {
        let mut pool = ClientPool::start(plan, streams, connections, metrics);
        measured = measure(&mut pool, [plan.warm_up, plan.duration], observer, metrics).await;
        metrics.set_phase(Phase::Over);
        if !measured.interrupted {
            measured.interrupted = unless_interrupted(observer, pool.finish()).await.is_none();
        }
    }
    measured
}

pub(crate) fn figures(
    plan: &Plan,
    streams: Streams,
    measured: Measured,
    histogram: Histogram<u64>,
    failed: u64,
) -> Figures {
    let responses = histogram.len();
    Figures::Streams(StreamFigures {
        pipeline: streams.pipeline,
        rate: plan.schedule.rate().and_then(Rate::as_constant),
        schedule: plan.schedule.to_string(),
        requests: responses + failed,
        responses,
        requests_per_second: measured.per_second(responses as f64),
        latency_us: LatencySummary::new(&histogram),
        histogram,
    })
}

/// The windows of clients that start now.
struct Windows<'a> {
    plan: &'a Plan,
    pipeline: usize,
    /// The course of a rate begins after the warm-up.
    schedule: Schedule,
    sizes: Sizes,
    now: u64,
}

impl Windows<'_> {
    fn new(plan: &Plan, streams: Streams) -> Windows<'_> {
        let (pipeline, now) = (streams.pipeline, clock::nanos());
        let schedule = plan.schedule.after(plan.warm_up);
        Windows { plan, pipeline, schedule, sizes: plan.message_sizes(), now }
    }

    /// The window of a client.
    fn of(&self, client: usize) -> Window {
        let Plan { seed, clients, .. } = *self.plan;
        let pacer = Pacer::new(&self.schedule, self.pipeline, [client, clients], seed, self.now);
        let lengths = Lengths::new(&self.sizes, generator(seed, client, Purpose::Sizes));
        Window::new(pacer, lengths)
    }

    /// The payload of a client.
    fn payload(&self, client: usize) -> Payload {
        Payload::new(self.plan.seed, client, self.sizes.max())
    }
}
