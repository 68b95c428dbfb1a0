//! Connects all clients before anything is measured.

use crate::fault::Fault;
use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::server_address::{ServerAddress, unix_address};
use annulus::net::{RecvHalf, SendHalf, TcpStream, UnixStream};
use annulus::time;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Connects in progress at once. More would overflow a server's backlog, and a dropped SYN is repeated only after a
/// second.
const CONNECT_TASKS: usize = 64;

/// The two halves of a TCP or Unix stream.
pub(crate) type Connection = (RecvHalf, SendHalf);

/// Connects every client. Stops at the first failure, which is recorded.
pub(crate) async fn connect_all(plan: &Plan, metrics: &Arc<Metrics>) -> Vec<Connection> {
    let tasks: Vec<_> = (0..CONNECT_TASKS.min(plan.clients))
        .map(|task| annulus::spawn(connect_share(plan.clone(), task, Arc::clone(metrics))))
        .collect();
    let mut streams = Vec::with_capacity(plan.clients);
    for task in tasks {
        match task.await {
            Ok(connected) => streams.extend(connected),
            Err(error) => std::panic::panic_any(format!("a connecting task ended: {error}")),
        }
    }
    streams
}

/// Connects every [`CONNECT_TASKS`]th client, one after the other.
async fn connect_share(plan: Plan, task: usize, metrics: Arc<Metrics>) -> Vec<Connection> {
    let mut streams = Vec::new();
    for client in (task..plan.clients).step_by(CONNECT_TASKS) {
        if !metrics.has_no_faults() {
            break;
        }
        match connect(&plan).await {
            Ok(stream) => streams.push(stream),
            Err(error) => metrics.record_fault(client, 0, &Fault::connect(&error)),
        }
    }
    streams
}

async fn connect(plan: &Plan) -> io::Result<Connection> {
    match &plan.address {
        ServerAddress::Inet(address) => {
            let stream = TcpStream::connect_timeout(*address, plan.connect_timeout).await?;
            Ok(stream.split())
        }
        ServerAddress::Unix(path) => connect_unix(path, plan.connect_timeout).await,
    }
}

/// Connects to a path or an abstract name, within `limit`.
pub(crate) async fn connect_unix(path: &Path, limit: Duration) -> io::Result<Connection> {
    let address = unix_address(path)?;
    let connected = time::timeout(limit, UnixStream::connect_addr(&address)).await;
    Ok(connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?.split())
}
