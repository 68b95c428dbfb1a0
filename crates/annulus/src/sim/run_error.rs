//! Why a run ends before its programs have.

use crate::tasks::remote::LostPanic;
use crate::unwind::Panic;
use std::io;
use std::panic::{Location, resume_unwind};
use std::time::Duration;

/// The cause that ends a run.
pub(super) enum RunError {
    Error(io::Error),
    /// A panic, with the text that reports it.
    Panic(String),
    /// A panic without a text of its own, as it is.
    Payload(Panic),
}

impl RunError {
    /// A task's panic.
    pub(super) fn lost(panic: &LostPanic, host: Option<&str>, now: Duration) -> Self {
        Self::Panic(report(&panic.message, host, panic.spawned_at, now))
    }

    /// The panic of a host's program.
    pub(super) fn of_program(
        payload: Panic,
        host: &str,
        added_at: &Location<'_>,
        now: Duration,
    ) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        match text.or_else(|| payload.downcast_ref::<&str>().copied()) {
            Some(text) => Self::Panic(report(text, Some(host), added_at, now)),
            None => Self::Payload(payload),
        }
    }

    /// Fails the run: in the place of the caller.
    ///
    /// # Errors
    /// The error.
    ///
    /// # Panics
    /// If it is a panic.
    #[track_caller]
    pub(super) fn fail<T>(self) -> io::Result<T> {
        match self {
            Self::Error(error) => Err(error),
            Self::Panic(text) => panic!("{text}"),
            Self::Payload(payload) => resume_unwind(payload),
        }
    }
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Error(error)
    }
}

/// The message of a panic, with its host, task and time.
fn report(message: &str, host: Option<&str>, spawned_at: &Location<'_>, now: Duration) -> String {
    let host = host.map(|host| format!("{host}: ")).unwrap_or_default();
    let (file, line) = (spawned_at.file(), spawned_at.line());
    format!("{host}{message}\n  panic of the task spawned at {file}:{line}, at {now:?}")
}
