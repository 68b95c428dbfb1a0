//! `bench programs`: whole programs under clients: hyper on runtimes, servers of files, stores, proxies.
//!
//! A [`Comparison`] is data: its servers, and the [`Load`]s, each a client with its connections. Servers are built from peers
//! (`peers/README.md` has their contract) or installed, with a configuration beside the peers, and pinned to a core; the client runs on
//! another, unless they [share](Placement) all. CPU time is the server's in the measured window: of a client that is a program from its start to its end; requests and
//! latency are those that the client reports.

mod catalogue;
mod client;
mod contender;
mod fixture;
mod installed;
mod load;
mod placement;
mod servers;
mod syscalls;

use std::time::Duration;

use annulus_load::limits;
use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::bench::{
    Bench, CPU_KEY, Contenders, Format, Formula, Layout, Metric, Plan, Prepared, Role, client_cpu,
    cpu, mean, p50, p99, p99_9, parameters, requests, with_ratio,
};
use crate::cores::Cores;
use crate::peer::Peers;
use crate::scratch::Scratch;

pub use catalogue::{COMPARISONS, Comparison};
pub use client::Client;
pub use contender::Contender;
pub use load::Load;
pub use placement::Placement;

use client::Clients;
use contender::Recipe;
use fixture::Fixture;
use servers::Servers;
use syscalls::PERF;

/// The key of the metric that a precision may be asked for.
pub const PRECISE: &str = CPU_KEY;

fn metrics() -> Vec<Metric> {
    let calls = Metric::plain("syscalls", "calls", Formula::number("syscalls"));
    vec![
        requests(),
        Metric { role: Role::Primary, columns: with_ratio(), format: Format::Significant, ..cpu() },
        Metric { format: Format::Decimals(2), ..calls },
        mean(),
        p50(),
        p99(),
        p99_9(),
        client_cpu(),
    ]
}

/// A comparison, and how it is measured.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The comparison.
    pub comparison: &'static Comparison,
    /// Its rounds.
    pub plan: Plan,
    /// The servers.
    pub contenders: Vec<&'static Contender>,
    /// The loads.
    pub loads: Vec<&'static Load>,
    /// How long a slice is measured, in whole seconds, since wrk counts those.
    pub seconds: u64,
    /// The cores of servers and clients.
    pub cores: Cores,
    /// The peers.
    pub peers: Option<Peers>,
}

impl Setup {
    /// Builds the servers and starts them.
    ///
    /// # Errors
    /// If a server cannot be built or started, or no server or no load is left.
    pub fn prepare(self) -> Result<Prepared> {
        let Setup { comparison, plan, contenders, loads, seconds, cores, peers } = self;
        let (loads, missing) = available(loads)?;
        reserve_files(&loads)?;
        let placement = comparison.placement;
        let (server, client) = (placement.server(cores), placement.load(cores));
        let (mut contenders, recipes) = gather(&contenders, peers.as_ref(), server, comparison)?;
        contenders.missing.extend(missing);
        let scratch = Scratch::within(&std::env::temp_dir())
            .context("cannot make a directory for servers and clients: set TMPDIR elsewhere")?;
        let directory = scratch.path().to_owned();
        let fixture = Fixture::new(&directory, &loads, client)?;
        let clients = Clients { core: client, seconds, directory };
        let measure =
            Servers::start(recipes, contenders.baseline_index(), loads.clone(), clients, fixture)?;
        let bench = Bench {
            plan,
            terms: format!(" of {seconds} s, {}", placement.terms(cores)),
            legend:
                "; CPU µs: of the server, a request; calls: the server's system calls, a request"
                    .into(),
            layout: Layout::Cells,
            contenders,
            cells: loads.iter().map(|load| load.cell()).collect(),
            metrics: metrics(),
            idle: None,
            cores: (placement == Placement::Apart).then_some(cores),
            parameters: parameters(json!({
                "comparison": comparison.name, "seconds": seconds, "server_core": server, "load_core": client,
            })),
        };
        Ok(Prepared { bench, measure: Box::new(measure), scratch: Some(scratch) })
    }

    /// About how long a slice takes.
    pub fn cost(&self) -> Duration {
        /// To start and to end a client.
        const CLIENT: Duration = Duration::from_millis(80);
        Duration::from_secs(self.seconds) + CLIENT
    }
}

/// The servers that are available, with the control, and how to start each.
fn gather(
    all: &[&'static Contender],
    peers: Option<&Peers>,
    core: Option<usize>,
    comparison: &Comparison,
) -> Result<(Contenders, Vec<Recipe>)> {
    let (mut recipes, mut absent) = (Vec::new(), Vec::new());
    let found = all.iter().map(|contender| {
        let found = contender.prepare(peers, core)?;
        Ok(match found {
            Ok(recipe) => {
                let spec = recipe.spec.clone();
                recipes.push(recipe);
                Ok(spec)
            }
            Err(why) => {
                absent.push(contender.name.to_owned());
                Err(why)
            }
        })
    });
    let mut contenders = Contenders::gather(found, Some(comparison.baseline))?;
    contenders.absent = absent;
    if let Some(control) = &contenders.control {
        recipes.push(recipes[0].named(control));
    }
    Ok((contenders, recipes))
}

/// Raises the limit on open files, which servers inherit: a proxy has two for each connection.
fn reserve_files(loads: &[&Load]) -> Result<()> {
    let most = loads.iter().map(|load| load.connections).max().unwrap_or_default();
    Ok(limits::reserve(2 * most as usize)?)
}

/// The loads with a client that is installed, and what is left out for want of a program.
fn available(loads: Vec<&'static Load>) -> Result<(Vec<&'static Load>, Vec<String>)> {
    let (mut left, mut missing) = (Vec::new(), Vec::new());
    for load in loads {
        match load.client.missing() {
            None => left.push(load),
            Some(why) => missing.push(format!("load {} is left out: {why}", load.name)),
        }
    }
    ensure!(!left.is_empty(), "no load is left: {}", missing.join("; "));
    let perf = PERF.find().err();
    missing.extend(perf.map(|why| format!("system calls are not counted: {why}")));
    Ok((left, missing))
}
