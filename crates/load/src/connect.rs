//! Connecting all clients before anything is measured.

use crate::board::Board;
use crate::fault::Fault;
use crate::plan::Plan;
use annulus::net::TcpStream;
use std::sync::Arc;

/// Connects under way at once: more would overrun a server's backlog, and a SYN that is dropped waits a second.
const LANES: usize = 64;

/// Connects every client. After the first failure, which goes on the board, no more are started.
pub(crate) async fn connect_all(plan: &Plan, board: &Arc<Board>) -> Vec<TcpStream> {
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
async fn connect_lane(plan: Plan, lane: usize, board: Arc<Board>) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for client in (lane..plan.clients).step_by(LANES) {
        if !board.is_flawless() {
            break;
        }
        match TcpStream::connect_timeout(plan.address, plan.connect_timeout).await {
            Ok(stream) => streams.push(stream),
            Err(error) => board.fault(client, 0, &Fault::connect(&error)),
        }
    }
    streams
}
