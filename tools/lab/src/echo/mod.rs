//! Echo servers over TCP, UDP and Unix sockets, under the load of annulus.

mod catalogue;

use std::str::FromStr;
use std::time::Duration;

use annulus_load::{Options, Turns, limits};
use anyhow::Result;
use serde_json::json;

use crate::bench::{
    Cell, Column, Fold, Format, Formula, Metric, Plan, Role, client_cpu, cpu, mean, p50, p99,
    parameters, requests, with_ratio,
};
use crate::cores::Cores;
use crate::describe::{Contender, Load, Placement, Presentation, Setup};
use crate::peer::Peers;
use crate::usage_error::{UsageError, find_own};

pub use catalogue::Catalogue;

/// The shortest turn of a load. The cost of a request varies within tenths of a second on a shared
/// machine.
const MIN_TURN: Duration = Duration::from_millis(10);

/// The transport between load and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP. Every server supports it.
    Tcp,
    /// Datagrams.
    Udp,
    /// Unix stream sockets.
    Unix,
}

impl Transport {
    /// Returns the name of the transport in the `serves` file of a peer, or `None` for TCP, which
    /// every peer supports.
    pub fn kind(self) -> Option<&'static str> {
        match self {
            Transport::Tcp => None,
            Transport::Udp => Some("udp"),
            Transport::Unix => Some("unix"),
        }
    }

    /// Returns two listen addresses: for annulus's own servers, and for peers.
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
        find_own(
            &[("tcp", Transport::Tcp), ("udp", Transport::Udp), ("unix", Transport::Unix)],
            name,
        )
    }
}

/// Returns the metrics common to streams and datagrams.
fn request_metrics() -> Vec<Metric> {
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

/// Returns the metric for datagrams lost in all slices.
fn lost_datagrams() -> Metric {
    let lost = Metric::plain("lost", "lost", Formula::number("lost"));
    Metric { format: Format::Whole, fold: Fold::Sum, ..lost }
}

fn metrics(transport: Transport, load: &Options) -> Vec<Metric> {
    let mut metrics = request_metrics();
    if transport == Transport::Udp {
        metrics.push(lost_datagrams());
    }
    if load.per_connection {
        metrics.iter_mut().for_each(adapt_to_connections);
    }
    metrics
}

/// Adapts a metric to connections: they are counted instead of requests, and the mean is shown
/// instead of the median.
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

/// Returns the turns of a load with this many connections. At the start of a turn, all clients
/// receive the replies that have arrived in the meantime and send together; in the warm-up each
/// sends a few times more.
fn turns(connections: usize) -> Turns {
    let length = MIN_TURN.max(Duration::from_micros(20) * connections as u32);
    Turns { length, warm_up: length / 2 }
}

/// Returns the cell for this many connections, with messages of this length.
pub fn cell(connections: usize, bytes: usize) -> Cell {
    Cell::new([("connections", (connections as u64).into()), ("bytes", (bytes as u64).into())])
}

/// A comparison of echo servers under a load.
#[derive(Debug)]
pub struct Echo {
    /// The name, the rounds and the seed.
    pub plan: Plan,
    /// The transport.
    pub transport: Transport,
    /// The servers to compare.
    pub servers: Vec<Contender>,
    /// The load. A cell sets its connections and message length, and a slice sets the address.
    pub load: Options,
    /// How long a slice is measured.
    pub time: Duration,
    /// The cores of servers and load.
    pub cores: Cores,
    /// The peers.
    pub peers: Option<Peers>,
}

impl Echo {
    /// Returns the comparison in these cells.
    ///
    /// # Errors
    /// If a value is invalid; the error contains the value, its limit and a remedy.
    pub fn setup(self, cells: &[Cell]) -> Result<Setup> {
        let loads = cells.iter().map(|cell| self.in_cell(cell));
        let loads = loads.collect::<Result<Vec<_>, UsageError>>()?;
        let files = cells.iter().filter_map(|cell| cell.number("connections")).max();
        let files = files.unwrap_or_default();
        limits::reserve(files as usize)?;
        let Options { driver, per_connection, warm_up, .. } = self.load;
        let [pipeline, threads] = [self.load.pipeline, self.load.threads.map(usize::from)]
            .map(|count| count.unwrap_or(1));
        let (seconds, cores) = (self.time.as_secs_f64(), Placement::Apart.terms(self.cores));
        let awake = self.cores.shown_awake();
        let how = match per_connection {
            true => format!("a connection per message, event loops: {threads}"),
            false => format!("{pipeline} in flight per connection"),
        };
        let shown = Presentation {
            kind: self.transport.kind().unwrap_or("echo"),
            title: None,
            terms: format!(" of {seconds} s, {cores} ({driver}), {how}{awake}"),
            legend: "; CPU µs: of the server, per request".into(),
            metrics: metrics(self.transport, &self.load),
            parameters: parameters(json!({
                "client": driver.to_string(),
                "seconds": seconds,
                "warm_up_seconds": warm_up.unwrap_or_default().as_secs_f64(),
                "server_core": self.cores.server,
                "load_core": self.cores.load,
                "pipeline": pipeline,
                "per_connection": per_connection,
                "threads": threads,
            })),
        };
        let contenders = self.servers;
        let setup = Setup::new(self.plan, self.time, self.cores, self.peers, shown);
        Ok(Setup { contenders, loads, files, ..setup })
    }

    fn in_cell(&self, cell: &Cell) -> Result<Load, UsageError> {
        let number = |name| cell.number(name).unwrap_or_default() as usize;
        let connections = number("connections");
        let scheme = if self.transport == Transport::Udp { "udp" } else { "tcp" };
        let options = Options {
            target: Some(format!("{scheme}://{{address}}")),
            connections: Some(connections),
            length: Some(number("bytes")),
            ..self.load.clone()
        };
        // Connecting, and whatever else a slice takes, is roughly this long.
        let connects = Duration::from_millis(5) + Duration::from_micros(40) * connections as u32;
        let turns = (!self.load.per_connection).then(|| turns(connections));
        let warm_ups = turns.map_or(Duration::ZERO, |turns| {
            turns.warm_up.mul_f64(self.time.div_duration_f64(turns.length))
        });
        let cost = self.load.warm_up.unwrap_or_default() + self.time + warm_ups + connects;
        let load = Load::own(cell.clone(), options, cost).checked();
        let load = load.map_err(|error| UsageError(format!("{cell}: {error}")))?;
        Ok(Load { turns, ..load })
    }
}
