//! The id that distinguishes a task from the others.

use std::fmt;

/// A task, among those that are known: as long as it lives, or a [`JoinHandle`](super::JoinHandle) or
/// [`AbortHandle`](super::AbortHandle) of it does, no other task of the process has its id. Afterwards it may be that of another one. It is
/// the place of the task in memory, so that it costs nothing, and is another one in another run.
///
/// ```
/// annulus::run(async {
///     let task = annulus::spawn(async { annulus::task::id() });
///     let id = task.id();
///     assert_eq!(task.await.unwrap(), id);
///     assert_eq!(annulus::task::try_id(), None, "this is the root future, which is no task");
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id(usize);

impl Id {
    /// The id of no task: of one that was refused, since its runtime ends.
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
