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

use crate::measured::Measured;
use crate::metrics::{Metrics, Phase, Totals};
use crate::mode::Mode;
use crate::phases::{measure, on_runtime, unless_interrupted};
use crate::plan::{Plan, Streams};
use crate::report::{Figures, Findings, LatencySummary, StreamFigures};
use crate::run::{LoadError, Observer};
use connect::connect_all;
use hdrhistogram::Histogram;
use pool::ClientPool;
use std::sync::Arc;
use window::Window;

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
    let figures = figures(streams, measured, histogram, failed);
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
    streams: Streams,
    measured: Measured,
    histogram: Histogram<u64>,
    failed: u64,
) -> Figures {
    let responses = histogram.len();
    Figures::Streams(StreamFigures {
        pipeline: streams.pipeline,
        rate: streams.rate,
        requests: responses + failed,
        responses,
        requests_per_second: measured.per_second(responses as f64),
        latency_us: LatencySummary::new(&histogram),
        histogram,
    })
}

/// The window of a client that starts now. In an open loop the clients take turns.
fn window(plan: &Plan, streams: Streams, client: usize, now: u64) -> Window {
    let Streams { pipeline, rate, .. } = streams;
    let Some(rate) = rate else { return Window::closed(plan.length, pipeline, now) };
    let step = 1e9 / rate;
    let origin = now as f64 + client as f64 * step;
    Window::open(plan.length, pipeline, origin, plan.clients as f64 * step)
}
