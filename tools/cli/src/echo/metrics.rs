//! `--metrics`: serves the stats and traces of all workers over HTTP, on the first worker. The time
//! of a connection and the number of connections are limited, so that no client blocks others for
//! long.

use super::ask::ask_all;
use super::{Listen, Plan};
use crate::http::{
    self, Answer, MAX_CONNECTIONS, METRICS_TIMEOUT, PROMETHEUS_MEDIA_TYPE, Refusal, Request,
};
use annulus::Handle;
use annulus::net::TcpListener;
use annulus::shards::Shard;
use annulus::stats::{Stats, Trace, prometheus, trace_events};
use anyhow::{Context, Result};
use std::io;
use std::sync::Arc;

/// The number of descriptors: the listener and its connections.
pub(super) const METRICS_FILES: usize = 1 + MAX_CONNECTIONS;

/// Listens at the first available address.
pub(super) fn open(plan: &Plan, listen: &Listen) -> Result<(TcpListener, String)> {
    let listener = http::bind(&listen.addresses);
    let listener = listener.map_err(|error| plan.cannot_listen(&listen.endpoint, error));
    let listener = listener.context("--metrics")?;
    let address = listener.local_addr().context("cannot read the address of --metrics")?;
    Ok((listener, format!("http://{address}/metrics")))
}

/// Answers requests. Returns only when accepting fails.
pub(super) async fn serve(listener: TcpListener, shard: Shard) -> io::Result<()> {
    let handles: Arc<[Handle]> = shard.handles().into();
    let answer = move |request: Request| {
        let handles = Arc::clone(&handles);
        async move {
            match request.path.as_str() {
                "/metrics" => Ok(Answer::new(PROMETHEUS_MEDIA_TYPE, metrics(&handles).await)),
                "/trace" => Ok(Answer::new("application/json", trace(&handles).await)),
                _ => Err(Refusal::unknown("the only paths are /metrics and /trace")),
            }
        }
    };
    http::serve(listener, METRICS_TIMEOUT, answer).await
}

/// Returns the stats of the workers that answer in time, and `annulus_up` for each worker.
async fn metrics(handles: &[Handle]) -> String {
    let answers = ask_all(handles, Handle::stats).await.into_iter().enumerate();
    let stats = |(worker, answer): (usize, Result<io::Result<Stats>, _>)| {
        (worker.to_string(), answer.ok().and_then(Result::ok))
    };
    let answers: Vec<(String, Option<Stats>)> = answers.map(stats).collect();
    let up = answers.iter().map(|(worker, stats)| {
        format!("annulus_up{{shard=\"{worker}\"}} {}\n", u8::from(stats.is_some()))
    });
    let up: String = up.collect();
    let stats = answers.iter().filter_map(|(worker, stats)| Some((&**worker, stats.as_ref()?)));
    let text = prometheus(stats);
    format!(
        "# HELP annulus_up Whether the worker's loop answers.\n# TYPE annulus_up gauge\n{up}{text}"
    )
}

/// Returns the traces of the workers that answer in time.
async fn trace(handles: &[Handle]) -> String {
    let answers = ask_all(handles, Handle::trace).await.into_iter().enumerate();
    let trace = |(worker, answer): (usize, Result<io::Result<Trace>, _>)| {
        Some((format!("worker {worker}"), answer.ok()?.ok()?))
    };
    let traces: Vec<(String, Trace)> = answers.filter_map(trace).collect();
    trace_events(traces.iter().map(|(name, trace)| (&**name, trace)))
}
