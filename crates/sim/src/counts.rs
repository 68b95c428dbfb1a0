//! Counters of a simulation.

/// Counts since the simulation began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries consumed, and calls on sockets that transfer data or accept.
    pub submitted: u64,
    /// Completions posted, and results of calls on sockets that transfer data or accept.
    pub completed: u64,
    /// Completions that went to the overflow list of their ring.
    pub overflowed: u64,
    /// Calls of `enter`, and epoll waits.
    pub enters: u64,
    /// Faults that occurred.
    pub faults: u64,
}
