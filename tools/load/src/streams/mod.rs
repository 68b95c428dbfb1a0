//! Requests over connections.
//!
//! Each client has up to a fixed number of requests in flight. It sends the next one after a reply
//! and a think time (a closed loop), or at a scheduled time (an open loop). The protocol defines
//! requests and replies ([`crate::exchange`]), and the schedule determines when a request is due
//! ([`crate::schedule`]).

mod backoff;
mod client;
#[cfg(test)]
mod simulated;

use crate::exchange::http::{self, HttpExchange};
use crate::exchange::http2::{self, Http2Exchange};
use crate::exchange::script::ScriptExchange;
use crate::exchange::{EchoExchange, Exchange};
use crate::fault::Fault;
use crate::findings::RunResults;
use crate::idle::IdleTracker;
use crate::load_error::LoadError;
use crate::mix::FieldValues;
use crate::observer::Observer;
use crate::plan::{Plan, Streams};
use crate::protocol::Protocol;
use crate::schedule::Pacer;
use crate::threads::{
    CLOSE_TIMEOUT, ClientHandle, ClientKind, RunContext, RuntimeSettings, ThreadContext,
};
use crate::transport::{Connector, Transport};
use crate::{clock, tls};
use annulus::task::JoinHandle;
use client::{Activity, Stage, StreamClient};
use std::rc::Rc;
use std::time::Duration;

const PLAN_IS_VALID: &str = "a validated plan is invalid";

pub(crate) fn run(
    plan: &Plan,
    streams: Streams,
    observer: &mut dyn Observer,
) -> Result<RunResults, LoadError> {
    let run = RunContext::new(plan);
    let requests_per_connection = plan.requests_per_connection(streams);
    let streams = Streams { requests_per_connection, ..streams };
    let tls = plan.tls.as_ref().map(|tls| tls::connector(tls, plan.protocol.alpn())).transpose();
    let tls = tls.map_err(LoadError::Plan)?;
    let connector = Connector::new(streams, tls);
    let (seed, clients, length) = (plan.seed, plan.clients, plan.length);
    let data = plan.protocol.data().cloned();
    let values = move |client| FieldValues::new(seed, client, clients).with_data(data.clone());
    let refusal = || run.faults.refusal.clone();
    let settings =
        RuntimeSettings::new(streams.driver, plan.own_clients().div_ceil(plan.threads()), length);
    match &plan.protocol {
        Protocol::Echo => RunResults::of(&run, settings, observer, || {
            StreamClientKind::new(&connector, streams, move |client| {
                EchoExchange::new(seed, client, length)
            })
        }),
        Protocol::Http(http) => RunResults::of(&run, settings, observer, || {
            let requests =
                Rc::new(http::Requests::new(http, plan.tls.is_some()).expect(PLAN_IS_VALID));
            let values = values.clone();
            let refusal = refusal();
            StreamClientKind::new(&connector, streams, move |client| {
                HttpExchange::new(&requests, values(client), &refusal)
            })
        }),
        Protocol::Http2(http) => RunResults::of(&run, settings, observer, || {
            let requests = http2::Requests::new(http, plan.tls.is_some()).expect(PLAN_IS_VALID);
            let (requests, refusal) = (Rc::new(requests), refusal());
            let values = values.clone();
            StreamClientKind::new(&connector, streams, move |client| {
                Http2Exchange::new(&requests, values(client), &refusal)
            })
        }),
        Protocol::Script(script) => RunResults::of(&run, settings, observer, || {
            let (script, refusal) = (Rc::new(script.clone()), refusal());
            let values = values.clone();
            StreamClientKind::new(&connector, streams, move |client| {
                ScriptExchange::new(&script, values(client), &refusal)
            })
        }),
    }
}

/// The kind of clients that exchange messages over connections. Each thread of the load has one.
pub(crate) struct StreamClientKind<X> {
    connector: Connector,
    streams: Streams,
    /// Creates the exchange of a client. The clients of the whole run count from 0.
    new_exchange: Box<dyn Fn(usize) -> X>,
}

impl<X> StreamClientKind<X> {
    fn new(
        connector: &Connector,
        streams: Streams,
        new_exchange: impl Fn(usize) -> X + 'static,
    ) -> StreamClientKind<X> {
        StreamClientKind {
            connector: connector.clone(),
            streams,
            new_exchange: Box::new(new_exchange),
        }
    }
}

impl<X: Exchange + 'static> ClientKind for StreamClientKind<X> {
    type Opened = Transport;
    type Handle = StreamClientHandle;

    async fn connect(&self, plan: &Plan, number: usize) -> Result<Transport, Fault> {
        self.connector.connect(plan, number).await
    }

    fn start(
        context: &Rc<ThreadContext<Self>>,
        number: usize,
        transport: Transport,
        began: u64,
    ) -> (JoinHandle<()>, StreamClientHandle) {
        let Plan { seed, clients, ref schedule, .. } = context.run.plan;
        let depth = context.kind.streams.pipeline;
        let pacer = Pacer::new(schedule, depth, [number, clients], seed, began);
        let client = StreamClient::new(number, context, pacer);
        let activity = client.activity();
        let idle = IdleTracker::new(activity.changes(), clock::now());
        (annulus::spawn(client.run(transport)), StreamClientHandle { activity, idle })
    }
}

/// A stream client as its thread's sweep sees it.
pub(crate) struct StreamClientHandle {
    activity: Rc<Activity>,
    idle: IdleTracker,
}

impl ClientHandle for StreamClientHandle {
    fn sweep(&mut self, task: &mut JoinHandle<()>, limit: Duration) {
        let idle = self.idle.idle_for(self.activity.changes(), clock::now());
        if !idle.is_zero() && self.activity.is_uploading() {
            // Wake the client's task: only the task can check whether the server's kernel has
            // acknowledged more bytes.
            self.activity.wake();
        }
        match self.activity.stage() {
            Stage::Closing if idle >= limit.min(CLOSE_TIMEOUT) => task.abort(),
            Stage::Exchanging if idle >= limit && self.activity.is_waiting() => {
                self.activity.expire();
            }
            _ => {}
        }
    }

    fn on_window_closed(&self) {
        self.activity.wake();
    }

    fn in_flight(&self) -> u64 {
        self.activity.in_flight()
    }

    fn take_unsent(&self, end: u64) -> u64 {
        self.activity.take_pacer().map_or(0, |pacer| pacer.unsent(end))
    }
}
