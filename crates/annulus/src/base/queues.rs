//! Counts of the work that waits for a turn.

/// Counts of the work that waits for the next turn of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queues {
    /// Sockets with something to send.
    pub sends: usize,
    /// Sockets whose send of the last turn is not settled.
    pub unsettled: usize,
    /// Sockets whose receive waits to be armed: for a turn, or for buffers.
    pub receives: usize,
    /// Wait queues of which not all waiters were notified.
    pub rechecks: usize,
}
