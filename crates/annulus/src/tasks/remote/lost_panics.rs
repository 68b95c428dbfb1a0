//! Panics of tasks without a join handle. The first one is kept for a simulation, which it fails.

use crate::tasks::panic_message;
use crate::unwind::Panic;
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A panic of a task without a join handle.
pub(crate) struct LostPanic {
    pub(crate) message: String,
    /// Where the task was spawned.
    pub(crate) spawned_at: &'static Location<'static>,
}

/// The lost panics of a runtime. The first one may be kept.
#[derive(Default)]
pub(crate) struct LostPanics {
    are_kept: AtomicBool,
    first: OnceLock<LostPanic>,
}

impl LostPanics {
    /// Keeps the first panic from now on.
    pub(crate) fn keep(&self) {
        self.are_kept.store(true, Ordering::Relaxed);
    }

    /// Records a panic. Returns true if panics are kept.
    pub(crate) fn note(&self, panic: &Panic, spawned_at: &'static Location<'static>) -> bool {
        let are_kept = self.are_kept.load(Ordering::Relaxed);
        if are_kept {
            let message = panic_message(panic).to_owned();
            _ = self.first.set(LostPanic { message, spawned_at });
        }
        are_kept
    }

    pub(crate) fn first(&self) -> Option<&LostPanic> {
        self.first.get()
    }
}
