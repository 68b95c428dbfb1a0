//! The known state of a task.

use crate::tasks::Id;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// A task that has not ended: where it was spawned, and what it waits for.
/// [`Handle::tasks`](crate::Handle::tasks) lists them.
///
/// ```
/// annulus::run(async {
///     let sleeping = annulus::spawn(annulus::time::sleep(std::time::Duration::from_secs(60)));
///     annulus::yield_now().await;
///     let tasks = annulus::handle()?.tasks().await?;
///     assert!(tasks[0].to_string().contains("waits for a timer in "));
///     assert!(!tasks[0].is_ready);
/// #   drop(sleeping);
///     std::io::Result::Ok(())
/// })
/// # .unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// The id that [`JoinHandle::id`](crate::JoinHandle::id) and [`task::id`](crate::task::id)
    /// return.
    pub id: Id,
    /// The place that spawned the task.
    pub spawned_at: &'static Location<'static>,
    /// Whether the task has been woken and waits to run.
    pub is_ready: bool,
    /// The events that the task waits for, as far as the runtime knows: sockets, files, timers,
    /// signals. Empty if it waits for another task or thread, or for nothing.
    pub waits_for: Vec<String>,
    /// Number of polls of the task.
    pub polls: u64,
    /// Time since the last poll. A task that is not ready has waited that long. The time may be a
    /// few milliseconds too long, because it is measured with a coarse clock. `None` before the
    /// first poll.
    pub last_poll: Option<Duration>,
}

impl fmt::Display for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line) = (self.spawned_at.file(), self.spawned_at.line());
        write!(f, "task spawned at {file}:{line} waits ")?;
        match self.waits_for.as_slice() {
            [] if self.is_ready => f.write_str("to run")?,
            [] => f.write_str("for a task or another thread")?,
            waits => f.write_str(&waits.join(", "))?,
        }
        write!(f, "; polled {} ×", self.polls)?;
        match self.last_poll {
            Some(ago) => write!(f, ", last {ago:?} ago"),
            None => Ok(()),
        }
    }
}
