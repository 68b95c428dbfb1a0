//! Requests over connections that stay open.
//!
//! Each client keeps a number of requests in flight, and sends the next one when a reply arrives (a closed loop) or at fixed times (an
//! open loop). What a request and a reply are is the protocol's ([`crate::exchange`]); when a request is due, the schedule's
//! ([`crate::schedule`]).

mod activity;
mod backoff;
mod client;
#[cfg(test)]
mod simulated;

use crate::exchange::http::{self, HttpExchange};
use crate::exchange::http2::{self, Http2Exchange};
use crate::exchange::script::ScriptExchange;
use crate::exchange::{Echo, Exchange};
use crate::fault::Fault;
use crate::findings::Findings;
use crate::idle::IdleTracker;
use crate::load_error::LoadError;
use crate::mix::Fill;
use crate::observer::Observer;
use crate::plan::{Plan, Streams};
use crate::protocol::Protocol;
use crate::schedule::Pacer;
use crate::threads::{CLOSE_TIMEOUT, Context, Kind, Run, Settings, Swept};
use crate::wire::{Connector, Wire};
use crate::{clock, tls};
use activity::{Activity, Stage};
use annulus::JoinHandle;
use client::Client;
use std::rc::Rc;
use std::time::Duration;

const CHECKED: &str = "the plan was checked";

/// Runs the protocol of a plan.
pub(crate) fn run(
    plan: &Plan,
    streams: Streams,
    observer: &mut dyn Observer,
) -> Result<Findings, LoadError> {
    let run = Run::new(plan);
    let tls = plan.tls.as_ref().map(|tls| tls::connector(tls, plan.protocol.alpn())).transpose();
    let tls = tls.map_err(LoadError::Plan)?;
    let connector = Connector::new(streams, tls);
    let (seed, clients, length) = (plan.seed, plan.clients, plan.length);
    let fill = move |client| Fill::new(seed, client, clients);
    let refusal = || run.faults.refusal.clone();
    let settings = Settings::new(streams.driver, clients.div_ceil(plan.threads()), length);
    match &plan.protocol {
        Protocol::Echo => Findings::of(&run, settings, observer, || {
            Exchanges::new(&connector, streams, move |client| Echo::new(seed, client, length))
        }),
        Protocol::Http(http) => Findings::of(&run, settings, observer, || {
            let requests = Rc::new(http::Requests::new(http).expect(CHECKED));
            let refusal = refusal();
            Exchanges::new(&connector, streams, move |client| {
                HttpExchange::new(&requests, fill(client), &refusal)
            })
        }),
        Protocol::Http2(http) => Findings::of(&run, settings, observer, || {
            let requests = http2::Requests::new(http, plan.tls.is_some()).expect(CHECKED);
            let (requests, refusal) = (Rc::new(requests), refusal());
            Exchanges::new(&connector, streams, move |client| {
                Http2Exchange::new(&requests, fill(client), &refusal)
            })
        }),
        Protocol::Script(script) => Findings::of(&run, settings, observer, || {
            let (script, refusal) = (Rc::new(script.clone()), refusal());
            Exchanges::new(&connector, streams, move |client| {
                ScriptExchange::new(&script, fill(client), &refusal)
            })
        }),
    }
}

/// Clients that exchange messages over connections, as a thread of the load has them.
pub(crate) struct Exchanges<X> {
    connector: Connector,
    streams: Streams,
    /// Makes the exchange of a client. Clients of the whole run are counted from 0.
    make: Box<dyn Fn(usize) -> X>,
}

impl<X> Exchanges<X> {
    fn new(
        connector: &Connector,
        streams: Streams,
        make: impl Fn(usize) -> X + 'static,
    ) -> Exchanges<X> {
        Exchanges { connector: connector.clone(), streams, make: Box::new(make) }
    }
}

impl<X: Exchange + 'static> Kind for Exchanges<X> {
    type Opened = Wire;
    type Client = Connected;

    async fn connect(&self, plan: &Plan, number: usize) -> Result<Wire, Fault> {
        self.connector.connect(plan, number).await
    }

    fn start(
        context: &Rc<Context<Self>>,
        number: usize,
        wire: Wire,
        began: u64,
    ) -> (JoinHandle<()>, Connected) {
        let Plan { seed, clients, ref schedule, .. } = context.run.plan;
        let depth = context.kind.streams.pipeline;
        let pacer = Pacer::new(schedule, depth, [number, clients], seed, began);
        let client = Client::new(number, context, pacer);
        let activity = client.activity();
        let idle = IdleTracker::new(activity.changes(), clock::now());
        (annulus::spawn(client.run(wire)), Connected { activity, idle })
    }
}

/// A client, as the sweep sees it.
pub(crate) struct Connected {
    activity: Rc<Activity>,
    idle: IdleTracker,
}

impl Swept for Connected {
    fn sweep(&mut self, task: &mut JoinHandle<()>, limit: Duration) {
        let idle = self.idle.idle_for(self.activity.changes(), clock::now());
        match self.activity.stage() {
            Stage::Closing if idle >= limit.min(CLOSE_TIMEOUT) => task.abort(),
            Stage::Exchanging if idle >= limit && self.activity.is_waiting() => {
                self.activity.expire();
            }
            _ => {}
        }
    }

    fn closed(&self) {
        self.activity.wake();
    }
}
