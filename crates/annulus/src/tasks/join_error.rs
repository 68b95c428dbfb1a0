//! The error of a task that has no result.

use super::panic_message;
use crate::unwind::Panic;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

/// The error of a task that was cancelled or panicked. The `?` operator converts it to an
/// [`io::Error`] of kind `Other`.
///
/// ```
/// annulus::run(async {
///     let error = annulus::spawn(async { panic!("on purpose") }).await.unwrap_err();
///     assert!(error.is_panic());
///     assert_eq!(error.to_string(), "the task panicked: on purpose");
///     assert_eq!(error.into_panic().downcast_ref(), Some(&"on purpose"));
/// });
/// ```
pub struct JoinError(JoinFailure);

enum JoinFailure {
    Cancelled,
    /// The payload is in a mutex only to make the error `Sync`.
    Panicked(Mutex<Panic>),
}

impl JoinError {
    pub(crate) fn cancelled() -> Self {
        Self(JoinFailure::Cancelled)
    }

    pub(crate) fn panicked(payload: Panic) -> Self {
        Self(JoinFailure::Panicked(Mutex::new(payload)))
    }

    /// Returns true if the task was aborted, or if its runtime ended first. If the future panicked
    /// while it was being dropped, the error is a panic instead.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, JoinFailure::Cancelled)
    }

    /// Returns true if the task panicked.
    pub fn is_panic(&self) -> bool {
        !self.is_cancelled()
    }

    /// Returns the panic's payload, for example for [`std::panic::resume_unwind`].
    ///
    /// # Panics
    /// If the task did not panic. Check [`is_panic`](Self::is_panic) first, or call
    /// [`try_into_panic`](Self::try_into_panic).
    #[track_caller]
    pub fn into_panic(self) -> Panic {
        match self.try_into_panic() {
            Ok(payload) => payload,
            Err(error) => {
                panic!(
                    "into_panic was called on an error that is not a panic ({error}); call try_into_panic"
                )
            }
        }
    }

    /// Like [`into_panic`](Self::into_panic), but returns an error instead of panicking.
    ///
    /// # Errors
    /// The error itself, if the task did not panic.
    pub fn try_into_panic(self) -> Result<Panic, Self> {
        match self.0 {
            JoinFailure::Panicked(payload) => {
                Ok(payload.into_inner().unwrap_or_else(PoisonError::into_inner))
            }
            JoinFailure::Cancelled => Err(self),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JoinFailure::Panicked(payload) = &self.0 else {
            return f.write_str("the task was aborted");
        };
        let payload = payload.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "the task panicked: {}", panic_message(&payload))
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        Self::other(error)
    }
}
