//! `bench programs`: servers of peers under clients of others, wrk and h2load.
//!
//! A [`Comparison`] is data: its servers, and the [`Load`]s, each a client with its connections. Servers are peers
//! (`peers/README.md` has their contract), pinned to a core; the client runs on another. CPU time is the server's, from
//! the client's start to its end; requests and latency are those that the client reports.

mod catalogue;
mod client;
mod servers;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::bench::{
    Bench, CLIENT_CPU, CPU, Contenders, Format, Layout, MEAN, Metric, P50, P99, PLAIN, Plan,
    Prepared, RATIO, REQUESTS, Role, parameters,
};
use crate::cores::Cores;
use crate::peer::Peers;
use crate::scratch::Scratch;

pub use catalogue::{COMPARISONS, Comparison, Contender, Load};
pub use client::Client;

use servers::{ClientSettings, Servers};

/// The key of the metric that a precision may be asked for.
pub const PRECISE: &str = CPU.key;

const METRICS: [Metric; 7] = [
    REQUESTS,
    Metric { role: Role::Primary, columns: RATIO, format: Format::Significant, ..CPU },
    Metric {
        key: "syscalls",
        title: "calls",
        of: |sample| sample.get("syscalls"),
        format: Format::Decimals(2),
        ..PLAIN
    },
    MEAN,
    P50,
    P99,
    CLIENT_CPU,
];

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
        let found = contenders.iter().map(|contender| contender.prepare(peers.as_ref(), cores));
        let mut contenders = Contenders::gather(found, Some(comparison.baseline))?;
        contenders.missing.extend(missing);
        let scratch = Scratch::within(&std::env::temp_dir())
            .context("cannot make a directory for the clients' scripts: set TMPDIR elsewhere")?;
        let clients =
            ClientSettings { core: cores.load, seconds, scripts: scratch.path().to_owned() };
        let specs = contenders.all().cloned().collect();
        let measure = Servers::start(specs, loads.clone(), clients)?;
        let Cores { server, load } = cores;
        let bench = Bench {
            plan,
            terms: format!(" of {seconds} s, servers on core {server}, clients on core {load}"),
            legend: "; CPU µs: of the server, a request; calls: the server's system calls, a request",
            layout: Layout::Cells,
            contenders,
            cells: loads.iter().map(|load| load.cell()).collect(),
            metrics: METRICS.into(),
            idle: None,
            cores: Some(cores),
            parameters: parameters(json!({
                "comparison": comparison.name, "seconds": seconds, "server_core": server, "load_core": load,
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
    let perf = client::missing("perf", "linux-perf");
    missing.extend(perf.map(|why| format!("system calls are not counted: {why}")));
    Ok((left, missing))
}
