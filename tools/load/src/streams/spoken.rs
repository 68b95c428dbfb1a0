//! Runs the protocol of a plan.

use super::context::StreamsRun;
use super::run_protocol;
use crate::exchange::Echo;
use crate::exchange::http::{self, HttpExchange};
use crate::exchange::http2::{self, Http2Exchange};
use crate::exchange::redis::{Commands, RedisExchange};
use crate::exchange::script::ScriptExchange;
use crate::findings::Findings;
use crate::load_error::LoadError;
use crate::mix::Fill;
use crate::observer::Observer;
use crate::plan::{Plan, PlanError};
use crate::protocol::Protocol;
use crate::tls;
use crate::wire::Codec;
use crate::wire::{Connector, Sources};
use annulus::DriverChoice;
use std::rc::Rc;
use std::sync::Arc;

/// Why making requests does not fail.
const CHECKED: &str = "the plan was checked";

/// Runs the protocol of the plan, over plain streams or TLS.
pub(super) fn run(
    run: &Arc<StreamsRun>,
    driver: DriverChoice,
    observer: &mut dyn Observer,
    sources: Sources,
) -> Result<Findings, LoadError> {
    let plan = &run.plan;
    let connector = connector(plan, sources)?;
    let (seed, clients) = (plan.seed, plan.clients);
    let refusal = &run.faults.refusal;
    let fill = move |client| Fill::new(seed, client, clients);
    match &plan.protocol {
        Protocol::Echo => run_protocol(run, driver, observer, || {
            let length = plan.length;
            Codec::new(&connector, move |client| Echo::new(seed, client, length))
        }),
        Protocol::Http(http) => run_protocol(run, driver, observer, || {
            let (requests, refusal) =
                (Rc::new(http::Requests::new(http).expect(CHECKED)), refusal.clone());
            Codec::new(&connector, move |client| {
                HttpExchange::new(&requests, fill(client), &refusal)
            })
        }),
        Protocol::Http2(http) => run_protocol(run, driver, observer, || {
            let (requests, refusal) = (
                Rc::new(http2::Requests::new(http, plan.tls.is_some()).expect(CHECKED)),
                refusal.clone(),
            );
            Codec::new(&connector, move |client| {
                Http2Exchange::new(&requests, fill(client), &refusal)
            })
        }),
        Protocol::Redis(redis) => run_protocol(run, driver, observer, || {
            let (commands, refusal) =
                (Rc::new(Commands::new(redis).expect(CHECKED)), refusal.clone());
            Codec::new(&connector, move |client| {
                RedisExchange::new(&commands, fill(client), &refusal)
            })
        }),
        Protocol::Script(script) => run_protocol(run, driver, observer, || {
            let (script, refusal) = (Rc::new(script.clone()), refusal.clone());
            Codec::new(&connector, move |client| {
                ScriptExchange::new(&script, fill(client), &refusal)
            })
        }),
    }
}

fn connector(plan: &Plan, sources: Sources) -> Result<Connector, LoadError> {
    let tls = plan.tls.as_ref().map(|tls| tls::connector(tls, plan.protocol.alpn())).transpose();
    let tls = tls.map_err(|error| LoadError::Plan(PlanError::Tls(error)))?;
    Ok(Connector { plan: plan.clone(), sources, tls })
}
