//! Counters of a simulation.

/// Counts since the simulation began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries consumed.
    pub submitted: u64,
    /// Completions posted.
    pub completed: u64,
    /// Completions that found the queue full.
    pub overflowed: u64,
    /// Enters.
    pub enters: u64,
    /// Faults that occurred.
    pub faults: u64,
}
