//! Connecting all clients before anything is measured.

use crate::board::Board;
use crate::fault::Fault;
use crate::place::{Place, unix_address};
use crate::plan::Plan;
use annulus::net::{RecvHalf, SendHalf, TcpStream, UnixStream};
use annulus::time;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Connects under way at once: more would overrun a server's backlog, and a SYN that is dropped waits a second.
const LANES: usize = 64;

/// The two directions of a connection, whatever it is made of.
pub(crate) type Connection = (RecvHalf, SendHalf);

/// Connects every client. After the first failure, which goes on the board, no more are started.
pub(crate) async fn connect_all(plan: &Plan, board: &Arc<Board>) -> Vec<Connection> {
    let lanes: Vec<_> = (0..LANES.min(plan.clients))
        .map(|lane| annulus::spawn(connect_lane(plan.clone(), lane, Arc::clone(board))))
        .collect();
    let mut streams = Vec::with_capacity(plan.clients);
    for lane in lanes {
        match lane.await {
            Ok(connected) => streams.extend(connected),
            Err(error) => std::panic::panic_any(format!("a connecting task ended: {error}")),
        }
    }
    streams
}

/// Connects every [`LANES`]th client, one after the other.
async fn connect_lane(plan: Plan, lane: usize, board: Arc<Board>) -> Vec<Connection> {
    let mut streams = Vec::new();
    for client in (lane..plan.clients).step_by(LANES) {
        if !board.is_flawless() {
            break;
        }
        match connect(&plan).await {
            Ok(stream) => streams.push(stream),
            Err(error) => board.fault(client, 0, &Fault::connect(&error)),
        }
    }
    streams
}

async fn connect(plan: &Plan) -> io::Result<Connection> {
    match &plan.address {
        Place::Inet(address) => {
            let stream = TcpStream::connect_timeout(*address, plan.connect_timeout).await?;
            Ok(stream.split())
        }
        Place::Unix(path) => connect_unix(path, plan.connect_timeout).await,
    }
}

/// Connects to a path or an abstract name, within so long.
pub(crate) async fn connect_unix(path: &Path, limit: Duration) -> io::Result<Connection> {
    let address = unix_address(path)?;
    let connected = time::timeout(limit, UnixStream::connect_addr(&address)).await;
    Ok(connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?.split())
}
