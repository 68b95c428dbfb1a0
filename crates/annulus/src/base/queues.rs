//! Counts of queued work.

/// Counts of work queued for the next turn of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queues {
    /// Sockets with something to send.
    pub sends: usize,
    /// Sockets with a send from the last turn that may complete without an event.
    pub unsettled: usize,
    /// Sockets whose receive waits for a turn or for buffers to be armed.
    pub receives: usize,
    /// Wait queues with waiters that have not been notified yet.
    pub rechecks: usize,
}
