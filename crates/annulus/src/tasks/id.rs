//! Task ids.

use std::fmt;

/// Identifies a task. As long as the task, or a [`JoinHandle`](super::JoinHandle) or
/// [`AbortHandle`](super::AbortHandle) of it, exists, no other task in the process has the same id.
/// Afterwards the id may be reused. The id is the task's address in memory, so it costs nothing,
/// and it differs between runs.
///
/// ```
/// annulus::run(async {
///     let task = annulus::spawn(async { annulus::task::id() });
///     let id = task.id();
///     assert_eq!(task.await.unwrap(), id);
///     assert_eq!(annulus::task::try_id(), None, "the root future is not a task");
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id(usize);

impl Id {
    /// The id of a task that was refused because its runtime is ending. No task has this id.
    pub(crate) const NONE: Self = Self(0);

    pub(super) fn at(address: usize) -> Self {
        Self(address)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({self})")
    }
}
