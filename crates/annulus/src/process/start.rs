//! Starting a child, and finding out whether that may hang.

use super::reason::{program_paths, reason};
use super::running::adopt;
use crate::errors::with_text;
use crate::fs::open;
use std::io;
use std::process::{Child, Command};

/// The settings of a command that the standard library's command does not expose.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    pub(super) kill_on_drop: bool,
    pub(super) group: Option<i32>,
    pub(super) is_cleared: bool,
}

/// Starts a child. Adds the cause to a spawn error, if the cause can be determined.
pub(super) fn start(command: &mut Command, settings: Settings) -> io::Result<Child> {
    command.spawn().map_err(|error| with_reason(error, command, settings))
}

/// Adds the cause to a spawn error, if the cause can be determined.
pub(super) fn with_reason(error: io::Error, command: &Command, settings: Settings) -> io::Error {
    match reason(command, settings.group, settings.is_cleared, &error) {
        Some(reason) => {
            let text = format!("{error}: {reason}");
            with_text(error, text)
        }
        None => error,
    }
}

/// Returns true if the working directory, or a path where the program is looked for, may be on a
/// file system that hangs.
///
/// # Errors
/// Outside a runtime.
pub(super) async fn may_hang(command: &Command) -> io::Result<bool> {
    if let Some(directory) = command.get_current_dir()
        && open::may_hang(directory).await?
    {
        return Ok(true);
    }
    for path in program_paths(command) {
        if open::may_hang(&path).await? {
            return Ok(true);
        }
        if path.is_file() {
            break;
        }
    }
    Ok(false)
}

/// A child that a thread has started. If the task no longer waits for it, it is dropped like a
/// [`Child`](super::Child).
pub(super) struct Started {
    /// `None` once it has been taken.
    child: Option<Child>,
    kill_on_drop: bool,
}

impl Started {
    pub(super) fn new(child: Child, settings: Settings) -> Self {
        Self { child: Some(child), kill_on_drop: settings.kill_on_drop }
    }

    pub(super) fn take(mut self) -> Child {
        self.child.take().expect("the child has already been taken")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            if self.kill_on_drop {
                // A kill fails only if the child has ended or now belongs to another user.
                _ = child.kill();
            }
            adopt(child);
        }
    }
}
