//! Echo servers over TCP, UDP and Unix sockets, under our load.

mod catalogue;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use annulus_load::{Datagrams, PerConnection, ServerAddress, Streams, Workload, limits};
use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::bench::{
    Cell, Column, Fold, Format, Formula, Layout, Metric, Plan, Role, client_cpu, cpu, mean, p50,
    p99, parameters, requests, with_ratio,
};
use crate::cores::Cores;
use crate::describe::{Contender, Load, Missing, Placement, Setup, Shown};
use crate::peer::Peers;
use crate::process::START_TIMEOUT;
use crate::usage::{UsageError, own};

pub use catalogue::Catalogue;

/// Least connections of a slice with a connection a message, unless a number is given: enough for a p99.
const CONNECTIONS: usize = 200;

/// The transport between load and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP, which every server supports.
    Tcp,
    /// UDP.
    Udp,
    /// Unix streams.
    Unix,
}

impl Transport {
    /// The name of the transport in the file of a peer that supports it, unless all do.
    pub fn kind(self) -> Option<&'static str> {
        match self {
            Transport::Tcp => None,
            Transport::Udp => Some("udp"),
            Transport::Unix => Some("unix"),
        }
    }

    /// Where servers are started: ours, and peers.
    fn addresses(self) -> [&'static str; 2] {
        match self {
            Transport::Tcp => ["127.0.0.1:0", "0"],
            Transport::Udp => ["udp://127.0.0.1:0", "udp:0"],
            Transport::Unix => ["unix:{dir}/socket"; 2],
        }
    }
}

impl FromStr for Transport {
    type Err = UsageError;

    fn from_str(name: &str) -> Result<Transport, UsageError> {
        own(&[("tcp", Transport::Tcp), ("udp", Transport::Udp), ("unix", Transport::Unix)], name)
    }
}

/// The metrics of streams and of datagrams.
fn of_requests() -> Vec<Metric> {
    let switches = Formula::per("switches", &["operations"], 1.0);
    vec![
        requests(),
        Metric {
            role: Role::Primary,
            columns: vec![Column::Value, Column::Best, Column::Ratio],
            format: Format::Significant,
            ..cpu()
        },
        Metric { columns: Vec::new(), ..mean() },
        p50(),
        p99(),
        Metric { of: switches, ..Metric::hidden("switches") },
        Metric::hidden("resident_bytes"),
        client_cpu(),
    ]
}

/// Datagrams lost in all slices.
fn lost() -> Metric {
    let lost = Metric::plain("lost", "lost", Formula::number("lost"));
    Metric { format: Format::Whole, fold: Fold::Sum, ..lost }
}

/// The metrics of a workload.
fn metrics(workload: Workload) -> Vec<Metric> {
    let mut metrics = of_requests();
    match workload {
        Workload::Streams(_) => {}
        Workload::Datagrams(_) => metrics.push(lost()),
        Workload::PerConnection(_) => metrics.iter_mut().for_each(adapt_to_connections),
    }
    metrics
}

/// A connection is counted instead of a request, and its mean matters, not its median.
fn adapt_to_connections(metric: &mut Metric) {
    match metric.key.as_str() {
        "rate" => {
            metric.title = "connects/s".into();
            metric.columns = vec![Column::Value];
        }
        "mean_us" => metric.columns = with_ratio(),
        "p50_us" => metric.columns = Vec::new(),
        _ => {}
    }
}

/// The cell for these clients, each with messages of this length.
pub fn cell(clients: usize, bytes: usize) -> Cell {
    Cell::new([("clients", (clients as u64).into()), ("bytes", (bytes as u64).into())])
}

/// A load for any server: a cell sets its clients and the length of messages, a slice the address.
pub fn load(workload: impl Into<Workload>) -> annulus_load::Plan {
    annulus_load::Plan::new(ServerAddress::Inet(([127, 0, 0, 1], 1).into()), workload)
}

/// A comparison of servers under a load, over a transport.
#[derive(Debug)]
pub struct Echo {
    /// The rounds of the comparison.
    pub plan: Plan,
    /// The transport.
    pub transport: Transport,
    /// The servers to compare.
    pub servers: Vec<Contender>,
    /// The load; each cell sets its clients and the length of messages.
    pub load: annulus_load::Plan,
    /// The cores of servers and load.
    pub cores: Cores,
    /// The peers.
    pub peers: Option<Peers>,
}

