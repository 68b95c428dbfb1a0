//! What the load does to a server in a slice.

use std::collections::BTreeMap;
use std::time::Duration;

use annulus::DriverChoice;
use annulus_load::datagrams::{self, DatagramPlan, DatagramReport};
use annulus_load::per_connection::{self, PerConnectionPlan, PerConnectionReport};
use annulus_load::{LoadError, Mode, Observer, Plan, PlanError, Report, ServerAddress};

use crate::bench::{CLIENT_CPU_SHARE, Cell, Sample};

/// How a slice is loaded, the same for every server and cell.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// By what kind of client.
    pub kind: Kind,
    /// How long the load runs before it is measured.
    pub warm_up: Duration,
    /// How long is measured.
    pub duration: Duration,
    /// Messages in flight at each client.
    pub pipeline: usize,
    /// The core of the load.
    pub pin: Option<usize>,
    /// The seed of its messages.
    pub seed: u64,
}

/// What the clients do.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// They keep their connection and send messages over it.
    Streams(Mode),
    /// They make a connection for each message.
    Connections {
        /// Connections a slice; as many as clients, but enough for a p99, if it is not given.
        count: Option<usize>,
        /// Event loops of the load.
        threads: usize,
        /// What they run on.
        driver: DriverChoice,
    },
    /// They send datagrams.
    Datagrams {
        /// Whether datagrams leave, and come, several as one.
        segments: bool,
        /// What they run on.
        driver: DriverChoice,
    },
}

/// The fewest connections a slice, unless they are given: enough for a p99.
const CONNECTIONS: usize = 200;

/// A plan of the load.
enum AnyPlan {
    Streams(Plan),
    Connections(PerConnectionPlan),
    Datagrams(DatagramPlan),
}

impl Load {
    /// Whether the load can do this to any server.
    ///
    /// # Errors
    /// Names the value that cannot be, and its limit.
    pub fn check(&self, cell: &Cell) -> Result<(), PlanError> {
        let address = ServerAddress::Inet(([127, 0, 0, 1], 1).into());
        match self.plan(cell, address) {
            AnyPlan::Streams(plan) => plan.validate(),
            AnyPlan::Connections(plan) => plan.validate(),
            AnyPlan::Datagrams(plan) => plan.validate(),
        }
    }

    /// Loads the server at this address, and says what came of it, or why that cannot be accepted.
    pub(super) fn run(
        &self,
        cell: &Cell,
        address: ServerAddress,
        observer: &mut dyn Observer,
    ) -> Result<Sample, String> {
        let found = match self.plan(cell, address) {
            AnyPlan::Streams(plan) => annulus_load::run(&plan, observer).map(Found::from),
            AnyPlan::Connections(plan) => per_connection::run(&plan, observer).map(Found::from),
            AnyPlan::Datagrams(plan) => datagrams::run(&plan, observer).map(Found::from),
        };
        found.map_err(|error: LoadError| error.to_string())?.accept()
    }

    fn plan(&self, cell: &Cell, address: ServerAddress) -> AnyPlan {
        let Load { kind, warm_up, duration, pipeline, pin, seed } = *self;
        let number = |name| cell.number(name).unwrap_or_default() as usize;
        let (clients, length) = (number("clients"), number("bytes"));
        match kind {
            Kind::Streams(mode) => {
                let plan = Plan::new(address);
                AnyPlan::Streams(Plan {
                    clients,
                    length,
                    pipeline,
                    warm_up,
                    duration,
                    pin,
                    seed,
                    mode,
                    ..plan
                })
            }
            Kind::Connections { count, threads, driver } => {
                let connections = count.unwrap_or(clients.max(CONNECTIONS));
                let plan = PerConnectionPlan::new(address);
                AnyPlan::Connections(PerConnectionPlan {
                    clients,
                    connections,
                    length,
                    threads,
                    pin,
                    seed,
                    driver,
                    ..plan
                })
            }
            Kind::Datagrams { segments, driver } => {
                let (window, plan) = (pipeline, DatagramPlan::new(address));
                AnyPlan::Datagrams(DatagramPlan {
                    clients,
                    length,
                    window,
                    segments,
                    warm_up,
                    duration,
                    pin,
                    seed,
                    driver,
                    ..plan
                })
            }
        }
    }
}

/// What the load found, whatever its kind.
struct Found {
    operations: u64,
    numbers: [(&'static str, f64); 5],
    lost: Option<u64>,
    errors: BTreeMap<String, u64>,
    first_error: Option<String>,
}

impl Found {
    fn new(
        operations: u64,
        seconds: f64,
        [mean_us, p50_us, p99_us]: [f64; 3],
        client_cpu_share: f64,
        errors: BTreeMap<String, u64>,
        first_error: Option<String>,
    ) -> Found {
        let numbers = [
            ("ns", seconds * 1e9),
            ("mean_us", mean_us),
            ("p50_us", p50_us),
            ("p99_us", p99_us),
            (CLIENT_CPU_SHARE, client_cpu_share),
        ];
        Found { operations, numbers, lost: None, errors, first_error }
    }

    /// A slice in which anything went wrong is not accepted: what is left of it is faster than it should be.
    fn accept(self) -> Result<Sample, String> {
        if !self.errors.is_empty() {
            let errors = self.errors.iter().map(|(kind, count)| format!("{count} × {kind}"));
            let first = self.first_error.as_deref().unwrap_or("no more is known");
            return Err(format!("{} ({first})", errors.collect::<Vec<_>>().join(", ")));
        }
        if self.operations == 0 {
            return Err("no request was answered within the slice; make it longer".into());
        }
        let mut sample = Sample::from(self.numbers);
        sample.set("operations", self.operations as f64);
        if let Some(lost) = self.lost {
            sample.set("lost", lost as f64);
        }
        Ok(sample)
    }
}

impl From<Report> for Found {
    fn from(report: Report) -> Found {
        let Report {
            responses, seconds, latency_us: l, client_cpu_share, errors, first_error, ..
        } = report;
        Found::new(
            responses,
            seconds,
            [l.mean, l.p50, l.p99],
            client_cpu_share,
            errors,
            first_error,
        )
    }
}

impl From<PerConnectionReport> for Found {
    fn from(report: PerConnectionReport) -> Found {
        let PerConnectionReport {
            completed,
            seconds,
            echo_us: l,
            client_cpu_share,
            errors,
            first_error,
            ..
        } = report;
        Found::new(
            completed,
            seconds,
            [l.average, l.p50, l.p99],
            client_cpu_share,
            errors,
            first_error,
        )
    }
}

impl From<DatagramReport> for Found {
    fn from(report: DatagramReport) -> Found {
        let DatagramReport {
            seconds, latency_us: l, client_cpu_share, errors, first_error, ..
        } = report;
        // Those that came within the window, whose time and CPU are known.
        let echoed = (report.datagrams_per_second * seconds).round() as u64;
        let found = Found::new(
            echoed,
            seconds,
            [l.mean, l.p50, l.p99],
            client_cpu_share,
            errors,
            first_error,
        );
        Found { lost: Some(report.lost), ..found }
    }
}
