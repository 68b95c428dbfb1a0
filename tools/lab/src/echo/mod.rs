//! Echo servers over TCP, UDP and Unix sockets, under our load.

mod catalogue;
mod load;
mod servers;

use std::str::FromStr;
use std::time::Duration;

use annulus_load::{Datagrams, PerConnection, ServerAddress, Streams, Workload, limits};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::bench::{
    Bench, Cell, Column, Contenders, Fold, Format, Formula, Layout, Metric, Plan, Prepared, Role,
    client_cpu, cpu, mean, p50, p99, parameters, requests, with_ratio,
};
use crate::cores::Cores;
use crate::process::Spec;
use crate::scratch::Scratch;
use crate::server::Server;
use crate::usage::{UsageError, own};

pub use catalogue::{Catalogue, Choice};
pub use load::load;
pub use servers::Servers;

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
    /// Its name in the file of a peer that supports it, unless all do.
    pub fn kind(self) -> Option<&'static str> {
        match self {
            Transport::Tcp => None,
            Transport::Udp => Some("udp"),
            Transport::Unix => Some("unix"),
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

/// A comparison.
#[derive(Debug)]
pub struct Setup {
    /// Its rounds.
    pub plan: Plan,
    /// The transport.
    pub transport: Transport,
    /// All servers.
    pub catalogue: Catalogue,
    /// The servers to compare.
    pub servers: Vec<Choice>,
    /// The clients and the length of messages.
    pub cells: Vec<Cell>,
    /// The load; each slice sets its address, clients and length.
    pub load: annulus_load::Plan,
    /// The cores of servers and load.
    pub cores: Cores,
    /// How long servers idle before their memory is read again.
    pub idle: Option<Duration>,
    /// Whether to leave out a server that does not build or start, instead of an error.
    pub is_lenient: bool,
}

impl Setup {
    /// Checks everything that can be checked before the start.
    ///
    /// # Errors
    /// Names the invalid value, its limit and a remedy.
    pub fn check(&self) -> Result<()> {
        let clients = self.cells.iter().filter_map(|cell| cell.number("clients")).max();
        limits::reserve(clients.unwrap_or_default() as usize)?;
        let check = |cell: &Cell| {
            load::check(&self.load, cell).map_err(|error| UsageError(format!("{cell}: {error}")))
        };
        Ok(self.cells.iter().try_for_each(check)?)
    }

    /// Builds peers and starts all servers, each with an address of its own.
    ///
    /// # Errors
    /// If a server cannot be built or started, or none is left.
    pub fn prepare(self) -> Result<Prepared> {
        let specs = self.servers.iter().map(|server| self.spec(server));
        let mut contenders = Contenders::gather(specs, None)?;
        let scratch = (self.transport == Transport::Unix).then(scratch).transpose()?;
        if let Some(scratch) = &scratch {
            for (number, spec) in contenders.all_mut().enumerate() {
                let address =
                    ServerAddress::Unix(scratch.path().join(number.to_string())).to_string();
                catalogue::listen_at(spec, &address, &address);
            }
        }
        let measure = Servers::start(&contenders, &self.cells, self.load.clone())?;
        let (terms, parameters) = self.terms();
        let bench = Bench {
            terms,
            legend: "; CPU µs: of the server, a request".into(),
            layout: Layout::Cells,
            metrics: metrics(self.load.workload),
            idle: self.idle,
            cores: Some(self.cores),
            parameters,
            plan: self.plan,
            cells: self.cells,
            contenders,
        };
        Ok(Prepared { bench, measure: Box::new(measure), scratch })
    }

    /// About how long a slice in a cell takes.
    pub fn cost(&self, cell: &Cell) -> Duration {
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

    /// How to run a server over the transport, or why it is missing.
    fn spec(&self, server: &Choice) -> Result<Result<Spec, String>> {
        let mut prepared = match self.catalogue.prepare(server, self.cores.server) {
            Err(error) if self.is_lenient => Err(error.to_string()),
            prepared => prepared?,
        };
        if let (Ok(spec), Transport::Udp) = (&mut prepared, self.transport) {
            catalogue::listen_at(spec, "udp://127.0.0.1:0", "udp:0");
        }
        if let Ok(spec) = &prepared
            && self.is_lenient
            && let Err(error) = Server::start(spec)
        {
            return Ok(Err(error.to_string()));
        }
        Ok(prepared)
    }

    /// What the load is, as text and as parameters of the report.
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

/// A directory for the paths of the servers.
fn scratch() -> Result<Scratch> {
    let directory = std::env::temp_dir();
    Scratch::within(&directory).with_context(|| {
        format!("cannot make a directory in {}: set TMPDIR elsewhere", directory.display())
    })
}
