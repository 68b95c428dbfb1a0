//! The real measuring: servers as processes, our load in this one.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use annulus::DriverChoice;
use annulus_load::datagrams::{self, DatagramPlan, DatagramReport};
use annulus_load::visits::{self, VisitPlan, VisitReport};
use annulus_load::{LoadError, Mode, Observer, Place, Plan, Report};

use crate::proc::{Memory, Usage};
use crate::record::{Outcome, Sample, control_name};
use crate::schedule::{Cell, Measure, Visit};
use crate::server::{Server, ServerError, Spec};

/// How long a server that lost its clients may take to be found dead.
const DYING: Duration = Duration::from_millis(200);

/// How long a server may take to answer what is under way: several thousand requests.
const PATIENCE: Duration = Duration::from_millis(20);

/// How a slice is loaded, the same for every server and cell.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Connections that stay, and messages over them.
    Loop(Load),
    /// A connection a message.
    Visits(Visits),
    /// Datagrams.
    Letters(Letters),
}

/// Connections that stay, and messages over them for so long.
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
    pub fn plan(&self, cell: Cell, address: Place) -> Plan {
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

/// A connection a message, so many of them.
#[derive(Clone, Copy, Debug)]
pub struct Visits {
    /// Connections a slice.
    pub connections: Option<usize>,
    /// Event loops of the load.
    pub threads: usize,
    /// The core of the load.
    pub pin: Option<usize>,
    /// The seed of its messages.
    pub seed: u64,
    /// What the event loops run on.
    pub driver: DriverChoice,
}

impl Visits {
    /// Connections a slice where nothing is said: as many as clients, and enough for a p99.
    const LEAST: usize = 200;

    /// What the load does to a server in a cell.
    pub fn plan(&self, cell: Cell, address: Place) -> VisitPlan {
        VisitPlan {
            clients: cell.clients,
            connections: self.connections.unwrap_or(cell.clients.max(Visits::LEAST)),
            length: cell.bytes,
            threads: self.threads,
            pin: self.pin,
            seed: self.seed,
            driver: self.driver,
            ..VisitPlan::new(address)
        }
    }
}

/// Datagrams, for so long.
#[derive(Clone, Copy, Debug)]
pub struct Letters {
    /// How long the load runs before measuring starts.
    pub warm_up: Duration,
    /// How long is measured.
    pub duration: Duration,
    /// Datagrams under way at each client.
    pub window: usize,
    /// Whether clients send as one what leaves at once, and receive alike.
    pub segments: bool,
    /// The core of the load.
    pub pin: Option<usize>,
    /// The seed of its messages.
    pub seed: u64,
    /// What the clients run on.
    pub driver: DriverChoice,
}

impl Letters {
    /// What the load does to a server in a cell.
    pub fn plan(&self, cell: Cell, address: Place) -> DatagramPlan {
        DatagramPlan {
            clients: cell.clients,
            length: cell.bytes,
            window: self.window,
            segments: self.segments,
            warm_up: self.warm_up,
            duration: self.duration,
            pin: self.pin,
            seed: self.seed,
            driver: self.driver,
            ..DatagramPlan::new(address)
        }
    }
}

impl Work {
    /// Does it to a server in a cell.
    fn run(
        &self,
        cell: Cell,
        address: Place,
        observer: &mut dyn Observer,
    ) -> Result<Found, LoadError> {
        match self {
            Work::Loop(load) => {
                annulus_load::run(&load.plan(cell, address), observer).map(Found::from)
            }
            Work::Visits(visits) => {
                visits::run(&visits.plan(cell, address), observer).map(Found::from)
            }
            Work::Letters(letters) => {
                datagrams::run(&letters.plan(cell, address), observer).map(Found::from)
            }
        }
    }
}

/// All servers of a comparison, up and waiting, and the load that visits them.
#[derive(Debug)]
pub struct Rig {
    servers: Vec<Server>,
    cells: Vec<Cell>,
    work: Work,
}

impl Rig {
    /// Starts every server, and the first of them a second time as the control, which comes last.
    /// An idle server costs nothing, so they all stay up.
    pub fn start(specs: &[Spec], cells: &[Cell], work: Work) -> Result<Rig, ServerError> {
        let control = specs.first().map(|first| first.named(control_name(&first.name)));
        let all: Vec<Spec> = specs.iter().cloned().chain(control).collect();
        Rig::start_all(&all, cells, work)
    }

    /// Starts every server of these, of which the last is the control: the first one at an address of
    /// its own.
    pub fn start_all(all: &[Spec], cells: &[Cell], work: Work) -> Result<Rig, ServerError> {
        let servers = all.iter().map(Server::start).collect::<Result<_, _>>()?;
        Ok(Rig { servers, cells: cells.to_vec(), work })
    }

    /// The memory of every server, the control's last; `None` of one that has ended.
    pub fn memory(&self) -> Vec<Option<Memory>> {
        self.servers.iter().map(|server| Memory::of(server.pid()).ok()).collect()
    }
}

impl Measure for Rig {
    fn measure(&mut self, visit: Visit) -> Outcome {
        let server = &mut self.servers[visit.server];
        server.check(Duration::ZERO).map_err(one_line)?;
        let mut watch = Watch::new(server.pid());
        let found = self.work.run(self.cells[visit.cell], server.address().clone(), &mut watch);
        // A dead server explains more than what its clients saw, and they may see it first.
        let went_well = found.as_ref().is_ok_and(|found| found.trouble.is_none());
        server.check(if went_well { Duration::ZERO } else { DYING }).map_err(one_line)?;
        watch.sample(found.map_err(one_line)?).map_err(one_line)
    }
}

fn one_line(error: impl fmt::Display) -> String {
    error.to_string().replace('\n', " ")
}

/// Reads what the server has used when the measured window opens and when it closes.
///
/// Clients that are tasks send nothing while this reads, so a server runs out of work. Its time is read
/// when it has: at either edge of the window all that was sent is answered, and what it cost is
/// counted. (Read at once, the time of a server at work lacked up to a tick at either edge, and slices
/// with few requests were off by what was under way: by as much as all.) Threads go on until the window
/// closes, and some servers never rest: those are read after a moment.
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

    fn sample(self, found: Found) -> io::Result<Sample> {
        if let Some(trouble) = found.trouble {
            return Err(io::Error::other(trouble));
        }
        let used = self.closed?.since(self.opened?);
        if used.cpu_ns == 0 {
            return Err(io::Error::other("the server's CPU clock stands still here"));
        }
        let requests = found.requests as f64;
        Ok(Sample {
            requests: found.requests,
            seconds: found.seconds,
            requests_per_second: requests / found.seconds,
            server_cpu_us_per_request: used.cpu_ns as f64 / 1e3 / requests,
            mean_us: found.mean_us,
            p50_us: found.p50_us,
            p99_us: found.p99_us,
            server_switches_per_request: used.switches as f64 / requests,
            server_resident_bytes: Memory::of(self.pid)?.resident_bytes,
            client_cpu_share: found.client_cpu_share,
            lost: found.lost,
        })
    }
}

