//! What happened, in numbers.

/// Counts since the simulation began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries consumed.
    pub submitted: u64,
    /// Completions posted.
    pub completed: u64,
    /// Completions that found the queue full.
    pub overflowed: u64,
    /// Calls of enter.
    pub enters: u64,
    /// Faults that struck.
    pub faults: u64,
}
