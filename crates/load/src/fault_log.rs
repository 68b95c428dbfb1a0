//! The failures of a run, which its threads share.

use crate::fault::Fault;
use crate::metrics::Faults;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Failures by kind, and the first one as text.
#[derive(Debug, Default)]
pub(crate) struct FaultLog {
    faults: Mutex<Faults>,
    /// No other memory is read because of it, so relaxed order is enough.
    is_interrupted: AtomicBool,
}

impl FaultLog {
    /// Records that `client` has failed.
    pub(crate) fn record(&self, client: usize, fault: &Fault) {
        if !self.is_interrupted.load(Relaxed) {
            self.lock().record(client, fault);
        }
    }

    /// The run is interrupted: connections that end now have not failed.
    pub(crate) fn interrupt(&self) {
        self.is_interrupted.store(true, Relaxed);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().by_kind.is_empty()
    }

    /// Takes what was recorded.
    pub(crate) fn take(&self) -> Faults {
        std::mem::take(&mut *self.lock())
    }

    /// The data is consistent at any time, even if a thread panicked with the lock.
    fn lock(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