impl Observer for Watch {
    fn window_opened(&mut self) {
        self.opened = Usage::at_rest(self.pid, PATIENCE);
    }

    fn window_closed(&mut self) {
        self.closed = Usage::at_rest(self.pid, PATIENCE);
    }
}

/// What the load found, however it was done.
struct Found {
    requests: u64,
    seconds: f64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    client_cpu_share: f64,
    lost: u64,
    /// Why it can't be believed.
    trouble: Option<String>,
}

impl From<Report> for Found {
    fn from(report: Report) -> Found {
        Found {
            requests: report.responses,
            seconds: report.seconds,
            mean_us: report.latency_us.mean,
            p50_us: report.latency_us.p50,
            p99_us: report.latency_us.p99,
            client_cpu_share: report.client_cpu_share,
            lost: 0,
            trouble: trouble(report.responses, &report.errors, report.first_error.as_deref()),
        }
    }
}

impl From<VisitReport> for Found {
    fn from(report: VisitReport) -> Found {
        Found {
            requests: report.completed,
            seconds: report.seconds,
            mean_us: report.echo_us.average,
            p50_us: report.echo_us.p50,
            p99_us: report.echo_us.p99,
            client_cpu_share: report.client_cpu_share,
            lost: 0,
            trouble: trouble(report.completed, &report.errors, report.first_error.as_deref()),
        }
    }
}

impl From<DatagramReport> for Found {
    fn from(report: DatagramReport) -> Found {
        // Those that came within the window, whose time and CPU are known.
        let echoed = (report.datagrams_per_second * report.seconds).round() as u64;
        Found {
            requests: echoed,
            seconds: report.seconds,
            mean_us: report.latency_us.mean,
            p50_us: report.latency_us.p50,
            p99_us: report.latency_us.p99,
            client_cpu_share: report.client_cpu_share,
            lost: report.lost,
            trouble: trouble(echoed, &report.errors, report.first_error.as_deref()),
        }
    }
}

/// A slice in which anything went wrong is refused: what is left of it is faster than it should be.
fn trouble(
    responses: u64,
    errors: &BTreeMap<String, u64>,
    first_error: Option<&str>,
) -> Option<String> {
    if !errors.is_empty() {
        let errors = errors.iter().map(|(kind, count)| format!("{count} × {kind}"));
        let first = first_error.unwrap_or("no more is known");
        return Some(format!("{} ({first})", errors.collect::<Vec<_>>().join(", ")));
    }
    (responses == 0).then(|| "no request was answered within the slice; make it longer".into())
}
