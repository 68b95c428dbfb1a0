//! What is known of a task.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// A task that has not ended: where it was spawned, and what it waits for. [`Handle::tasks`](crate::Handle::tasks) lists them.
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
    /// The place that spawned it.
    pub spawned_at: &'static Location<'static>,
    /// It was woken, and is to run.
    pub is_ready: bool,
    /// What it waits for, as far as the runtime knows: sockets, files, timers, signals. Empty if it waits for another task, for another
    /// thread, or for nothing.
    pub waits_for: Vec<String>,
    /// How often it was polled, and how long ago last, if the runtime was built with [`Builder::measure`](crate::Builder::measure); `None`
    /// before the first poll. The time is up to a few milliseconds too long, since the clock is a coarse one.
    pub polls: Option<Polls>,
}

/// The polls of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Polls {
    /// How many there were.
    pub count: u64,
    /// How long ago the last one was: a task that is not ready has waited for so long.
    pub last: Duration,
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
        match self.polls {
            Some(Polls { count, last }) => write!(f, "; polled {count} ×, last {last:?} ago"),
            None => Ok(()),
        }
    }
}