impl Echo {
    /// The comparison in these cells.
    ///
    /// # Errors
    /// Names the invalid value, its limit and a remedy.
    pub fn setup(self, cells: &[Cell]) -> Result<Setup> {
        let loads = cells.iter().map(|cell| self.in_cell(cell));
        let loads = loads.collect::<Result<Vec<_>, UsageError>>()?;
        let files = cells.iter().filter_map(|cell| cell.number("clients")).max();
        let files = files.unwrap_or_default();
        limits::reserve(files as usize)?;
        let (terms, parameters) = self.terms();
        Ok(Setup {
            contenders: self.servers,
            baseline: None,
            loads,
            site: BTreeMap::new(),
            time: self.load.duration,
            placement: Placement::Apart,
            cores: self.cores,
            start_timeout: START_TIMEOUT,
            peers: self.peers,
            missing: Missing::LeftOut,
            notes: Vec::new(),
            rounds_a_process: usize::MAX,
            files,
            idle: None,
            check: None,
            plan: self.plan,
            shown: Shown {
                kind: self.transport.kind().unwrap_or("echo"),
                title: None,
                terms,
                legend: "; CPU µs: of the server, a request".into(),
                layout: Layout::Cells,
                metrics: metrics(self.load.workload),
                parameters,
            },
        })
    }

    fn in_cell(&self, cell: &Cell) -> Result<Load, UsageError> {
        let number = |name| cell.number(name).unwrap_or_default() as usize;
        let clients = number("clients");
        let workload = match self.load.workload {
            Workload::PerConnection(PerConnection { connections, threads, driver }) => {
                let connections = connections.or(Some(clients.max(CONNECTIONS)));
                PerConnection { connections, threads, driver }.into()
            }
            other => other,
        };
        let load = self.load.clone();
        let plan = annulus_load::Plan { workload, clients, length: number("bytes"), ..load };
        plan.validate().map_err(|error| UsageError(format!("{cell}: {error}")))?;
        Ok(Load::own(cell.clone(), plan, self.cost(cell)))
    }

    /// About how long a slice in a cell takes.
    fn cost(&self, cell: &Cell) -> Duration {
        /// The time per connection, and bytes per µs.
        const CONNECTION: Duration = Duration::from_micros(100);
        const BYTES: u64 = 500;
        let number = |name| cell.number(name).unwrap_or_default();
        let connections = CONNECTION * number("clients") as u32;
        match self.load.workload {
            Workload::Streams(_) | Workload::Datagrams(_) => {
                self.load.warm_up + self.load.duration + connections
            }
            Workload::PerConnection(_) => {
                connections + Duration::from_micros(number("clients") * number("bytes") / BYTES)
            }
        }
    }

    /// The load as text and as parameters of the report.
    fn terms(&self) -> (String, Map<String, Value>) {
        let (client, how, of_workload) = match self.load.workload {
            Workload::Streams(Streams { pipeline, driver, .. }) => {
                let how = format!("{pipeline} in flight a client");
                (driver.to_string(), how, json!({ "pipeline": pipeline }))
            }
            Workload::Datagrams(Datagrams { window, segments, driver }) => {
                let segmented = if segments { ", as segments" } else { "" };
                let how = format!("{window} in flight a client{segmented}");
                (driver.to_string(), how, json!({ "pipeline": window, "segments": segments }))
            }
            Workload::PerConnection(PerConnection { threads, driver, .. }) => {
                let how = format!("a connection a message, event loops: {threads}");
                (driver.to_string(), how, json!({ "per_connection": true, "threads": threads }))
            }
        };
        let (Cores { server, load }, seconds) = (self.cores, self.load.duration.as_secs_f64());
        let slices = match self.load.workload {
            Workload::PerConnection(_) => String::new(),
            _ => format!(" of {seconds} s"),
        };
        let text =
            format!("{slices}, servers on core {server}, load ({client}) on core {load}, {how}");
        let mut all = parameters(json!({
            "client": client,
            "seconds": seconds,
            "warm_up_seconds": self.load.warm_up.as_secs_f64(),
            "server_core": server,
            "load_core": load,
        }));
        all.extend(parameters(of_workload));
        (text, all)
    }
}
