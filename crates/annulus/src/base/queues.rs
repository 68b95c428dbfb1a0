//! Counts of the work that waits for a turn.

/// Counts of the work that waits for the next turn of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queues {
    /// Sockets with something to send.
    pub sends: usize,
    /// Sockets with a send of the last turn that may complete without an event.
    pub unsettled: usize,
    /// Sockets whose receive waits to be armed: for a turn, or for buffers.
    pub receives: usize,
    /// Wait queues with waiters that have not been notified yet.
    pub rechecks: usize,
}
