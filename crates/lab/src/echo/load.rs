//! The load on a server in one slice.

use annulus_load::{
    Figures, Observer, PerConnection, Plan, PlanError, Report, ServerAddress, Workload,
};

use crate::bench::{CLIENT_CPU_SHARE, Cell, Sample};

/// Least connections of a slice unless a number is given: enough for a p99.
const CONNECTIONS: usize = 200;

/// A load for any server. Each slice sets its address, clients and length.
pub fn load(workload: impl Into<Workload>) -> Plan {
    Plan::new(ServerAddress::Inet(([127, 0, 0, 1], 1).into()), workload)
}

/// Checks that the load can run in a cell.
///
/// # Errors
/// Names the invalid value and its limit.
pub(super) fn check(load: &Plan, cell: &Cell) -> Result<(), PlanError> {
    in_cell(load, cell).validate()
}

/// Loads a server. A slice with any error is not accepted: the requests that remain are faster than they should be.
pub(super) fn run(
    load: &Plan,
    cell: &Cell,
    address: ServerAddress,
    observer: &mut dyn Observer,
) -> Result<Sample, String> {
    let plan = Plan { address, ..in_cell(load, cell) };
    let report = annulus_load::run(&plan, observer).map_err(|error| error.to_string())?;
    if !report.errors.is_empty() {
        let errors = report.errors.iter().map(|(kind, count)| format!("{count} × {kind}"));
        let first = report.first_error.as_deref().unwrap_or("no more is known");
        return Err(format!("{} ({first})", errors.collect::<Vec<_>>().join(", ")));
    }
    sample(&report).ok_or_else(|| "no request was answered within the slice; make it longer".into())
}

fn in_cell(load: &Plan, cell: &Cell) -> Plan {
    let number = |name| cell.number(name).unwrap_or_default() as usize;
    let clients = number("clients");
    let workload = match load.workload {
        Workload::PerConnection(PerConnection { connections, threads, driver }) => {
            let connections = connections.or(Some(clients.max(CONNECTIONS)));
            PerConnection { connections, threads, driver }.into()
        }
        other => other,
    };
    Plan { workload, clients, length: number("bytes"), ..load.clone() }
}

/// The figures of a slice; `None` if nothing was answered.
fn sample(report: &Report) -> Option<Sample> {
    // Of datagrams, those echoed within the window, whose length and CPU time are known.
    let (operations, [mean_us, p50_us, p99_us]) = match &report.figures {
        Figures::Streams(figures) => {
            let latency = figures.latency_us;
            (figures.responses, [latency.mean, latency.p50, latency.p99])
        }
        Figures::PerConnection(figures) => {
            let times = figures.echo_us;
            (figures.completed, [times.average, times.p50, times.p99])
        }
        Figures::Datagrams(figures) => {
            let latency = figures.latency_us;
            (figures.echoes, [latency.mean, latency.p50, latency.p99])
        }
    };
    let mut sample = Sample::from([
        ("operations", operations as f64),
        ("ns", report.seconds * 1e9),
        ("mean_us", mean_us),
        ("p50_us", p50_us),
        ("p99_us", p99_us),
        (CLIENT_CPU_SHARE, report.client_cpu_share),
    ]);
    if let Figures::Datagrams(figures) = &report.figures {
        sample.set("lost", figures.lost as f64);
    }
    (operations > 0).then_some(sample)
}
