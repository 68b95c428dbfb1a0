//! The real measuring: servers as processes, our load in this one.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use annulus_load::{Mode, Observer, Plan, Report};

use crate::proc::{Usage, resident_bytes};
use crate::record::{Outcome, Sample, control_name};
use crate::schedule::{Cell, Measure, Visit};
use crate::server::{Server, ServerError, Spec};

/// How long a server that lost its clients may take to be found dead.
const DYING: Duration = Duration::from_millis(200);

/// How a slice is loaded, the same for every server and cell.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How long the load runs before measuring starts.
    pub warm_up: Duration,
    /// How long is measured.
    pub duration: Duration,
    /// The core of the load.
    pub pin: Option<usize>,
    /// The seed of its messages.
    pub seed: u64,
    /// What the clients run on.
    pub client: Mode,
    /// Messages in flight at each connection.
    pub pipeline: usize,
}

impl Load {
    /// What the load does to a server in a cell.
    pub fn plan(&self, cell: Cell, address: SocketAddr) -> Plan {
        Plan {
            clients: cell.clients,
            length: cell.bytes,
            pipeline: self.pipeline,
            warm_up: self.warm_up,
            duration: self.duration,
            pin: self.pin,
            seed: self.seed,
            mode: self.client,
            ..Plan::new(address)
        }
    }
}

/// All servers of a comparison, up and waiting, and the load that visits them.
#[derive(Debug)]
pub struct Rig {
    servers: Vec<Server>,
    cells: Vec<Cell>,
    load: Load,
}

impl Rig {
    /// Starts every server, and the first of them a second time as the control, which comes last.
    /// An idle server costs nothing, so they all stay up.
    pub fn start(specs: &[Spec], cells: &[Cell], load: Load) -> Result<Rig, ServerError> {
        let control = specs.first().map(|first| first.named(control_name(&first.name)));
        let servers = specs.iter().chain(&control).map(Server::start).collect::<Result<_, _>>()?;
        Ok(Rig { servers, cells: cells.to_vec(), load })
    }
}

impl Measure for Rig {
    fn measure(&mut self, visit: Visit) -> Outcome {
        let server = &mut self.servers[visit.server];
        let plan = self.load.plan(self.cells[visit.cell], server.address());
        server.check(Duration::ZERO).map_err(one_line)?;
        let mut watch = Watch::new(server.pid());
        let report = annulus_load::run(&plan, &mut watch).map_err(one_line);
        // A dead server explains more than what its clients saw, and they may see it first.
        let went_well = report.as_ref().is_ok_and(|report| report.errors.is_empty());
        server.check(if went_well { Duration::ZERO } else { DYING }).map_err(one_line)?;
        watch.sample(&report?).map_err(one_line)
    }
}

fn one_line(error: impl fmt::Display) -> String {
    error.to_string().replace('\n', " ")
}

/// Reads what the server has used when the measured window opens and when it closes.
///
/// Clients that are tasks answer nobody while this reads, so a server runs out of work and its
/// figures stand still. Threads go on: what falls between a reading and the window's edge is as much
/// at either end.
struct Watch {
    pid: u32,
    opened: io::Result<Usage>,
    closed: io::Result<Usage>,
}

impl Watch {
    fn new(pid: u32) -> Watch {
        let never = || Err(io::Error::other("the measured window never opened or never closed"));
        Watch { pid, opened: never(), closed: never() }
    }

    fn sample(self, report: &Report) -> io::Result<Sample> {
        believe(report).map_err(io::Error::other)?;
        let used = self.closed?.since(self.opened?);
        if used.cpu_ns == 0 {
            return Err(io::Error::other("/proc/PID/task/*/schedstat counts no time here"));
        }
        let requests = report.responses as f64;
        Ok(Sample {
            requests: report.responses,
            seconds: report.seconds,
            requests_per_second: report.requests_per_second,
            server_cpu_us_per_request: used.cpu_ns as f64 / 1e3 / requests,
            p50_us: report.latency_us.p50,
            p99_us: report.latency_us.p99,
            server_switches_per_request: used.switches as f64 / requests,
            server_resident_bytes: resident_bytes(self.pid)?,
            client_cpu_share: report.client_cpu_share,
        })
    }
}

impl Observer for Watch {
    fn window_opened(&mut self) {
        self.opened = Usage::of(self.pid);
    }

    fn window_closed(&mut self) {
        self.closed = Usage::of(self.pid);
    }
}

/// Refuses a slice in which anything went wrong: what is left of it is faster than it should be.
fn believe(report: &Report) -> Result<(), String> {
    if !report.errors.is_empty() {
        let errors = report.errors.iter().map(|(kind, count)| format!("{count} × {kind}"));
        let first = report.first_error.as_deref().unwrap_or("no more is known");
        return Err(format!("{} ({first})", errors.collect::<Vec<_>>().join(", ")));
    }
    if report.responses == 0 {
        return Err("no request was answered within the slice; make it longer".into());
    }
    Ok(())
}
