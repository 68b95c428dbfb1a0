//! The load on a server in one slice.

use annulus_load::{Observer, PerConnection, Plan, PlanError, ServerAddress, Workload};

use crate::bench::{Cell, Sample};
use crate::own_load;

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

/// Loads a server.
pub(super) fn run(
    load: &Plan,
    cell: &Cell,
    address: ServerAddress,
    observer: &mut dyn Observer,
) -> Result<Sample, String> {
    own_load::run(&Plan { address, ..in_cell(load, cell) }, observer)
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
