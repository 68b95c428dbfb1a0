//! Connects all clients of a thread before anything is measured.

use super::context::Context;
use crate::exchange::Protocol;
use std::rc::Rc;

/// Connects in progress at once, over all threads. More would overflow a server's backlog, and a dropped SYN is repeated
/// only after a second.
pub(super) const CONNECTS: usize = 64;

/// The connections of clients, with their numbers.
pub(super) type Connected<P> = Vec<(usize, <P as Protocol>::Transport)>;

/// Connects clients of these numbers. Stops at the first failure of the run, which is recorded.
pub(super) async fn connect_all<P: Protocol>(
    context: &Rc<Context<P>>,
    numbers: impl Iterator<Item = usize> + Clone + 'static,
) -> Connected<P> {
    let tasks: Vec<_> = (0..CONNECTS)
        .map(|task| {
            let numbers = numbers.clone().skip(task).step_by(CONNECTS);
            annulus::spawn(connect_share(Rc::clone(context), numbers))
        })
        .collect();
    let mut connections = Vec::new();
    for task in tasks {
        match task.await {
            Ok(connected) => connections.extend(connected),
            Err(error) => std::panic::panic_any(format!("a connecting task ended: {error}")),
        }
    }
    connections
}

/// Connects clients one after the other.
async fn connect_share<P: Protocol>(
    context: Rc<Context<P>>,
    numbers: impl Iterator<Item = usize>,
) -> Connected<P> {
    let mut connections = Vec::new();
    for client in numbers {
        if !context.run.faults.is_empty() {
            break;
        }
        match context.connect().await {
            Ok(connection) => connections.push((client, connection)),
            Err(fault) => context.run.faults.record(client, &fault),
        }
    }
    connections
}
