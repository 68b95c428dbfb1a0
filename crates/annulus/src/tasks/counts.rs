//! Tasks in numbers.

/// The tasks of a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tasks {
    /// Tasks that have not ended. The future that `block_on` runs is not among them; the task by which
    /// [`Handle::stats`](crate::Handle::stats) asks on another thread is.
    pub alive: usize,
    /// Live tasks in the run queue: woken, and waiting for their turn.
    pub ready: usize,
    /// Tasks that other threads have spawned or woken and that the loop has not taken in.
    pub inbox: usize,
    /// Tasks spawned so far.
    pub spawned: u64,
}
